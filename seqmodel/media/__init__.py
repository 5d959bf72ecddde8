"""What can be modelled: each medium owns its frames, its files and its defaults."""
