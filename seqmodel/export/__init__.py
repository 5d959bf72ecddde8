"""A trained run in the formats that others read."""
