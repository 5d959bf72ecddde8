"""Code shared by several outputs."""
