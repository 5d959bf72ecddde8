"""What a media file, a dataset or a run holds."""
