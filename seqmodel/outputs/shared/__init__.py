"""What several outputs share."""
