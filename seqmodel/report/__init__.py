"""What files, datasets and runs hold; runs as HTML pages."""
