"""The `seqmodel` command, also as `python -m seqmodel`."""

import os
import signal


def run() -> None:
    """Load the command line and run it; Ctrl-C while it is loaded ends it without a word."""
    python = signal.getsignal(signal.SIGINT)
    if python is signal.default_int_handler:  # unless whoever started it has it ignored
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))

    from seqmodel.cli.main import main

    signal.signal(signal.SIGINT, python)
    main()


if __name__ == "__main__":
    run()
