"""Mistakes in `eval` and `sample`, which take runs."""

from mistakes.said import DAMAGED, EXISTS, HELP, NO_MIDI, NO_ROLL, NO_ZIP

NO_END = (
    "{{run}} was trained without --end, so its pieces always last until the limit: leave out {}"
)
EVAL = {
    "eval {bad}/nope": (1, "there is no run {bad}/nope"),
    "eval {run}/best.safetensors": (1, f"{{run}}/best.safetensors {NO_ZIP}"),
    "eval {data}": (1, "{data} is a dataset: name a run that was trained on it"),
    "eval {bad}/no-best": (
        1,
        "{bad}/no-best has no best checkpoint yet: its first epoch is unfinished; continue with "
        "`seqmodel train --resume --run {bad}/no-best`",
    ),
    "eval {bad}/cut": (1, f"{{bad}}/cut/best.safetensors {DAMAGED}"),
    "eval {bad}/changed": (1, f"{{bad}}/changed/best.safetensors {DAMAGED}"),
    "eval {run} --split dev": (2, "--split must be train, valid or test, not 'dev'"),
    "eval {run} --data {bad}/nope": (1, "{bad}/nope: no such file or folder"),
    "eval {run} --data {music} --split test": (
        2,
        "--split and --data {music}, which is no dataset, exclude each other",
    ),
    "eval {run} --data {music} --samples 3": (
        2,
        "--samples and --data {music}, which is no dataset, exclude each other",
    ),
    "eval {run} --per-piece --samples 3": (2, "--samples and --per-piece exclude each other"),
    "eval {run} --per-piece --per-frame": (2, "--per-piece and --per-frame exclude each other"),
    "eval {run} --plot x.png": (
        2,
        "--plot draws one piece: name a file that holds one with --data FILE",
    ),
    "eval {run} --plot x.pdf": (2, "--plot draws PNG only: x.pdf must end in .png"),
    "eval {run} --data {bad}/one-data": (
        1,
        "{bad}/one-data has no pieces in split 'valid' (available: train)",
    ),
    "eval {run} --samples 0": (
        2,
        f"--samples must be at least 1 {HELP.format('eval')}",
    ),
    "eval {run} --batch-size 0": (
        2,
        f"--batch-size must be at least 1 {HELP.format('eval')}",
    ),
}
SUFFIX = "must be one of mid, wav, flac, ogg, mp3, npy, png, raw"
SAMPLE = {
    "sample a.ogg --format mid": (
        2,
        "--format mid contradicts the suffix of a.ogg: leave one out",
    ),
    "sample": (2, f"Missing argument 'OUT' {HELP.format('sample')}"),
    "sample o --run {run}": (2, f"the suffix of o {SUFFIX}"),
    "sample o.aac --run {run}": (2, f"the suffix of o.aac {SUFFIX}"),
    "sample - --run {run}": (2, f"--format {SUFFIX}"),
    "sample o.mid --format aac --run {run}": (2, f"--format {SUFFIX}"),
    "sample - --format mid -n 3 --run {run}": (2, "-n above 1 needs a file name, not stdout"),
    "sample o.mid --length 3 --seconds 3 --run {run}": (
        2,
        "--length and --seconds exclude each other",
    ),
    "sample o.mid --length 1000001 --run {run}": (
        2,
        "--length asks for more than the 1,000,000 frames a piece may have",
    ),
    "sample o.mid --seconds inf --run {run}": (
        2,
        "--seconds asks for more than the 1,000,000 frames a piece may have",
    ),
    "sample o.mid --include-prime --run {run}": (2, "--include-prime needs --prime FILE"),
    "sample o.mid --prime {bad}/nope --run {run}": (
        1,
        "--prime {bad}/nope: no such file or directory",
    ),
    "sample o.mid --prime {bad}/empty --run {run}": (1, "--prime {bad}/empty: is a directory"),
    "sample o.mid --prime {bad}/text.mid --run {run}": (1, f"--prime {{bad}}/text.mid: {NO_MIDI}"),
    "sample new/o.mid --run {run}": (1, "new/o.mid: there is no folder new; make it first"),
    "sample o.mid --prime-frames 8 --run {run}": (2, "--prime-frames needs --prime FILE"),
    "sample o.mid --prime x --prime-frames 8 --prime-seconds 1 --run {run}": (
        2,
        "--prime-frames and --prime-seconds exclude each other",
    ),
    "sample o.mid --no-end --min-length 9 --run {run}": (
        2,
        "--min-length and --no-end exclude each other",
    ),
    "sample o.mid --no-end --run {run}": (2, NO_END.format("--no-end")),
    "sample o.mid --min-length 9 --run {run}": (2, NO_END.format("--min-length")),
    "sample - --format mid --json --run {run}": (2, "--json and OUT - exclude each other"),
    "report {run} --out new/r.html": (1, "new/r.html: there is no folder new; make it first"),
    "sample o.mid --prime {bad}/nope.npy --run {run}": (
        1,
        "--prime {bad}/nope.npy: no such file or directory",
    ),
    "sample o.mid --prime {bad}/text.npy --run {run}": (
        1,
        "--prime {bad}/text.npy: holds a damaged array in the array",
    ),
    "sample o.mid --prime {bad}/one-data/train.npy --run {run}": (
        1,
        f"--prime {{bad}}/one-data/train.npy: {NO_ROLL}",
    ),
    "sample {bad}/file --format mid --run {run}": (1, f"{{bad}}/file {EXISTS}"),
    "sample {bad}/file/o.mid --run {run}": (
        1,
        "cannot write {bad}/file/o.mid: {bad}/file is a file, not a folder",
    ),
    "sample {bad}/other --format mid --force --run {run}": (
        1,
        "cannot write {bad}/other: is a directory",
    ),
    "sample /dev/full --format mid --force --run {run}": (
        1,
        "/dev/full is a device or a pipe, which would be replaced; name a file",
    ),
    "sample o.mid --tempo 3 --run {run}": (
        2,
        f"--tempo must be at least 4 {HELP.format('sample')}",
    ),
    "sample o.mid --run {bad}/no-checkpoint": (
        1,
        "{bad}/no-checkpoint has no checkpoint (best.safetensors); train one with `seqmodel train`",
    ),
    "sample o.mid --run {bad}/file": (1, f"{{bad}}/file {NO_ZIP}"),
    "sample o.mid --run {bad}/changed": (1, f"{{bad}}/changed/best.safetensors {DAMAGED}"),
}
