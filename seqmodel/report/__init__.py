"""Inspection of files, datasets and runs; HTML pages on runs."""
