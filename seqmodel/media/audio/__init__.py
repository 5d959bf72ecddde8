"""Audio: blocks of samples."""
