"""`seqmodel sample`: new pieces from a run, to a file or to stdout."""
