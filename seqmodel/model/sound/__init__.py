"""The sample-wise model's encoder: what adaptive predictors say of the next sample."""
