"""A unit along pitch: each note given those below it."""
