"""Media to frames and back: pure functions on NumPy arrays, no torch."""
