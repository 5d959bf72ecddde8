"""Training: one update, the state of a run, the loop over epochs, and the learning-rate search."""
