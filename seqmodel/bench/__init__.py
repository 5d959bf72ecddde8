"""The speed of units, training and sampling on this machine, beside torch.nn.

`cases` says what can be measured, `clock` how; each part has a file; `report` runs them.
"""
