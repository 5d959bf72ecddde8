"""The compiled backend for the CPU.

`backend` is its entry in the registry, `plan` what exists of a unit's cell, `kernels` the loops
around it, `recurrence` what torch sees, `stepping` single steps for sampling. All but the first two
load the compiler and are imported when a unit first runs. `by_hand` runs cells over NumPy.
"""
