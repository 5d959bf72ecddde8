"""How much memory a call takes."""

import tracemalloc


def peak_of(call):
    """The most bytes that `call` holds at a time."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
