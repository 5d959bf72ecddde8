"""Output distributions: each owns its loss, its exact likelihood, its figures and its draw.

`protocol` says what all of them have, `registry` which there are; each has a folder with its
specification in plain PyTorch, its compiled score and its compiled draw. See README.md.
"""
