"""How well a model predicts: exact likelihoods, next to trivial baselines."""
