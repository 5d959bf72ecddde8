"""`seqmodel compare`: which unit, or any other setting, is better on which data."""
