"""The command line: one thin file per command that parses, calls and renders."""
