"""`seqmodel train`: from a dataset and a unit to a run folder."""
