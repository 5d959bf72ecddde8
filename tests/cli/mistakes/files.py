"""Every kind of bad file."""

import json
import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

from calling import call_ok, write_piece


def midi(events: Iterable[bytes], division: int = 480) -> bytes:
    track = b"".join(events) + b"\0\xff\x2f\0"
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, division)
    return head + b"MTrk" + struct.pack(">I", len(track)) + track


def make_bad_files(bad: Path, music: Path, data: Path, run: Path) -> None:
    """Fill the folder `bad` with every kind of bad file."""
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
