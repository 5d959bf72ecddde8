"""Training: the loop, the optimizer and its noise, stopping and resuming, the rate search."""
