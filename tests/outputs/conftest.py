"""Every test here runs with guarded buffers."""

from guards import guarded

__all__ = ["guarded"]
