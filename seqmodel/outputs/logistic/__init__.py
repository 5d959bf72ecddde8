"""Blocks of 16-bit samples, each from a mixture of discretised logistics."""
