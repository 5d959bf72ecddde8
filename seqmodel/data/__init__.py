"""Prepared datasets: finding sources, splitting them, writing, reading and batching."""
