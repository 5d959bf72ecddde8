"""The speed of units, training and sampling on this machine, compared with torch.nn.

`cases` lists what can be measured, `clock` measures it; each part has a file; `report` runs them.
See README.md in this folder.
"""
