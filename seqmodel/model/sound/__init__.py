"""The sample-wise model's encoder: what adaptive predictors reveal about the next sample."""
