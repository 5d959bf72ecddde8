"""The compiled backend for the CPU.

`backend` is its entry in the registry. From a text to a kernel: `step` makes its equations a
`graph`, `layout` finds where its values are kept, `schedule` what is computed when, forward and
backward, and `kernels` writes the loops around that. `recurrence` is the torch operation,
`stepping` single steps for sampling. All but `backend` are imported when a unit first runs.
"""
