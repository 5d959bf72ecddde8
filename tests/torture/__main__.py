"""`make torture`: everything that should not break seqmodel, tried again and again."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("MPLBACKEND", "agg")
_KERNELS = Path(tempfile.gettempdir(), f"seqmodel-torture-{os.getuid()}")
os.environ.setdefault("SEQMODEL_CACHE", str(_KERNELS))  # the user's own stays untouched
sys.path.insert(0, str(Path(__file__).parent))

KINDS = ("kills", "faults", "mutants", "flips", "ranks")


def _kills(folder: Path, seed: int, *, short: bool) -> tuple[str, list[str]]:
    from kills import kill_all

    found = kill_all(folder, 4 if short else 240, seed, slow=not short)
    said = (
        f"{found.killed} commands killed, {found.mid_work} mid-work, {found.ended} already finished"
    )
    return said, found.complaints


def _faults(folder: Path, seed: int, *, short: bool) -> tuple[str, list[str]]:
    from calls import armed
    from faults import fail_all

    if not armed():
        return "not tried, for want of a C compiler", []
    found = fail_all(folder, seed, each=2 if short else None)
    return f"{found.injected:,} writing calls made to fail, of {found.places:,}", found.complaints


def _mutants(folder: Path, seed: int, *, short: bool) -> tuple[str, list[str]]:
    from mutants import mutate_all

    found = mutate_all(folder, seed, 200 if short else 100_000)
    worst = f"at most {found.seconds:.2f} s ({found.slowest}) and {found.megabytes:.0f} MB"
    said = f"{found.tried:,} inputs read, {found.kept:,} of them on new paths, {worst}"
    return said, found.complaints


def _flips(folder: Path, seed: int, *, short: bool) -> tuple[str, list[str]]:
    from flips import flip_all

    found = flip_all(folder, seed, 40 if short else None)
    unnoticed = f"{found.hidden:,} hidden in text, {found.harmless} that change no value"
    said = f"{found.flipped:,} bytes flipped, {found.noticed:,} noticed, {unnoticed}"
    return said, found.complaints


def _ranks(folder: Path, seed: int, *, short: bool) -> tuple[str, list[str]]:
    from ranks import hurt_all

    found = hurt_all(folder, 2 if short else 50, seed)
    said = (
        f"{found.killed} processes of a training killed, {found.frozen} frozen, "
        f"{found.delayed} delayed, {found.mid_work} trainings resumed"
    )
    return said, found.complaints


def _with_library() -> None:
    """Restart with the library of `calls` preloaded, if it can be compiled."""
    from calls import LIBRARY, armed, compiled

    if not armed() and LIBRARY not in os.environ and (library := compiled()):
        environment = {**os.environ, "LD_PRELOAD": str(library), LIBRARY: str(library)}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> int:
    """Try the requested kinds, print a line for each, and return the exit status."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all if none")
    parser.add_argument("--short", action="store_true", help="a few of each, as in make test")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    kinds = given.kinds or KINDS
    if {"kills", "faults"} & {*kinds}:
        _with_library()
    print(f"seed {given.seed}", flush=True)
    well = True
    for kind in kinds:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            os.chdir(folder)
            tried = globals()[f"_{kind}"](Path(folder), given.seed, short=given.short)
            os.chdir("/")
        said, broken = tried
        well &= not broken
        # A row of README.md's table.
        print(
            f"| {kind} | {said} | {len(broken)} | {time.monotonic() - began:,.0f} s |", flush=True
        )
        for complaint in broken:
            print(f"BROKEN {kind}: {complaint}", flush=True)
    if library := os.environ.get("TORTURE_LIBRARY"):
        shutil.rmtree(Path(library).parent)
    return not well


if __name__ == "__main__":
    sys.exit(main())
