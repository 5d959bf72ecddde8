"""Commands killed, or refused a writing call: what is left is whole, and they go on to the same.

Half of the kills come after a random time, half in place of a writing call.
"""

import errno
import itertools
import json
import random
import shutil
import sys
from dataclasses import dataclass, field
from functools import partial

from calls import KILLS, armed, calls_made, failing
from corpora import TRAININGS, going_on, here, training, write_datasets
from forks import fork, seqmodel
from outcomes import left

from seqmodel.files import TEMPORARY
from seqmodel.runs.checkpoint import load_checkpoint

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
RUNS = {"of music": "tied lstm", "of sound": "gaussian gru"}
"""Of the runs that commands read, which training makes each."""


@dataclass
class Found:
    """How many commands were disturbed, and what broke."""

    disturbed: int = 0
    ended: int = 0
    """Commands that ended before the kill came."""
    mid_work: int = 0
    """Kills that hit the work: they left half-written files, or a training to resume."""
    complaints: list[str] = field(default_factory=list)


def kill_all(folder, seed, *, short):
    """Kill some 240 commands; if `short` 2, of a case that is not of several processes."""
    found, draw, most = Found(), random.Random(seed), 2 if short else 240
    makers = [*_cases(folder, several=not short).values()]
    draw.shuffle(makers)
    cases: list[Case] = []
    for turn in itertools.count():
        if found.disturbed >= most:
            break
        if makers and len(cases) < most // 3 + 1:
            cases.append(makers.pop()())
        cases[turn % len(cases)].kill(found, draw)
    said = f"{found.disturbed} commands killed, {found.mid_work} mid-work, {found.ended} already"
    return f"{said} finished", found.complaints


def fail_all(folder, seed, *, short):
    """Make every writing call of every command fail; if `short`, two calls of one."""
    if not armed():
        return "not tried, for want of a C compiler", []
    found, draw, places = Found(), random.Random(seed), 0
    cases = _cases(folder, several=False)
    for name in draw.sample([*cases], 1) if short else cases:
        case = cases[name]()
        places += case.calls
        for at in draw.sample(range(case.calls), 2) if short else range(case.calls):
            case.fail(at, draw.choice(ERRORS), draw.random() < 0.5, found)
    return f"{found.disturbed:,} writing calls made to fail, of {places:,}", found.complaints


def _cases(folder, *, several):
    """What makes each case; with `several`, also one of several processes."""
    write_datasets(folder)
    music, sound = (folder / name for name in RUNS)
    piece = folder / "mid/train/0.mid"
    commands: dict[str, tuple[object, ...]] = {
        **{f"prepare {k}": ("prepare", folder / k, "-o", "out", "-q") for k in ("mid", "wav")},
        "prepare --force": ("prepare", folder / "mid", "-o", "out", "-q", "--force"),
        "inspect --plot": ("inspect", piece, "--plot", "out.png", "-q"),
        "inspect --listen": ("inspect", piece, "--listen", "out.wav", "-q"),
        "report": ("report", music, "-o", "out.html", "-q", "--force"),
        **{f"train {name}": training(folder, name, "out") for name in TRAININGS},
    }
    drawn = dict.fromkeys(("mid", "png", "mp3", "npy"), music) | dict.fromkeys(
        ("wav", "flac"), sound
    )
    for kind, run in drawn.items():
        sample = ("sample", f"out.{kind}", "--run", run, "--length", 40, "-q")
        commands |= {f"sample .{kind}": sample}
    commands["sample --force"] = (*commands["sample .mid"], "--force")
    if several:
        small = ("--set", "epochs=1", "--set", "hidden=4", "--set", "model=frame-wise", "--jobs", 1)
        search = ("--units", "tanh,gru", "--search", "paper", "--trials", 2, "--seeds", 1, *small)
        commands["compare"] = ("compare", folder / "music", *search, "--out", "out", "-q")
    return {name: partial(Case, folder, name, words) for name, words in commands.items()}


class Case:
    """A command line, and what it leaves where nothing disturbs it."""

    def __init__(self, folder, name, arguments):
        self.folder, self.name, self.arguments, self.number = folder, name, arguments, 0
        self.kind = arguments[0]
        for run, made_by in RUNS.items():
            if folder / run in arguments and not (folder / run).exists():
                here(*training(folder, made_by, folder / run))
        if self.kind != "compare":  # whose server of processes forks could not share
            here(*arguments, place=self._new())  # so that kills hit the work, not a compiler
        place, command = self._new(), seqmodel(*arguments)
        files, self.old = contents(place), self._left(place)
        outcome = fork(failing(command, place, -1, 0) if armed() else command, place)
        assert outcome.status == 0, outcome.err
        self.seconds, self.calls, self.new = outcome.seconds, calls_made(place), self._left(place)
        made = len(contents(place)) - len(files)
        if armed() and self.kind != "compare":
            assert self.calls >= 2 * made, f"{name}: {made} files by {self.calls} calls"

    def _new(self):
        """A new place, with something to be replaced if the command may."""
        self.number += 1
        place = self.folder / f"{self.name} {self.number}"
        place.mkdir()
        if "--force" in self.arguments and self.kind == "prepare":
            shutil.copytree(self.folder / "struck", place / "out")
        elif "--force" in self.arguments:
            target = next(str(word) for word in self.arguments if str(word).startswith("out"))
            (place / target).write_bytes(b"old")
        return place

    def _left(self, place):
        """What has to be the same: all files or, of a training or a comparison, all but times."""
        if self.kind == "train":
            return left(place / "out")
        table = place / "out" / "table.json"
        if self.kind == "compare":
            return {"table": table.read_bytes() if table.exists() else b""}
        return dict(contents(place))

    def _again(self, place):
        """The command line that goes on, or makes the same again."""
        if self.kind == "train":
            return going_on(place / "out", self.arguments)
        forced = self.kind == "compare" or "--force" in self.arguments
        return self.arguments if forced else (*self.arguments, "--force")

    def kill(self, found, draw):
        """Kill it, a training up to three times, then let it end."""
        place, arguments = self._new(), self.arguments
        for _ in range(3 if self.kind == "train" else 1):
            if not self._killed(arguments, place, draw):
                found.ended += 1
                break
            found.disturbed += 1
            found.complaints += [f"{self.name}: {wrong}" for wrong in self._wrong(place)]
            arguments = self._again(place)
            left = any(TEMPORARY.fullmatch(path.name) for path in place.iterdir())
            found.mid_work += left or "--resume" in arguments
        outcome = fork(seqmodel(*self._again(place)), place)
        left = [path for path in place.glob(".out.seqmodel-*") if self.kind == "prepare"]
        if outcome.status != 0 or left or _visible(self._left(place)) != self.new:
            found.complaints.append(
                f"{self.name}: goes on to something else after a kill {left}: {outcome.err}"
            )

    def _killed(self, arguments, place, draw):
        command = seqmodel(*arguments)
        if self.calls and self.kind != "compare" and draw.random() < 0.5:
            outcome = fork(failing(command, place, draw.randrange(self.calls), KILLS), place)
            calls_made(place)
        else:
            outcome = fork(command, place, kill_after=draw.uniform(0, self.seconds))
        return outcome.status > 128

    def _wrong(self, place):
        """What is half-written after a kill."""
        if self.kind not in ("train", "compare"):
            there = self._left(place)
            if _visible(there) not in (self.old, self.new) and not self._moved_away(there):
                yield f"neither old nor new but {sorted(there)}"
            return
        for path in (path for path in place.rglob("*") if not path.name.startswith(".")):
            try:
                if path.suffix == ".safetensors":
                    load_checkpoint(path)
                elif path.suffix == ".jsonl":
                    [json.loads(line) for line in path.read_text().splitlines()]
                elif path.suffix == ".png":
                    assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
            except Exception as error:
                yield f"{path.name} is not whole: {error}"

    def _moved_away(self, left):
        """Whether the old folder is whole under another name: Windows replaces it in two steps.

        A kill between the two, or a disk that fails for good, leaves it so.
        """
        if "without_posix" not in sys.modules or _visible(left):
            return False
        hidden: dict[str, dict[str, object]] = {}
        for name, data in left.items():
            folder, _, rest = name.partition("/")
            hidden.setdefault(folder, {})[f"out/{rest}"] = data
        return self.old in hidden.values()

    def fail(self, at, error, stays, found):
        """Make a call fail with an error, and all after it if it `stays`; then let it go on."""
        place, train = self._new(), self.kind == "train"
        command = seqmodel(*self.arguments)
        outcome = fork(failing(command, place, at, error, stays=stays), place)
        found.disturbed += calls_made(place) > at
        err, wrong = outcome.err, []
        if not outcome.clean:
            wrong.append(f"{err.strip().splitlines()[-1:]}")
        if ".seqmodel-" in err:
            wrong.append(f"names a temporary file: {err}")
        full = error != errno.EIO and outcome.status != 0 and "write out:" not in err
        if train and full and (place / "out").exists() and "--resume" not in err:
            wrong.append(f"does not say how to go on: {err}")
        left = self._left(place)
        if outcome.status == 0 and left != self.new:
            wrong.append("status 0, and what is there is not whole")
        whole = left in (self.old, self.new) or self._moved_away(left)
        if not train and outcome.status != 0 and not whole:
            wrong.append(f"left {sorted(left)}")
        if train:
            outcome = fork(seqmodel(*self._again(place)), place)
            if outcome.status != 0 or self._left(place) != self.new:
                wrong.append(f"does not go on to the same: {outcome.err.strip()}")
        what = f"{self.name}, call {at} of {self.calls} with {errno.errorcode[error]}"
        what += " and all after it" * stays
        found.complaints += [f"{what}: {each}" for each in wrong]
        shutil.rmtree(place)


def contents(place):
    """The bytes of every file below `place`, by relative path, to compare places."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def _visible(left):
    """Without what a kill may leave: temporary files."""
    return {name: data for name, data in left.items() if not name.startswith(".")}
