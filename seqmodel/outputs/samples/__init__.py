"""What outputs over blocks of audio samples share."""
