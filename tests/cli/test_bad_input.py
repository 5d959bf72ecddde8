"""Each mistake of a user: one line on stderr, the right status, and nothing left behind."""

import json
import os
import re
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from calling import Call, call_ok, write_piece

from seqmodel.errors import SeqmodelError
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.training import loop

KINDS = (
    "MIDI files (.mid .midi .kar .rmi), published rolls (.mat .pickle .npz .npy), "
    "audio (.wav .flac .mp3 ...)"
)
UNITS = "tanh, lstm, gru, gru1, gru2, gru3, mgu, lstm-nopeephole, gru-reset-after"
HELP = "(see seqmodel {} --help)"
NO_RUN = "no run in runs/; train one with `seqmodel train`, or name its folder"
BOTH = "--hidden and --params exclude each other: give the size or the budget"
DAMAGED = "is damaged (cut short or changed); use another checkpoint or train again"
EXISTS = "exists already; add --force to replace it"
NOTHING_ELSE = "and --force replaces nothing else; name another place"
NO_DATASET = "is not a prepared dataset (no manifest.json); make one with `seqmodel prepare SOURCE"
NEITHER = "is neither a media file that can be inspected nor a prepared dataset nor a run folder"
NO_ROLL = "holds an array of shape (32, 11) in the array, not (T, 88)"
NO_MIDI = "is not a MIDI file (it does not begin with MThd)"


def midi(events: Iterable[bytes], division: int = 480) -> bytes:
    track = b"".join(events) + b"\0\xff\x2f\0"
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, division)
    return head + b"MTrk" + struct.pack(">I", len(track)) + track


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, music: Path, data: Path, run: Path) -> Path:
    """A folder of everything that can be wrong with files."""
    bad = tmp_path_factory.mktemp("bad")
    note_on = b"\0\x90\x3c\x40"
    good = (music / "train" / "0.mid").read_bytes()
    files = {
        "text.mid": b"hello\n",
        "song.m4a": b"\0\0\0\x20ftypM4A ",
        "nothing.mid": b"",
        "header.mid": good[:12],
        "division-0.mid": midi([note_on, b"\x60\x80\x3c\0"], division=0),
        "tick-2-31.mid": midi([note_on, b"\x88\x80\x80\x80\0\x80\x3c\0"]),
        "long.mid": midi([note_on, b"\xff\xff\xff\x7f\x80\x3c\0"], division=1),
        "drums.mid": midi([b"\0\x99\x3c\x40", b"\x60\x89\x3c\0"]),
        "line\nbreak \x1b[31m.mid": b"hello\n",
        "text.mat": b"hello\n",
        "text.pickle": b"hello\n",
        "text.npz": b"hello\n",
        "text.npy": b"hello\n",
        "not.yaml": b"unit: [",
        "list.yaml": b"- lstm",
        "typo.yaml": b"hiden: 3",
        "type.yaml": b"hidden: many",
        "unit.yaml": b"unit: gnu",
        "note-unit.yaml": b"hidden: 4\nnote_unit: gnu\nmodel: tied\n",
        "activation.yaml": b"activation: step\nhidden: 4\n",
        "logistic.yaml": b"output: logistic\nunit: gnu\n",
        "lost.yaml": b"unit: gru\ndata: /nowhere\n",
        "good.yaml": b"hidden: 4\n",
        "file": b"hello\n",
        "other/file": b"hello\n",
        "others-manifest/manifest.json": b'{"name": "an extension", "version": 1}',
        "others-manifest/train.npy": b"years of measuring",
        "others-config/config.yaml": b"unit: gru\n",
    }
    for name, content in files.items():
        (bad / name).parent.mkdir(exist_ok=True)
        (bad / name).write_bytes(content)
    (bad / "empty").mkdir()
    (bad / "gone.mid").symlink_to("/nowhere")
    write_piece(bad / "one" / "train" / "0.mid", seed=0)
    call_ok("prepare", bad / "one", "--out", bad / "one-data")
    _break_data(bad, data)
    _break_runs(bad, run)
    return bad


def _break_data(bad: Path, data: Path) -> None:
    names = ("cut-data", "no-index", "no-manifest", "future", "text-manifest", "changed-data")
    for name in (*names, "thesis-data"):
        shutil.copytree(data, bad / name)
    (bad / "thesis-data" / "thesis.tex").write_text("years of work")
    os.truncate(bad / "cut-data" / "train.npy", 200)
    with (bad / "changed-data" / "valid.npy").open("r+b") as shard:
        shard.seek(-1, os.SEEK_END)
        shard.write(b"\7")
    (bad / "no-index" / "valid.jsonl").unlink()
    (bad / "no-manifest" / "manifest.json").unlink()
    manifest = json.loads((data / "manifest.json").read_text())
    (bad / "future" / "manifest.json").write_text(json.dumps({**manifest, "version": 9}))
    (bad / "text-manifest" / "manifest.json").write_text("{")


def _break_runs(bad: Path, run: Path) -> None:
    names = (
        "cut",
        "changed",
        "no-best",
        "no-checkpoint",
        "cut-last",
        "bad-metrics",
        "edited",
        "gnu",
    )
    for name in (*names, "thesis-run"):
        shutil.copytree(run, bad / name)
    (bad / "thesis-run" / "notes").mkdir()
    (bad / "thesis-run" / "notes" / "thesis.tex").write_text("years of work")
    config = bad / "edited" / "config.yaml"
    config.write_text(config.read_text().replace("hidden: 4", "hidden: 5"))
    config = bad / "gnu" / "config.yaml"
    config.write_text(config.read_text().replace("unit: lstm", "unit: gnu"))
    os.truncate(bad / "cut" / "best.safetensors", 1000)
    content = bytearray((run / "best.safetensors").read_bytes())
    content[-50] ^= 1
    (bad / "changed" / "best.safetensors").write_bytes(content)
    for name in ("no-best", "no-checkpoint"):
        (bad / name / "best.safetensors").unlink()
    (bad / "no-checkpoint" / "last.safetensors").unlink()
    os.truncate(bad / "cut-last" / "last.safetensors", 1000)
    (bad / "bad-metrics" / "metrics.jsonl").write_text("{}\n")


# Command -> status and line, the leading "seqmodel: " left out.
PREPARE = {
    "prepare": (2, f"Missing argument 'SOURCE' {HELP.format('prepare')}"),
    "prepare {music}": (2, f"Missing option '--out' / '-o' {HELP.format('prepare')}"),
    "prepare {bad}/empty -o d": (1, f"{{bad}}/empty: contains no file that can be read ({KINDS})"),
    "prepare {bad}/other -o d": (1, f"{{bad}}/other: contains no file that can be read ({KINDS})"),
    "prepare {bad}/nope.mid -o d": (1, "{bad}/nope.mid: no such file or folder"),
    "prepare {bad}/nope* -o d": (1, "{bad}/nope*: no such file or folder"),
    "prepare {bad}/gone.mid -o d": (1, "{bad}/gone.mid: no such file or directory"),
    "prepare {music} {bad}/nope -o d": (1, "{bad}/nope: no such file or folder"),
    "prepare - -o d": (2, "- stands for paths on stdin, one per line, and there are none"),
    "prepare {bad}/text.mid -o d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {bad}/text.mid -o new/folder/d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {bad}/line* -o d": (1, f"{{bad}}/line\\nbreak \\x1b[31m.mid: {NO_MIDI}"),
    "prepare {bad}/nothing.mid -o d": (1, "{bad}/nothing.mid: is empty"),
    "prepare {bad}/header.mid -o d": (1, "{bad}/header.mid: is cut short within its header"),
    "prepare {bad}/division-0.mid -o d": (
        1,
        "{bad}/division-0.mid: has a division of 0 ticks per beat, so its notes have no time",
    ),
    "prepare {bad}/tick-2-31.mid -o d": (
        1,
        "{bad}/tick-2-31.mid: has a time too late to be music (a damaged delta)",
    ),
    "prepare {bad}/long.mid -o d": (
        1,
        "{bad}/long.mid: has 1073741820 frames at 4 steps per beat, more than the 1000000 a piece "
        "may have; use fewer --steps-per-beat",
    ),
    "prepare {bad}/drums.mid -o d": (
        1,
        "{bad}/drums.mid: has no notes but drums, which are dropped unless --drums keep",
    ),
    "prepare {bad}/text.mat -o d": (
        1,
        "{bad}/text.mat: is damaged or not a .mat file of version 7 or before",
    ),
    "prepare {bad}/text.pickle -o d": (1, "{bad}/text.pickle: is damaged or not a pickle"),
    "prepare {bad}/text.npz -o d": (
        1,
        "{bad}/text.npz: is a damaged .npz file (File is not a zip file)",
    ),
    "prepare {bad}/text.npy -o d": (1, "{bad}/text.npy: holds a damaged array in the array"),
    "prepare {bad}/text* -o d": (
        1,
        "none of the 5 files can be used; the first, {bad}/text.mat: is damaged or not a .mat file "
        "of version 7 or before",
    ),
    "prepare {music} {bad}/text.mid --strict -o d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {music} -o {data}": (1, f"{{data}} {EXISTS}"),
    "prepare {music} -o {bad}/file": (1, f"{{bad}}/file {EXISTS}"),
    "prepare {music} -o {bad}/file --force": (
        1,
        f"{{bad}}/file is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/other --force": (
        1,
        f"{{bad}}/other is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/others-manifest --force": (
        1,
        f"{{bad}}/others-manifest is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/thesis-data --force": (
        1,
        "{bad}/thesis-data holds thesis.tex, which is not part of a prepared dataset; move it "
        "elsewhere or name another place",
    ),
    "prepare {music} -o {bad}/file/d": (
        1,
        "cannot write {bad}/file/d: {bad}/file is a file, not a folder",
    ),
    "prepare {music} -o {bad}/file/new/d": (1, "cannot write {bad}/file/new/d: not a directory"),
    "prepare {music} -o /proc/d": (1, "cannot write /proc/d: no such file or directory"),
    "prepare {music} -o d --steps-per-beat 0": (
        2,
        "--steps-per-beat must be from 1 to 32767, not 0",
    ),
    "prepare {music} -o d --step-seconds 0": (
        2,
        "--step-seconds must be above 0 and at most 60, not 0",
    ),
    "prepare {music} -o d --step-seconds=": (2, "--step-seconds must be a number, not ''"),
    "prepare {music} -o d --step-seconds 1 --steps-per-beat 1": (
        2,
        "--steps-per-beat and --step-seconds exclude each other",
    ),
    "prepare {music} -o d --drums loud": (
        2,
        "Invalid value for '--drums': 'loud' is not one of 'drop', 'keep' "
        f"{HELP.format('prepare')}",
    ),
}
TRAIN = {
    "train {data} --nade-hidden 9": (2, "--nade-hidden is for --output nade, not for note-unit"),
    "train {data} --output nade --components 9": (
        2,
        "--components is for --output gaussian or logistic, not for nade",
    ),
    "train {bad}/nope": (1, f"{{bad}}/nope {NO_DATASET} --out DATA`"),
    "train {bad}/file": (1, f"{{bad}}/file {NO_DATASET} --out DATA`"),
    "train {music}": (1, f"{{music}} {NO_DATASET} --out DATA`"),
    "train {bad}/no-manifest": (1, f"{{bad}}/no-manifest {NO_DATASET} --out DATA`"),
    "train {bad}/text-manifest": (
        1,
        "{bad}/text-manifest/manifest.json is damaged: Expecting property name enclosed in double "
        "quotes: line 1 column 2 (char 1); run `seqmodel prepare` again",
    ),
    "train {bad}/future": (
        1,
        "{bad}/future/manifest.json is seqmodel-dataset version 9; this seqmodel reads "
        "seqmodel-dataset version 1: run `seqmodel prepare` again",
    ),
    "train {bad}/cut-data": (
        1,
        "{bad}/cut-data is damaged: train cannot be read; run `seqmodel prepare` again",
    ),
    "train {bad}/no-index": (
        1,
        "cannot read {bad}/no-index/valid.jsonl: no such file or directory",
    ),
    "train {bad}/one-data": (
        1,
        "{bad}/one-data has no pieces in valid, which training needs: prepare it again from more "
        "files, or from folders named train and valid",
    ),
    "prepare {bad}/song.m4a -o d": (
        1,
        "{bad}/song.m4a: is neither MIDI nor of a kind that is read (.m4a): convert it, sound to "
        ".wav or .flac",
    ),
    "train {data} --hidden 3 --params 9": (2, BOTH),
    "train {data} --hidden 0": (2, "--hidden must be 1 or more, not 0"),
    "train {data} --hidden 1000001": (2, "--hidden must be 1000000 or less, not 1000001"),
    "train {data} --hidden 1000000": (
        1,
        "out of memory; try a smaller --hidden, --batch-size or --truncate",
    ),
    "train {data} --seed 9223372036854775808": (
        2,
        "--seed must be 9223372036854775807 or less, not 9223372036854775808",
    ),
    "train {data} --hidden many": (
        2,
        "Invalid value for '--hidden': Input should be a valid integer, unable to parse string as "
        f"an integer {HELP.format('train')}",
    ),
    "train {data} --params 5": (
        2,
        "--params 5 is too small for lstm: one unit over 70 inputs already has 454",
    ),
    "train {data} --unit gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "train {data} --activation step": (
        2,
        "there is no activation 'step'; choose one of tanh, sigmoid, relu",
    ),
    "train {data} --gate-activation step": (
        2,
        "there is no gate activation 'step'; choose one of sigmoid, hard-sigmoid",
    ),
    "train {data} --backend tpu": (
        2,
        "there is no backend 'tpu'; choose one of auto, cpu, torch-nn, reference",
    ),
    "train {data} --preset best": (2, "--preset must be one of default, paper, not 'best'"),
    "train {data} --optimizer sgd": (2, "--optimizer must be one of adam, rmsprop, not 'sgd'"),
    "train {data} --lr fast": (2, "--learning-rate must be a number or search, not 'fast'"),
    "train {data} --lr 0.1 --trials 3": (
        2,
        "--trials goes with --lr search, not with --lr 0.1",
    ),
    "train {data} --lr nan": (2, "--learning-rate must be 0 or more, not nan"),
    "train {data} --dropout 1": (2, "--dropout must be below 1, not 1.0"),
    "train {data} --nope": (
        2,
        "No such option: --nope (Possible options: --model, --no-echo, --no-end) "
        f"{HELP.format('train')}",
    ),
    "train {data} --print-config --unit gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "train {data} --config {bad}/nope": (1, "cannot read {bad}/nope: no such file or directory"),
    "train {data} --config {bad}/empty": (1, "cannot read {bad}/empty: is a directory"),
    "train {data} --config {bad}/not.yaml": (
        1,
        "{bad}/not.yaml: unit must be a single value in line 1",
    ),
    "train {data} --config {bad}/list.yaml": (
        1,
        "{bad}/list.yaml: must hold keys and values, such as `unit: lstm`",
    ),
    "train {data} --config {bad}/typo.yaml": (
        1,
        "{bad}/typo.yaml: there is no setting 'hiden'; did you mean hidden?",
    ),
    "train {data} --config {bad}/type.yaml": (
        1,
        "{bad}/type.yaml: hidden must be int or nothing, not 'many'",
    ),
    "train {data} --config {bad}/unit.yaml": (
        1,
        f"{{bad}}/unit.yaml: unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --config {bad}/note-unit.yaml": (
        1,
        f"{{bad}}/note-unit.yaml: note_unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --config {bad}/logistic.yaml": (
        1,
        "{bad}/logistic.yaml: output: --output logistic does not fit music, which has note-unit, "
        "bernoulli and nade",
    ),
    "train --config {bad}/lost.yaml": (
        1,
        f"{{bad}}/lost.yaml: data: /nowhere {NO_DATASET} --out DATA`",
    ),
    "train {data} --config {bad}/good.yaml --unit gnu": (
        2,
        f"there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --run {run}": (1, f"{{run}} {EXISTS}"),
    "train {data} --run {bad}/other --force": (
        1,
        f"{{bad}}/other is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/file --force": (
        1,
        f"{{bad}}/file is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/others-config --force": (
        1,
        f"{{bad}}/others-config is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/thesis-run --force": (
        1,
        "{bad}/thesis-run holds notes/thesis.tex, which is not part of a run folder; move it "
        "elsewhere or name another place",
    ),
    "train {data} --device tpu": (2, "there is no device 'tpu'; choose one of auto, cpu, cuda"),
    "train {data} --lr inf": (2, "--learning-rate must be finite, not inf"),
    "train {data} --run {bad}/file/run": (
        1,
        "cannot write {bad}/file/run: {bad}/file is a file, not a folder",
    ),
    "train {data} --init-from {bad}/empty": (
        1,
        "{bad}/empty has no checkpoint (best.safetensors); train one with `seqmodel train`",
    ),
    "train {data} --model frame-wise --no-end --init-from {run} --hidden 5": (
        1,
        "--init-from {run}: the checkpoint's weights do not fit the model: output.linear.weight is "
        "(88, 4) there and (88, 5) here; use the unit, size and options that it was trained with",
    ),
    "train --resume": (1, NO_RUN),
    "train --resume --run {bad}/nope": (
        1,
        "{bad}/nope is not a run folder (no config.yaml); there is nothing to resume",
    ),
    "train --resume --run {bad}/no-checkpoint": (
        1,
        "{bad}/no-checkpoint has no checkpoint to resume from (last.safetensors); train it again "
        "with --run {bad}/no-checkpoint --force",
    ),
    "train --resume --run {bad}/cut-last": (1, f"{{bad}}/cut-last/last.safetensors {DAMAGED}"),
    "train --resume --run {run} --unit gru": (
        2,
        "--unit cannot change on --resume; start a new run with --init-from",
    ),
    "train {music} --resume --run {run}": (1, f"{{music}} {NO_DATASET} --out DATA`"),
    "train --resume --run {bad}/edited": (
        1,
        "{bad}/edited was trained with hidden 4, not 5: put that back in {bad}/edited/config.yaml, "
        "or start a new run with --init-from {bad}/edited",
    ),
    "train --resume --run {bad}/gnu": (
        1,
        f"{{bad}}/gnu/config.yaml: unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train --resume --run {run} --lr search": (
        2,
        "--trials cannot change on --resume; start a new run with --init-from",
    ),
    "train --resume --run {run} --epochs 1": (
        2,
        "--epochs 1 is less than the 2 that {run} has",
    ),
    "train --resume --run {run} --force": (
        2,
        "--resume excludes --init-from, --config and --force",
    ),
}
EVAL = {
    "eval": (1, NO_RUN),
    "eval {bad}/nope": (1, "there is no run folder {bad}/nope"),
    "eval {run}/best.safetensors": (1, "there is no run folder {run}/best.safetensors"),
    "eval {data}": (
        1,
        "{data} has no checkpoint (best.safetensors); train one with `seqmodel train`",
    ),
    "eval {bad}/no-best": (
        1,
        "{bad}/no-best has no best checkpoint yet: its first epoch did not end; continue with "
        "`seqmodel train --resume --run {bad}/no-best`",
    ),
    "eval {bad}/cut": (1, f"{{bad}}/cut/best.safetensors {DAMAGED}"),
    "eval {bad}/changed": (1, f"{{bad}}/changed/best.safetensors {DAMAGED}"),
    "eval {run} --split dev": (
        1,
        "{data} has no pieces in a split 'dev' (it has: train, valid, test)",
    ),
    "eval {run} --data {music}": (1, f"{{music}} {NO_DATASET} --out DATA`"),
    "eval {run} --data {bad}/one-data": (
        1,
        "{bad}/one-data has no pieces in a split 'valid' (it has: train)",
    ),
    "eval {run} --samples 0": (
        2,
        "Invalid value for '--samples': Input should be greater than or equal to 1 "
        f"{HELP.format('eval')}",
    ),
    "eval {run} --batch-size 0": (
        2,
        "Invalid value for '--batch-size': Input should be greater than or equal to 1 "
        f"{HELP.format('eval')}",
    ),
}
SUFFIX = "must be one of mid, wav, flac, ogg, mp3, npy, png, raw"
SAMPLE = {
    "sample a.ogg --format mid": (
        2,
        "--format mid contradicts the suffix of a.ogg: leave one out",
    ),
    "sample": (2, f"Missing argument 'OUT' {HELP.format('sample')}"),
    "sample o.mid": (1, NO_RUN),
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
    "sample new/o.mid --prime {bad}/text.mid --run {run}": (
        1,
        f"--prime {{bad}}/text.mid: {NO_MIDI}",
    ),
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
        "Invalid value for '--tempo': Input should be greater than or equal to 4 "
        f"{HELP.format('sample')}",
    ),
    "sample o.mid --run {bad}/no-checkpoint": (
        1,
        "{bad}/no-checkpoint has no checkpoint (best.safetensors); train one with `seqmodel train`",
    ),
    "sample o.mid --run {bad}/changed": (1, f"{{bad}}/changed/best.safetensors {DAMAGED}"),
}
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
    "inspect {bad}/text.mid --plot new/p.png": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "inspect {bad}/text.npy": (1, "{bad}/text.npy: holds a damaged array in the array"),
    "inspect {bad}/one-data/train.npy": (1, f"{{bad}}/one-data/train.npy: {NO_ROLL}"),
    "inspect {bad}/cut-data": (
        1,
        "{bad}/cut-data is damaged: train cannot be read; run `seqmodel prepare` again",
    ),
    "inspect {bad}/changed-data": (
        1,
        "{bad}/changed-data is damaged: {music}/valid/2.mid in valid is not what was prepared; run "
        "`seqmodel prepare` again",
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
    "nope": (2, "No such command 'nope' (see seqmodel --help)"),
    "--nope": (2, "No such option: --nope (see seqmodel --help)"),
}
SIZES = "paper, music-100, speech, h256, h512, one-row"
BENCH = {
    "bench gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "bench lstm --size huge": (2, f"there is no size 'huge'; choose one of {SIZES}"),
    "bench --part fun": (
        2,
        "there is no part 'fun'; choose one of machine, units, piano-rolls, training, sampling, "
        "tied",
    ),
}
TABLE = {**PREPARE, **TRAIN, **EVAL, **SAMPLE, **INSPECT, **UNITS_COMMAND, **BENCH}


def listing(*folders: Path) -> list[tuple[str, int]]:
    """Everything below the folders, with sizes."""
    found = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [(str(path), path.lstat().st_size) for path in found]


@pytest.mark.parametrize("command", TABLE)
def test_a_mistake_is_said_in_one_line(
    command: str, call: Call, bad: Path, music: Path, data: Path, run: Path, here: Path
):
    """Guards against tracebacks, vague errors, wrong statuses and things left behind."""
    if any(not Path(path).exists() for path in re.findall("/proc|/dev/full", command)):
        pytest.skip("this system has no such path")
    paths = {"bad": bad, "music": music, "data": data, "run": run}
    status, line = TABLE[command]
    before = listing(here, bad, music, data, run)
    result = call(*(word.format(**paths) for word in command.split()))
    assert (result.err, result.status) == (f"seqmodel: {line.format(**paths)}\n", status)
    assert result.out == ""
    assert listing(here, bad, music, data, run) == before


def test_a_dataset_that_changed_is_not_resumed_on(call: Call, music: Path, run: Path, here: Path):
    """Guards against going on, with a wrong order of data, on other pieces than were learned."""
    call_ok("prepare", music, "-o", "data")
    small = ("--hidden", 4, "--epochs", 1, "--schedule", "constant")
    call_ok("train", "data", *small, "--run", "r")
    shutil.rmtree("data")
    call_ok("prepare", music / "train", music / "valid", "-o", "data", "--steps-per-beat", 2)
    result = call("train", "--resume", "--run", "r", "--epochs", 2)
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        f"seqmodel: {here}/data is not the dataset that r was trained on: prepare it again as it "
        "was, or start a new run with --init-from r\n"
    )


def test_diverged_training_says_so(call: Call, data: Path):
    """Guards against nan being trained on for hours."""
    result = call("train", data, "--hidden", 4, "--lr", 1e38, "-q")
    assert result.status == 1
    assert re.fullmatch(
        r"seqmodel: training diverged at update 1 of epoch 1 \(loss (nan|inf)\); lower "
        r"--learning-rate, now 1e\+38\n",
        result.err,
    )


def test_force_does_not_take_a_run_away_before_the_new_one_can_begin(
    call: Call, data: Path, run: Path
):
    """Guards against losing a good run to a mistyped option of the one that was to replace it.

    The last ones come out only when the model is built.
    """
    shutil.copytree(run, "r")
    before = listing(Path())
    for mistake in (
        ["--unit", "gnu"],
        ["--init-from", str(run), "--hidden", "5"],
        ["--hidden", "1000000"],
        ["--hidden", "1000000", "--lr", "search"],
        ["--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30"],
        ["--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30", "--lr", "search"],
    ):
        assert call("train", data, "--run", "r", "--force", *mistake).status != 0
        assert listing(Path()) == before


def test_force_does_not_take_a_run_away_on_a_disk_that_takes_no_checkpoint(
    call: Call, data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
):
    """Guards against two runs lost to a full disk, the old one and the new."""
    shutil.copytree(run, "r")
    before = listing(Path())

    def full(path: Path, *_: object) -> None:
        raise SeqmodelError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    result = call("train", data, "--run", "r", "--force", "--hidden", 4)
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert listing(Path()) == before


def test_all_awkward_files(call: Call, shared_data: Path):
    """Guards against a traceback from anybody's test suite of odd MIDI files."""
    result = call("prepare", shared_data / "awkward" / "midi", "-o", "d")
    assert result.status == 0
    assert result.err.startswith("skipped 10 files:\n")
    assert result.err.count("\n") == 9  # five files, how many more, and the one repaired


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("prepare {music} -o d", "prepare fewer or shorter files"),
        ("eval {run}", "try a smaller --batch-size"),
    ],
)
def test_memory_that_runs_out_is_told_in_the_commands_own_terms(
    call: Call, music: Path, run: Path, monkeypatch: pytest.MonkeyPatch, command: str, advice: str
):
    """prepare, which has no model, was told to make it smaller."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    for place in ("data.prepare.find_sources", "evaluation.report.report"):
        monkeypatch.setattr(f"seqmodel.{place}", full)
    result = call(*command.format(music=music, run=run).split())
    assert result.status == 1
    assert result.err.startswith(f"seqmodel: out of memory; {advice}")


def test_an_infinite_score_is_an_error(call: Call, run: Path, data: Path):
    """It was a 0 with NaN in the table, and a traceback as JSON."""
    shutil.copytree(run, "r")
    tensors, content = load_checkpoint(Path("r/best.safetensors"))
    for tensor in tensors.values():
        tensor.fill_(1e38)
    save_checkpoint(Path("r/best.safetensors"), tensors, content)
    for options in ((), ("--json",)):
        result = call("eval", "r", *options)
        assert (result.status, result.out) == (1, "")
        assert re.match(r"seqmodel: r scores (nan|inf) nats per frame on valid of ", result.err)
