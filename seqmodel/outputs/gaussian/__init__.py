"""Blocks of samples from a mixture of diagonal Gaussians."""
