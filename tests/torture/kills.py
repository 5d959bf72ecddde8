"""SIGKILL at random moments: what is left is complete, and resuming reaches the same bytes.

Half of the kills come after a random time, half in place of a writing call.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from calls import KILLS, armed, calls_made, failing
from corpora import TRAININGS, going_on, here, training, write_datasets
from forks import Outcome, fork, seqmodel

from seqmodel.files import TEMPORARY
from seqmodel.runs.checkpoint import load_checkpoint

MEASURED = ("seconds", "frames_per_second")
"""Keys of a line of metrics: times, which differ between runs."""


@dataclass
class Kills:
    """How many commands were killed, and what broke."""

    killed: int = 0
    ended: int = 0
    """Commands that ended before the kill came."""
    mid_work: int = 0
    """Kills that hit the work: they left half-written files, or a training to resume."""
    complaints: list[str] = field(default_factory=list)
    tried: int = 0

    def count(self, outcome: Outcome) -> bool:
        """Count a command; return whether it was killed."""
        killed = outcome.status > 128
        self.killed, self.ended = self.killed + killed, self.ended + (not killed)
        return killed


def kill_all(folder: Path, count: int, seed: int, *, slow: bool) -> Kills:
    """Kill about `count` commands; with `slow`, also some that run several processes."""
    found, draw = Kills(), random.Random(seed)
    write_datasets(folder)
    makers = [*_preparations(folder), *_trainings(folder), *_samplings(folder)]
    makers += _comparisons(folder) if slow else []
    draw.shuffle(makers)
    victims: list[Victim] = []
    while found.killed < count:
        if makers and len(victims) < count // 3 + 1:
            victims.append(makers.pop()())
        victims[found.tried % len(victims)](found, draw)
        found.tried += 1
    return found


@dataclass(frozen=True)
class Undisturbed:
    """A command line that was run once without a kill."""

    command: Callable[[], int]
    seconds: float
    calls: int
    """Writing calls; 0 if they are not counted."""

    @classmethod
    def timed(cls, arguments: tuple[object, ...], place: Path) -> "Undisturbed":
        """Run it in `place`."""
        command = seqmodel(*arguments)
        outcome = fork(failing(command, place, -1, 0) if armed() else command, place)
        assert outcome.status == 0, outcome.err
        return cls(command, outcome.seconds, calls_made(place))


def killed(
    arguments: tuple[object, ...], place: Path, like: Undisturbed, draw: random.Random
) -> Outcome:
    """Run a command line that does about what `like` did, and kill it."""
    command = seqmodel(*arguments)
    if like.calls and draw.random() < 0.5:
        outcome = fork(failing(command, place, draw.randrange(like.calls), KILLS), place)
        calls_made(place)
        return outcome
    return fork(command, place, kill_after=draw.uniform(0, like.seconds))


Victim = Callable[[Kills, random.Random], None]
Maker = Callable[[], Victim]


def _preparations(folder: Path) -> Iterator[Maker]:
    for source, force in (("mid", False), ("wav", False), ("mid", True)):
        yield partial(
            _Command,
            folder,
            f"prepare {source}{' --force' * force}",
            ("prepare", folder / source, "-o", "out", "-q", *["--force"] * force),
            before=("prepare", folder / source / "train", "-o", "out", "-q") if force else None,
        )


def _samplings(folder: Path) -> Iterator[Maker]:
    drawn = {"tied lstm": ("mid", "mp3", "png"), "gaussian gru": ("wav", "flac")}
    for name, kinds in (drawn | {"sample-wise": ("wav",)}).items():
        for kind in kinds:
            yield partial(_sampling, folder, name, kind)


def _sampling(folder: Path, name: str, kind: str) -> Victim:
    run = folder / f"sampled {name}"
    if not run.exists():
        here(*training(folder, name, run))
    options = ("--run", run, "--length", 40, "-q")
    return _Command(folder, f"sample .{kind} of {name}", ("sample", f"out.{kind}", *options))


class _Command:
    """A command with one output, which is the same each time it is run."""

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: tuple[object, ...],
        before: tuple[object, ...] | None = None,
    ) -> None:
        self.folder, self.name, self.arguments, self.before = folder, name, arguments, before
        self.number = 0
        here(*arguments, place=self._place())  # so that kills hit the work, not a compiler
        begun = self._place()
        self.old = contents(begun)
        self.whole, self.new = Undisturbed.timed(arguments, begun), contents(begun)

    def _place(self) -> Path:
        self.number += 1
        place = self.folder / f"{self.name} {self.number}"
        place.mkdir()
        if self.before:
            assert fork(seqmodel(*self.before), place).status == 0
        return place

    def __call__(self, found: Kills, draw: random.Random) -> None:
        place = self._place()
        found.count(killed(self.arguments, place, self.whole, draw))
        found.mid_work += any(TEMPORARY.fullmatch(path.name) for path in place.iterdir())
        there = {name: data for name, data in contents(place).items() if not _temporary(name)}
        if there not in (self.old, self.new):
            found.complaints.append(f"{self.name}: neither old nor new but {sorted(there)}")
        fork(seqmodel(*self.arguments, "--force"), place)
        after = {name: data for name, data in contents(place).items() if not _temporary(name)}
        if after != self.new:
            found.complaints.append(f"{self.name}: made again after a kill, it differs")
        if self.arguments[0] == "prepare" and (left := [*place.glob(".out.seqmodel-*")]):
            found.complaints.append(f"{self.name}: made again after a kill, it leaves {left}")


def _temporary(name: str) -> bool:
    return name.startswith(".")


def contents(place: Path) -> dict[str, bytes]:
    """The bytes of every file below `place`, by relative path, to compare places."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def _trainings(folder: Path) -> Iterator[Maker]:
    for name in TRAININGS:
        yield partial(_Training, folder, name)


class _Training:
    """A training, killed up to three times and resumed until it is done."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.number = folder, name, 0
        whole = folder / "whole" / name
        whole.mkdir(parents=True)
        here(*training(folder, name, whole / "run"))
        self.like = Undisturbed.timed(training(folder, name, "timed"), whole)
        self.whole = whole / "run"

    def __call__(self, found: Kills, draw: random.Random) -> None:
        self.number += 1
        place = self.folder / f"{self.name} {self.number}"
        place.mkdir()
        arguments = begin = training(self.folder, self.name, "run")
        for _ in range(3):
            outcome = killed(arguments, place, self.like, draw)
            if not found.count(outcome):
                break
            self._check_whole(place / "run", found)
            arguments = going_on(place / "run", begin)
            found.mid_work += "--resume" in arguments
        else:
            outcome = fork(seqmodel(*arguments), place)
        if outcome.status != 0:
            found.complaints.append(f"{self.name}: does not go on: {outcome.err}")
        elif figures(place / "run") != figures(self.whole):
            found.complaints.append(f"{self.name}: a killed run came to other weights or figures")

    def _check_whole(self, run: Path, found: Kills) -> None:
        for path in run.rglob("*"):
            if _temporary(path.name):
                continue
            try:
                if path.suffix == ".safetensors":
                    load_checkpoint(path)
                elif path.suffix == ".jsonl":
                    [json.loads(line) for line in path.read_text().splitlines()]
                elif path.suffix == ".png":
                    assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
            except Exception as error:
                found.complaints.append(f"{self.name}: {path.name} is not whole: {error}")


def figures(run: Path) -> dict[str, object]:
    """The checkpoints' bytes and the metrics without times, draws included."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.suffix == ".safetensors":
            tensors, content = load_checkpoint(path)
            found[name] = {key: tensor.numpy().tobytes() for key, tensor in tensors.items()}
            found[f"{name} content"] = _without_times(content)
        elif path.suffix == ".jsonl":
            found[name] = [_without_times(json.loads(x)) for x in path.read_text().splitlines()]
    return found


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in MEASURED}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def _comparisons(folder: Path) -> Iterator[Maker]:
    yield partial(_Comparison, folder)


class _Comparison:
    """A comparison, whose processes die with it."""

    def __init__(self, folder: Path) -> None:
        options = ("--units", "tanh,gru", "--search", "paper", "--trials", 2, "--seeds", 1)
        small = ("--set", "epochs=1", "--set", "hidden=4", "--set", "model=frame-wise")
        self.arguments = ("compare", folder / "music", *options, *small, "--jobs", 1)
        self.arguments += ("--out", "out", "-q")
        self.folder, self.number = folder, 0
        whole = fork(seqmodel(*self.arguments), self._place())
        assert whole.status == 0, whole.err
        self.seconds, self.table = whole.seconds, self._table()

    def _place(self) -> Path:
        self.number += 1
        self.place = self.folder / f"compare {self.number}"
        self.place.mkdir()
        return self.place

    def _table(self) -> bytes:
        return (self.place / "out" / "table.json").read_bytes()

    def __call__(self, found: Kills, draw: random.Random) -> None:
        work, place = seqmodel(*self.arguments), self._place()
        killed = fork(work, place, kill_after=draw.uniform(0, self.seconds))
        found.count(killed)
        again = fork(work, place)
        if again.status != 0 or self._table() != self.table:
            found.complaints.append(f"compare: after a kill, it differs: {again.err}")
