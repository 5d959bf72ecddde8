"""Output distributions: each owns its loss, its exact likelihood, its figures and its draw.

`protocol` defines their interface and `registry` lists them. Each has a file with its specification
in plain PyTorch and its compiled code. See README.md.
"""
