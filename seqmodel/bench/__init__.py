"""The speed of units, whole models and sampling on this machine, against torch.nn.

See README.md in this folder.
"""
