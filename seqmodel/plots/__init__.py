"""Plots, as PNG."""
