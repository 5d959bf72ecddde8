"""What outputs over frames of notes share."""
