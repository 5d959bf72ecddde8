"""Notes that are independent given the past."""
