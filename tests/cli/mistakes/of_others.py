"""Mistakes in `inspect`, `units` and `bench`."""

from mistakes.said import BOTH, DAMAGED, EXISTS, HELP, NEITHER, NO_MIDI, NO_ROLL, UNITS

INSPECT = {
    "inspect": (2, f"Missing argument 'PATH' {HELP.format('inspect')}"),
    "inspect {bad}/nope": (1, "{bad}/nope: no such file or folder"),
    "inspect {bad}/file": (
        1,
        f"{{bad}}/file {NEITHER}",
    ),
    "inspect {bad}/empty": (
        1,
        f"{{bad}}/empty {NEITHER}",
    ),
    "inspect {bad}/text.mid": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "inspect {bad}/text.mid --plot new/p.png": (
        1,
        "new/p.png: there is no folder new; make it first",
    ),
    "inspect {bad}/text.npy": (1, "{bad}/text.npy: holds a damaged array in the array"),
    "inspect {bad}/one-data/train.npy": (1, f"{{bad}}/one-data/train.npy: {NO_ROLL}"),
    "inspect {bad}/cut-data": (
        1,
        "{bad}/cut-data is damaged: train cannot be read; run `seqmodel prepare` again",
    ),
    "inspect {bad}/changed-data": (
        1,
        "{bad}/changed-data is damaged: {music}/valid/2.mid in valid no longer matches its hash; "
        "run `seqmodel prepare` again",
    ),
    "inspect {bad}/changed": (1, f"{{bad}}/changed/best.safetensors {DAMAGED}"),
    "inspect {bad}/bad-metrics": (
        1,
        "{bad}/bad-metrics/metrics.jsonl is damaged: line 1: epoch is missing; delete it, and "
        "`seqmodel train --resume --run {bad}/bad-metrics` writes it again",
    ),
    "inspect {run} --plot p.jpg": (2, "--plot draws PNG only: p.jpg must end in .png"),
    "inspect {run} --plot {run}/learning-curve.png": (1, f"{{run}}/learning-curve.png {EXISTS}"),
    "inspect {run} --plot {bad}/file/p.png": (
        1,
        "cannot write {bad}/file/p.png: {bad}/file is a file, not a folder",
    ),
}
UNITS_COMMAND = {
    "units gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "units --hidden 3 --params 9": (2, BOTH),
    "units --params 1": (
        2,
        "--params 1 is too small for tanh: one unit over 88 inputs already has 90",
    ),
    "units --params": (2, "Option '--params' requires an argument (see seqmodel units --help)"),
    "nope": (2, "No such command 'nope' (see seqmodel --help)"),
    "--nope": (2, "No such option: --nope (see seqmodel --help)"),
}
BENCH = {
    "bench gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "bench --part fun": (
        2,
        "there is no part 'fun'; choose one of units, models, sampling, sound, processes",
    ),
}
