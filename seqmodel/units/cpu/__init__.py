"""The compiled backend for the CPU.

`backend` is its entry in the registry, `cell_plan` the parts of a cell that a unit has, `kernels`
the loops around the cell, `recurrence` the torch operation, `stepping` single steps for sampling.
All but the first two load the compiler and are imported when a unit first runs.
"""
