"""The `seqmodel` command: its subcommands, exit statuses, error messages and process settings."""

import errno
import gc
import io
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import typer

import seqmodel
from seqmodel.cli import bench, compare, inspect, prepare, sample, share, train, units
from seqmodel.cli import eval as eval_command
from seqmodel.cli.common import Verbosity
from seqmodel.cli.options import GroupedCommand, plain
from seqmodel.errors import NO_THREAD, SeqmodelError, UsageError, lacks_memory, reason
from seqmodel.media.words import printable
from seqmodel.system import signals
from seqmodel.system.machine import keep_freed_memory

app = typer.Typer(
    name="seqmodel",
    help="Sequence modelling with gated recurrent units: MIDI or audio in, exact likelihoods, new "
    "music and new sound out.",
    epilog="Start with: seqmodel train --unit lstm && seqmodel sample out.mid",
    invoke_without_command=True,
    rich_markup_mode=None,  # plain help, which wraps paragraphs and keeps text in brackets
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("prepare", cls=GroupedCommand)(prepare.prepare)
app.command("train", cls=GroupedCommand, epilog=train.EXAMPLES)(train.train)
app.command("eval", cls=GroupedCommand)(eval_command.evaluate)
app.command("sample", cls=GroupedCommand)(sample.sample)
app.command("report", cls=GroupedCommand)(share.report)
app.command("export", cls=GroupedCommand)(share.export)
app.command("compare", cls=GroupedCommand, epilog=compare.EXAMPLES)(compare.compare)
app.command("inspect", cls=GroupedCommand)(inspect.inspect)
app.command("units", cls=GroupedCommand)(units.units)
app.command("bench", cls=GroupedCommand)(bench.bench)


MEMORY_ADVICE = {
    "prepare": "; prepare fewer or shorter files, or cut recordings with --clip-seconds",
    "train": "; try a smaller --hidden, --batch-size or --truncate",
    "compare": "; try fewer --jobs, or smaller models",
    "eval": "; try a smaller --batch-size",
    "sample": "; try a smaller --length",
}


STDERR = 2


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqmodel {seqmodel.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
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
    # By default, a tenth of the start-up time goes to looking for garbage in what torch loads.
    gc.set_threshold(10_000)
    _prepare_streams()
    # So that temporary files are removed. Signals the caller ignores, as nohup does, stay ignored.
    endings = signals.unless_ignored(signals.INTERRUPT, signals.TERMINATE, signals.HANGUP)
    with signals.handled(_exit_on_signal, *endings):
        try:
            status = _status()
        finally:
            Verbosity.quiet = False  # it was for this command
    sys.exit(status)  # with nothing left to clean up


def _status() -> int:
    """Run the command line and explain any failure; returns the exit status."""
    try:
        _check_call()
        status: int = app(prog_name="seqmodel", standalone_mode=False) or 0
        sys.stdout.flush()
    except SeqmodelError as error:
        status = _say(str(error), error.exit_status, *error.shown)
    except (SystemExit, BrokenPipeError) as end:
        # Typer may have caught that the reader of our output has gone.
        if any(isinstance(error, BrokenPipeError) for error in (end, end.__context__)):
            status = 128 + signals.BROKEN_PIPE
        elif isinstance(end, SystemExit) and isinstance(end.code, int) and end.code > 128:
            name = signals.name_of(end.code - 128)
            status = _say(f"ended by {name}; nothing half-written is left", end.code)
        else:
            raise
    except (KeyboardInterrupt, typer.Abort):
        status = 128 + signals.INTERRUPT
    except Exception as error:
        if lacks_memory(error):
            command = next((word for word in sys.argv[1:] if word in MEMORY_ADVICE), "")
            threads = " or threads" * (NO_THREAD in str(error))
            status = _say(f"out of memory{threads}{MEMORY_ADVICE.get(command, '')}", 1)
        elif isinstance(error, OSError):
            what = f"cannot use {error.filename}: " * bool(error.filename)
            advice = "; set TMPDIR to a shorter path" * ("AF_UNIX" in str(error))
            status = _say(what + reason(error) + advice, 1)
        # Typer's usage errors share no public base class but carry a message and an exit code.
        elif usage := getattr(error, "format_message", None):
            names = [command.name for command in app.registered_commands]
            command = next((word for word in sys.argv[1:2] if word in names), "")
            text = plain(usage().rstrip(".").replace("Value error, ", ""), command)
            called = f"seqmodel {command}".rstrip()
            status = _say(f"{text} (see {called} --help)", 2)
        else:
            raise
    return status


def _check_call() -> None:
    """SeqmodelError for what no command can work with."""
    try:
        Path.cwd()
    except FileNotFoundError:  # a library of torch would end the process
        raise SeqmodelError("the working folder is gone: change to another") from None
    if "" in sys.argv[1:]:  # a path "" would mean the current folder
        raise UsageError("an argument is empty: is a shell variable unset?")


class _Stream(io.FileIO):
    """stdout or stderr: errors differ from those of other files; a lost stderr is no error."""

    _failed = False

    def write(self, data: Any) -> int:
        if self._failed:  # drop the rest: flushing at exit would raise the error again
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            gone = signals.is_broken_pipe(error)
            if self.fileno() == STDERR and not gone:
                return len(data)
            self._failed = True
            if gone:
                raise BrokenPipeError from error
            why = "it is closed" if error.errno == errno.EBADF else reason(error)
            raise SeqmodelError(f"cannot write to stdout: {why}") from error


def _prepare_streams() -> None:
    """Make stdout and stderr a `_Stream`, except a Windows console; set the encoding of stdin."""
    if signals.ENCODING and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding=signals.ENCODING)
    for name in ("stdout", "stderr"):
        former = getattr(sys, name)
        with suppress(io.UnsupportedOperation):  # not a file, in a program that calls `main`
            number = former.fileno()
            if isinstance(getattr(former.buffer, "raw", former.buffer), io.FileIO):
                raw = io.BufferedWriter(_Stream(number, "wb", closefd=False))
                encoding = signals.ENCODING or former.encoding
                new = io.TextIOWrapper(raw, encoding, former.errors, "\n", line_buffering=True)
                setattr(sys, name, new)


def _shortened(message: str) -> str:
    """The message with long words cut in the middle, and itself cut if it is still long."""
    message = re.sub(r"\S{300,}", lambda word: f"{word[0][:100]}...{word[0][-50:]}", message)
    return message if len(message) <= 1500 else f"{message[:1000]} ... {message[-300:]}"


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    if number == signals.INTERRUPT:
        raise KeyboardInterrupt
    if number == signals.HANGUP:  # the end of a terminal sends several
        signals.reset(number)
    sys.exit(128 + number)


def _say(message: str, status: int, *shown: str) -> int:
    with suppress(OSError):  # stderr may be full, too
        typer.echo(f"seqmodel: {_shortened(printable(message))}", err=True)
        for line in shown:
            typer.echo(printable(line), err=True)
    return status
