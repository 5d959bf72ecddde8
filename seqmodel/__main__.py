"""The `seqmodel` command, also as `python -m seqmodel`."""

import os
import sys

from seqmodel.system import signals


def run() -> None:
    """Load the command line and run it; Ctrl-C while it is loading exits silently."""
    _open_closed_streams()
    interrupt = signals.unless_ignored(signals.INTERRUPT)
    with signals.handled(lambda number, frame: os._exit(128 + number), *interrupt):
        from seqmodel.cli.main import main
    main()


def _open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream, so that no other file gets its descriptor.

    Messages are then lost, but results must not be: nothing can be written to this stdout.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


if __name__ == "__main__":
    run()
