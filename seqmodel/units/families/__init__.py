"""The units themselves, one file per family: gates, equations, step and cell side by side."""
