"""The sequence model: an encoder, a unit and an output."""
