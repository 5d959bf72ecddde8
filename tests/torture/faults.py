"""Writing calls that fail with ENOSPC, EIO or EDQUOT: every call in turn."""

import errno
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from calls import calls_made, failing
from corpora import TRAININGS, going_on, here, training, write_datasets
from forks import fork, seqmodel
from kills import contents, figures

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


@dataclass
class Faults:
    """How many calls were made to fail, and what broke."""

    injected: int = 0
    places: int = 0
    complaints: list[str] = field(default_factory=list)


def fail_all(folder: Path, seed: int, *, each: int | None) -> Faults:
    """Make every writing call of every command fail, or `each` random calls of `each` commands."""
    found, draw = Faults(), random.Random(seed)
    write_datasets(folder)
    run = folder / "run"
    here(*training(folder, "gaussian gru", folder / "sounds"))
    here(*training(folder, "tied lstm", run))
    sampled = ("--length", 30, "-q")
    commands: dict[str, tuple[object, ...]] = {
        "prepare mid": ("prepare", folder / "mid", "-o", "out", "-q"),
        "prepare wav": ("prepare", folder / "wav", "-o", "out", "-q"),
        "prepare --force": ("prepare", folder / "mid", "-o", "out", "-q", "--force"),
        **{f"sample .{k}": ("sample", f"out.{k}", "--run", run, *sampled) for k in ("mid", "png")},
        **{f"sample .{k}": ("sample", f"out.{k}", "--run", run, *sampled) for k in ("mp3", "npy")},
        "sample .flac": ("sample", "out.flac", "--run", folder / "sounds", *sampled),
        "sample --force": ("sample", "out.mid", "--run", run, *sampled, "--force"),
        "inspect --plot": ("inspect", folder / "mid/train/0.mid", "--plot", "out.png", "-q"),
        "inspect --listen": ("inspect", folder / "mid/train/0.mid", "--listen", "out.wav", "-q"),
        "report": ("report", run, "-o", "out.html", "-q"),
        **{f"train {name}": training(folder, name, "out") for name in TRAININGS},
    }
    names = list(commands) if each is None else draw.sample(list(commands), each)
    for name in names:
        _Place(folder, name, commands[name]).fail(found, draw, each)
    return found


class _Place:
    """A command, and what it leaves if nothing fails."""

    def __init__(self, folder: Path, name: str, arguments: tuple[object, ...]) -> None:
        self.folder, self.name, self.arguments, self.number = folder, name, arguments, 0
        self.replaces = "--force" in arguments
        self.trains = arguments[0] == "train"
        here(*arguments, place=self._new())  # compiled here, once, and not in the fork of each call
        place = self._new()
        self.old = contents(place)
        outcome = fork(failing(seqmodel(*arguments), place, -1, 0), place)
        assert outcome.status == 0, outcome.err
        self.calls = calls_made(place)
        files = len(contents(place)) - len(self.old)
        assert self.calls >= 2 * files, f"{name}: {files} files by {self.calls} calls: some escape"
        self.new = self._made(place)

    def _new(self) -> Path:
        self.number += 1
        place = self.folder / f"{self.name} {self.number}"
        place.mkdir()
        if self.replaces:  # something that it may replace
            if self.arguments[0] == "prepare":
                shutil.copytree(self.folder / "struck", place / "out")
            else:
                (place / str(self.arguments[1])).write_bytes(b"old")
        return place

    def _made(self, place: Path) -> object:
        return figures(place / "out") if self.trains else contents(place)

    def fail(self, found: Faults, draw: random.Random, each: int | None) -> None:
        """Make calls fail, one per fork, each with one of the errors, once or from then on."""
        found.places += self.calls
        calls = (
            range(self.calls)
            if each is None
            else draw.sample(range(self.calls), min(each, self.calls))
        )
        for at in calls:
            self._fail_at(at, draw.choice(ERRORS), draw.random() < 0.5, found)

    def _fail_at(self, at: int, error: int, stays: bool, found: Faults) -> None:
        place = self._new()
        command = seqmodel(*self.arguments)
        outcome = fork(failing(command, place, at, error, stays=stays), place)
        found.injected += calls_made(place) > at
        what = f"{self.name}, call {at} of {self.calls} with {errno.errorcode[error]}"
        what += " and all after it" * stays
        if not outcome.clean:
            found.complaints.append(f"{what}: {outcome.err.strip().splitlines()[-1:]}")
        if ".seqmodel-" in outcome.err:
            found.complaints.append(f"{what}: names a temporary file: {outcome.err}")
        full = error != errno.EIO and outcome.status != 0 and "write out:" not in outcome.err
        if self.trains and full and (place / "out").exists() and "--resume" not in outcome.err:
            found.complaints.append(f"{what}: does not say how to go on: {outcome.err}")
        if outcome.status == 0 and self._made(place) != self.new:
            found.complaints.append(f"{what}: status 0, and what is there is not whole")
        if not self.trains and outcome.status != 0 and contents(place) not in (self.old, self.new):
            found.complaints.append(f"{what}: left {sorted(contents(place))}")
        if self.trains:
            self._go_on(place, what, found)
        shutil.rmtree(place)

    def _go_on(self, place: Path, what: str, found: Faults) -> None:
        run = place / "out"
        again = going_on(run, self.arguments)
        outcome = fork(seqmodel(*again), place)
        if outcome.status != 0 or figures(run) != self.new:
            found.complaints.append(f"{what}: does not go on to the same: {outcome.err.strip()}")
