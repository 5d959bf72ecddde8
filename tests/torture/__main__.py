"""`make torture`: everything that should not break seqmodel, tried again and again."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("MPLBACKEND", "agg")
_KERNELS = Path(tempfile.gettempdir(), f"seqmodel-torture-{os.getuid()}")
os.environ.setdefault("SEQMODEL_CACHE", str(_KERNELS))  # the user's own stays untouched
sys.path[:0] = map(str, Path(__file__).parents[:2])  # what is used from tests/, too

KINDS = {
    "kills": ("disturbed", "kill_all"),
    "faults": ("disturbed", "fail_all"),
    "mutants": ("mutants", "mutate_all"),
    "ranks": ("ranks", "hurt_all"),
}
"""Of each kind the module and its function of a folder, a seed and whether the session is short,
which returns what was tried, in words, and what broke."""


def _with_library():
    """Restart with the library of `calls` preloaded, if it can be compiled."""
    from calls import LIBRARY, armed, compiled

    if not armed() and LIBRARY not in os.environ and (library := compiled()):
        environment = {**os.environ, "LD_PRELOAD": str(library), LIBRARY: str(library)}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    if library := os.environ.pop(LIBRARY, None):  # it is loaded: nobody else needs the file
        del os.environ["LD_PRELOAD"]
        shutil.rmtree(Path(library).parent)


def main():
    """Try the requested kinds, print a line for each, and return the exit status."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all if none")
    parser.add_argument("--short", action="store_true", help="a few of each, as in make test")
    parser.add_argument("--without-posix", action="store_true", help="of seqmodel as on Windows")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    kinds = given.kinds or [*KINDS]
    if {"kills", "faults"} & {*kinds}:
        _with_library()
    if given.without_posix:
        import_module("without_posix")
    print(f"seed {given.seed}", flush=True)
    well = True
    for kind in kinds:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            os.chdir(folder)
            module, function = KINDS[kind]
            try_all = getattr(import_module(module), function)
            said, broken = try_all(Path(folder), given.seed, short=given.short)
            os.chdir("/")
        well &= not broken
        # A row of README.md's table.
        print(
            f"| {kind} | {said} | {len(broken)} | {time.monotonic() - began:,.0f} s |", flush=True
        )
        for complaint in broken:
            print(f"BROKEN {kind}: {complaint}", flush=True)
    return not well


if __name__ == "__main__":
    sys.exit(main())
