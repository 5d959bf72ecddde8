"""The media that can be modelled; each owns its frames, its files and its defaults."""
