"""The `seqmodel` command: its subcommands, exit statuses, error messages and process settings."""

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Annotated

import typer

import seqmodel
from seqmodel.cli import bench, inspect, prepare, report, units
from seqmodel.cli import eval as eval_command
from seqmodel.cli.common import printable
from seqmodel.cli.compare import command as compare
from seqmodel.cli.help import GroupedCommand
from seqmodel.cli.sample import command as sample
from seqmodel.cli.train import command as train
from seqmodel.errors import SeqmodelError
from seqmodel.kernels.run.allocator import keep_freed_memory

app = typer.Typer(
    name="seqmodel",
    help="Sequence modelling with gated recurrent units: MIDI or audio in, honest likelihoods, new "
    "music and new sound out.",
    epilog="Start with: seqmodel train --unit lstm && seqmodel sample out.mid",
    invoke_without_command=True,
    rich_markup_mode=None,  # plain help, which wraps paragraphs and keeps text in brackets
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("prepare", cls=GroupedCommand)(prepare.prepare)
app.command("train", cls=GroupedCommand)(train.train)
app.command("eval", cls=GroupedCommand)(eval_command.evaluate)
app.command("sample", cls=GroupedCommand)(sample.sample)
app.command("report", cls=GroupedCommand)(report.report)
app.command("compare", cls=GroupedCommand)(compare.compare)
app.command("inspect", cls=GroupedCommand)(inspect.inspect)
app.command("units", cls=GroupedCommand)(units.units)
app.command("bench", cls=GroupedCommand)(bench.bench)


LESS = {
    "prepare": "; prepare fewer or shorter files, or cut recordings with --clip-seconds",
    "train": "; try a smaller --hidden, --batch-size or --truncate",
    "compare": "; try fewer --jobs, or smaller models",
    "eval": "; try a smaller --batch-size",
    "sample": "; try a smaller --length",
}
"""Advice on using less memory, by command."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqmodel {seqmodel.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line and exit: 0 done, 1 an error, 2 wrong usage, 128+n after signal n."""
    # How long idle OpenMP threads spin before they sleep. The default (300,000 turns) made training
    # several times slower alongside another program. Must be set before torch is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    keep_freed_memory()
    _replace_closed_streams()
    signal.signal(signal.SIGTERM, _exit_on_signal)  # so that temporary files are removed
    try:
        status = app(prog_name="seqmodel", standalone_mode=False)
        sys.stdout.flush()
    except SeqmodelError as error:
        status = _say(str(error), error.exit_status)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        status = 128 + signal.SIGPIPE  # the reader of our output has gone; Typer caught the error
    except BrokenPipeError:
        _close_stdout()
        status = 128 + signal.SIGPIPE
    except (KeyboardInterrupt, typer.Abort):
        status = 128 + signal.SIGINT
    except OSError as error:
        _close_stdout()
        what = f"use {error.filename}" if error.filename else "write to stdout"
        status = _say(f"cannot {what}: {(error.strerror or str(error)).lower()}", 1)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        command = next((word for word in sys.argv[1:] if word in LESS), "")
        status = _say(f"out of memory{LESS.get(command, '')}", 1)
    except Exception as error:
        # Typer's usage errors share no public base class but carry a message and an exit code.
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "seqmodel")
        said = usage().rstrip(".").replace("Value error, ", "")
        status = _say(f"{said} (see {command} --help)", 2)
    sys.exit(status)


class _ClosedStdout(io.TextIOBase):
    """stdout after `>&-`, where Python has none: writing fails rather than losing text."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


def _replace_closed_streams() -> None:
    """Keep files opened later from taking the descriptor of a closed standard stream.

    Otherwise what libraries print would be written to such a file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if sys.stdout is None:
        sys.stdout = _ClosedStdout()


def _close_stdout() -> None:
    """Discard what stdout still buffers: flushing it at exit would raise the error again."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _say(message: str, status: int) -> int:
    with suppress(OSError):  # stderr may be full, too
        typer.echo(f"seqmodel: {printable(message)}", err=True)
    return status
