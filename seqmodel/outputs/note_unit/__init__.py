"""A unit along pitch: each note given the notes below it."""
