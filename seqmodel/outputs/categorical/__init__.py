"""Samples of 256 levels, by a softmax."""
