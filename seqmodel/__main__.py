"""The `seqmodel` command, also as `python -m seqmodel`."""

import os
import signal


def run() -> None:
    """Load the command line and run it; Ctrl-C while it is loading exits silently."""
    python = signal.getsignal(signal.SIGINT)
    if python is signal.default_int_handler:  # unless it was inherited as ignored
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))

    from seqmodel.cli.main import main

    signal.signal(signal.SIGINT, python)
    main()


if __name__ == "__main__":
    run()
