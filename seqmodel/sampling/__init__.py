"""New pieces from a trained model."""
