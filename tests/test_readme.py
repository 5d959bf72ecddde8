"""README and guides are accurate: their commands run as written and print what they show.

Unless SEQMODEL_WHOLE_GUIDES is set, the README's training stops after its first epoch, whose
figures are compared; then one epoch on a few pieces replaces it and all other trainings, and files
are filled with few particles. After that, only the words are compared, not the figures.
"""

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from calling import call_main

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
GUIDES = (README, *sorted((ROOT / "docs").glob("*.md")))
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sessions(guide):
    """Every command of a guide's console blocks, in order, with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in CONSOLE.findall(guide.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# What depends on the machine, its number of threads or its load: speeds, the best epoch and its
# star, the names of drawn notes, what ended a drawn piece or is odd in it, which model is ahead.
VARIES = re.compile(
    r"[\d,]+ frames/s|epoch +\d+(?= of|\))|\b[A-G][#b]?\d?(?![\w(.])|\*"
    r"|ended (by the model|where [\w' ]+)|cut off at the limit"
    r"|; a chord lasts .*|^\S+(?= is [\d.]+ nats ahead)|(?<=ahead of )\w+"
)
# Progress, reported every few seconds of long work.
PROGRESS = re.compile(r"[\w /]+  (\d+%|\d+:\d\d so far).*")
# Preparing and counting parameters is exact anywhere.
EXACT = ("seqmodel prepare", "seqmodel units")
SHELL = re.compile(r"[|<>*]|^(?!seqmodel )")
"""What takes a shell, or several processes; those of seqmodel are calls all the same."""
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
FIRST_EPOCH = re.compile(r"epoch +1/\d+  train")
FEW = "rm -rf few {0}; cp -r sample_data/{0} few; find few -name '0[1-9]*' -o -name '00[3-9]*'"
"""Lists the files of a bundled dataset that its small copy, of two to a split, can do without."""


def words(line):
    """A line without its numbers and what may differ between machines."""
    return " ".join(NUMBER.sub("#", VARIES.sub(" ", line)).split())


def numbers(line):
    """The numbers of a line that should be the same, or nearly, on any machine."""
    return [float(text.replace(",", "")) for text in NUMBER.findall(VARIES.sub(" ", line))]


def is_drawn(command):
    """Whether a command draws a piece, or shows one."""
    return re.search(r"seqmodel sample|inspect (out|bars)\.", command) is not None


def is_exact(command):
    """Whether a command prints the same anywhere."""
    return any(name in command for name in EXACT)


def near(shown, printed, command, *, figures=True):
    """Whether the README's line is what the command prints here.

    Training rounds differently on another processor or number of threads, and small differences
    grow: its figures, with their four decimals, may differ by 6 %. What is sampled from such a
    model may be another piece altogether. Without `figures` those of models do not count, but the
    size of a page, which is that of the default model, does.
    """
    if words(shown) != words(printed):
        return False
    if is_drawn(command) or not (figures or is_exact(command) or " export " in command):
        return True
    trained = re.search(r"\d\.\d{4}", shown) is not None
    for ours, theirs in zip(numbers(shown), numbers(printed), strict=True):
        exact = is_exact(command) or (trained and ours.is_integer())
        tolerance = 0.0 if exact else 0.06
        if shown.startswith("end, nats per piece"):  # twenty pieces, and only their ends
            tolerance = 0.5
        # The difference of two figures, each of which may differ.
        least = 0.1 if "nats ahead of" in shown else 0.0
        if abs(ours - theirs) > max(least, tolerance * max(abs(ours), abs(theirs))):
            return False
    return True


def first_difference(shown, printed, command, *, figures=True):
    """The first line that is shown but not printed, or the reverse; None if all is well.

    "..." stands for any lines. Progress does not count; other lines may come before the first, and
    hints on what was drawn after the last. Commands without lines may print anything.
    """
    printed = [line for line in printed if not PROGRESS.fullmatch(line)]
    same = partial(near, command=command, figures=figures)
    rest, skips = printed, True
    for line in shown:
        if line.strip() == "...":
            skips = True
            continue
        reach = len(rest) if skips else 1
        found = next((k for k in range(reach) if same(line, "".join(rest[k : k + 1]))), -1)
        if found < 0:
            return line
        rest, skips = rest[found + 1 :], False
    return rest[0] if rest and not skips and not is_drawn(command) else None


class Log(io.StringIO):
    """Keeps what is printed; Ctrl-C is pressed once there is a line of the first epoch."""

    def write(self, text):
        if FIRST_EPOCH.match(text):
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def printed_by(command, log=None):
    """The exit status of a command, which runs in this process if it can, and its lines."""
    if SHELL.search(command):
        data = b""
        for stage in command.split(" | "):
            if stage.startswith("seqmodel "):
                result = call_main(*shlex.split(stage)[1:], stdin=data.decode())
                status, data = result.status, result.raw or result.err.encode()
            else:
                done = subprocess.run(
                    ["bash", "-c", stage],
                    env={**os.environ, "PATH": PATH},
                    input=data,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                status, data = done.returncode, done.stdout
            if status:
                break
        return status, data.decode(errors="replace").splitlines()
    log = log or io.StringIO()
    status = call_main(*shlex.split(command)[1:], stdout=log, stderr=log).status
    return status, log.getvalue().splitlines()


def make_small(data):
    """Prepare a few pieces of a bundled dataset anew, in its place."""
    for line in (f"{FEW.format(data)} | xargs rm", f"seqmodel prepare few --out {data}"):
        status, printed = printed_by(line)
        assert status == 0, printed


def shortened(command, shown, guide):
    """As `printed_by`, of a command that trains, in less time."""
    data = command.split()[2]
    if guide != README or command.startswith("seqmodel compare"):
        make_small(data)
        compares = command.startswith("seqmodel compare")
        little = "--set epochs=1 --jobs 1 --params 2000" if compares else "--epochs 1 --hidden 8"
        return printed_by(f"{command} {little}")
    status, printed = printed_by(command, Log())
    assert status == 128 + signal.SIGINT, printed
    first = next(k for k, line in enumerate(shown) if FIRST_EPOCH.match(line)) + 1
    wrong = first_difference([*shown[:first], "..."], printed, command)
    assert wrong is None, f"{command}: {wrong!r}\n{printed}"
    title = next(line for line in printed if not PROGRESS.fullmatch(line))
    Path(title.partition(":")[0]).rename("begun")
    make_small(data)
    status, rest = printed_by(f"{command} --epochs 1 --init-from begun --lr 0.0001")
    return status, printed + rest


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_of_a_guide_print_what_it_shows(guide, tmp_path, monkeypatch):
    """Guards against a tour that has gone stale: an option renamed, a line of output reworded.

    And against figures that no longer hold.
    """
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    assert sessions(guide)
    figures, whole = True, "SEQMODEL_WHOLE_GUIDES" in os.environ
    for command, shown in sessions(guide):
        if not whole and command.startswith(("seqmodel train", "seqmodel compare")):
            figures = False
            status, printed = shortened(command, shown, guide)
        else:
            few = " --particles 8 --sweeps 0" if " --fill " in command and not whole else ""
            status, printed = printed_by(command + few)
        assert status == 0, f"{command}\n{printed}"
        wrong = first_difference(shown, printed, command, figures=figures)
        assert wrong is None, f"{command}: {wrong!r}\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("nats per frame  2.3391", "nats per frame  2.3512", True),
        ("nats per frame  2.3391", "nats per frame  2.5391", False),
        (
            "epoch 39/40  train 2.0679  1,007 frames/s",
            "epoch 39/40  train 2.0681  7 frames/s",
            True,
        ),
        ("epoch 39/40  train 2.0679  1 frames/s", "epoch 38/40  train 2.0679  1 frames/s", False),
        ("accuracy 0.7890", "precision 0.7890", False),
    ],
)
def test_stale_figures_are_noticed(shown, printed, same):
    """Guards the comparison itself: it once masked every digit."""
    assert near(shown, printed, "seqmodel eval") == same


@pytest.mark.parametrize(
    ("shown", "printed", "wrong"),
    [
        (["a", "b"], ["progress", "a", "b"], None),
        (["a", "b"], ["a", "new", "b"], "b"),
        (["a", "...", "b"], ["a", "new", "b"], None),
        (["a"], ["a", "new"], "new"),
        (["a", "..."], ["a", "new"], None),
        (["a", "b"], ["a"], "b"),
        ([], ["new"], None),
    ],
)
def test_new_and_missing_lines_are_noticed(shown, printed, wrong):
    """Guards the comparison itself: it once passed over lines that were printed anywhere."""
    assert first_difference(shown, printed, "seqmodel eval") == wrong


def test_every_command_is_in_the_tour():
    """Guards against a command that newcomers never meet."""
    met = {line.split()[1] for line, _ in sessions(README)}
    assert met >= {"prepare", "train", "eval", "sample", "report", "compare", "inspect"}


TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "seqmodel").rglob("*.md")),
    *sorted((ROOT / "sample_data").glob("*.md")),
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_links_lead_somewhere(text):
    """Guards against a broken picture, clip, page or section."""
    prose = "".join(text.read_text().split("\n```")[::2])  # code has brackets of its own
    for path, section in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", prose):
        if not path.startswith("http"):
            file = text.parent / path if path else text
            assert file.exists(), path
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if section else []
            named = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
            assert not section or section in named, section


def test_the_front_page_stays_short():
    assert len(README.read_text().split()) <= 1500
