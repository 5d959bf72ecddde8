"""What adaptive predictors say of the next sample: the sample-wise model's encoder."""
