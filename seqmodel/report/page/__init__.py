"""Report pages: plain data in (`parts`), one self-contained HTML file out (`render`)."""
