"""How well a model predicts: exact likelihoods beside trivial baselines."""
