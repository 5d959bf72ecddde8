"""The compiled backend for the CPU.

`cells` holds the equations, `kernels` the loops around them, `recurrence` what torch sees. All of
it loads the compiler, so it is imported where a unit first runs.
"""
