"""A training step of our gru and lstm beside oneDNN's, which compute the same, in turns.

    OMP_NUM_THREADS=1 python tests/bench/onednn.py [SECONDS OF A ROW]

It needs g++ and `pip install onednn-cpu-gomp onednn-devel-cpu-gomp`. Not a test: speed is not one.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from seqmodel import units
from seqmodel.bench.measure import unit_step

ROWS = [
    ("lstm", 88, 36, 16, 200), ("gru", 88, 46, 16, 200), ("gru", 88, 100, 16, 200),
    ("lstm", 20, 195, 32, 500), ("gru", 20, 195, 32, 500),
    ("lstm", 88, 512, 32, 200), ("gru", 88, 512, 32, 200),
    ("lstm", 88, 36, 1, 200), ("gru", 88, 46, 1, 200),
]  # fmt: skip
"""Kind, I, H, B, T."""
TURNS = 6


def build(folder: str) -> str:
    """Compile the program beside this file, with oneDNN from this environment."""
    program, there = f"{folder}/onednn", sys.prefix
    source = str(Path(__file__).with_suffix(".cpp"))
    where = [f"-I{there}/include", f"-L{there}/lib", f"-Wl,-rpath,{there}/lib"]
    command = ["g++", "-O2", "-std=c++17", source, *where, "-ldnnl", "-o", program]
    subprocess.run(command, check=True)
    return program


def our_turn(row: tuple[str, int, int, int, int], seconds: float) -> list[float]:
    """Milliseconds of each step, after three untimed ones."""
    kind, inputs, hidden, batch, frames = row
    x = torch.randn(frames, batch, inputs, requires_grad=True)
    d_h = torch.randn(frames, batch, hidden)
    layer, taken = units.make(kind, inputs, hidden), list[float]()
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(taken) < 4:
        unit_step(layer, x, d_h)
        taken.append(1e3 * (time.perf_counter() - began))
    return taken[3:]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        print(f"{torch.get_num_threads()} threads; ms of a step, median (minimum)")
        print(f"{'unit':6}{'I':>5}{'H':>5}{'B':>5}{'T':>5}{'ours':>20}{'oneDNN':>20}{'ratio':>20}")
        for row in ROWS:
            ours, theirs = list[float](), list[float]()
            for _ in range(TURNS):
                ours += our_turn(row, seconds / TURNS / 2)
                command = [program, *map(str, row), str(seconds / TURNS / 2)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                theirs += map(float, out.split())
            cells = [(statistics.median(taken), min(taken)) for taken in (ours, theirs)]
            cells.append((cells[1][0] / cells[0][0], cells[1][1] / cells[0][1]))
            sizes = "".join(f"{size:>5}" for size in row[1:])
            shown = "".join(f"{f'{median:.2f} ({least:.2f})':>20}" for median, least in cells)
            print(f"{row[0]:6}{sizes}{shown}", flush=True)


if __name__ == "__main__":
    main()
