"""Notes that depend on the notes below them."""
