"""The speed of units, training and sampling on this machine, beside torch.nn.

`cases` lists what can be measured, `clock` measures it; each part has a file; `report` runs them.
See README.md beside this file.
"""
