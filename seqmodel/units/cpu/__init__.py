"""The compiled backend for the CPU.

`backend` is its entry in the registry, `plan` the parts of a cell that a unit has, `kernels` the
loops around the cell, `recurrence` the torch operation, `stepping` single steps for sampling. All
but the first two load the compiler and are imported when a unit first runs. `by_hand` runs cells
over NumPy.
"""
