"""`seqmodel report`: its page agrees with the other commands, and its errors are one line."""

import shutil
import signal
import subprocess
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import mido
import numpy as np
import pytest
import soundfile
from calling import PATIENCE, call_ok, start, told, write_piece
from midi_tracks import notes, save, tempo
from reading import boxes, embedded, read, rows, sounds

from seqmodel.data.dataset import open_dataset
from seqmodel.runs.folder import read_metrics


def page_of(path):
    return read(Path(path).read_text("utf-8"))


def pictures(page):
    return [div.one("img") for div in page.all("div", "picture")]


def tables_of(path):
    return [rows(table) for table in page_of(path).all("table")]


SPLITS = ("train", "valid", "test")


def test_the_figures_are_those_of_eval(call, run, here):
    """Checks every number in the tables against eval and inspect, and a curve's."""
    result = call("report", run, "--out", "r.html", "--samples", 0)
    size = f"{Path('r.html').stat().st_size / 1000:,.0f} kB"
    assert (result.status, result.out, result.err) == (0, "", f"r.html: {run}, {size}\n")
    figures, more, points = tables_of("r.html")
    scores = {split: told("eval", run, "--split", split) for split in SPLITS}
    whole, metrics = told("inspect", run), read_metrics(run)
    seconds = sum(line["seconds"] for line in metrics)
    nats = [f"{scores[split]['nats_per_frame']:.4f}" for split in SPLITS]
    sizes = f"{whole['parameters']:,} ({whole['parameters_with_output']:,})"
    assert figures[:2] == [
        ["run", *SPLITS, "parameters (with output)", "best epoch", "training time"],
        ["run|lstm 4, bernoulli", *nats, sizes, "2 of 2", f"{seconds:.1f} s"],
    ]
    assert figures[2:] == [
        [
            f"{name.replace('_', ' ')} (trivial)",
            *(f"{scores[split]['baselines'][name]:.4f}" for split in SPLITS),
            *["", "", ""],
        ]
        for name in scores["valid"]["baselines"]
    ]
    names = ["nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame"]
    names += ["accuracy", "precision", "recall"]
    for row, split in zip(more[1:], SPLITS, strict=True):
        counts = [f"{scores[split][name]:,}" for name in ("pieces", "frames")]
        assert row == ["run", split, *counts, *(f"{scores[split][name]:.4f}" for name in names)]
    assert [row[5] for row in points[1:]] == [f"{m['valid_nats_per_frame']:.4f}" for m in metrics]
    text = page_of("r.html").one("main").text
    assert "Samples" not in text
    assert "run is no better than " in text


def test_samples_are_those_of_sample(call, seconds_run, here):
    """Checks the sound byte by byte, and that each note is drawn."""
    call_ok("report", seconds_run, "--out", "r.html", "--samples", 2, "--seed", 5)
    page = page_of("r.html")
    options = ("--run", seconds_run, "--seconds", 30, "--seed", 5, "-n", 2)
    how = "seqmodel sample OUT.mp3 --run seconds-run --seconds 30 --seed 5 -n 2"
    assert how in page.one("main").text
    for kind in ("mp3", "npy"):
        call_ok("sample", f"s.{kind}", *options)
    assert sounds(page)[:2] == [Path(f"s-{k}.mp3").read_bytes() for k in (1, 2)]
    rolls = [np.load(f"s-{k}.npy") for k in (1, 2)]
    rolls.append(open_dataset(seconds_run.parent / "seconds")["valid"][0])  # a real piece
    for sound, drawn, roll in zip(sounds(page), pictures(page), rolls, strict=True):
        heard, rate = soundfile.read(BytesIO(sound))
        assert len(heard) == round(rate * 0.1 * (len(roll) + 1))  # 0.1 s per frame, and to fade
        begun = np.diff(roll.astype(int), axis=0, prepend=0) > 0
        assert len(boxes(drawn)) == begun.sum()


def test_music_around_a_file_is_that_of_sample(call, run, data, here):
    """Sound, and notes in their two colours: the file at 60 bpm, in its own key."""
    tune = notes([(k, k + 1, pitch) for k, pitch in enumerate((70, 72, 74, 70))], step=96)
    save(Path("a song.mid"), [[tempo(0, 10**6), *tune]], division=96, kind=0)
    options = ("--fill", "a song.mid", "--frames", "4:19", "--below", "--particles", 20)
    said = call_ok("report", run, run, "--out", "r.html", *options).err
    assert said.count("--frames 4:19 is cut at 16, where a song.mid ends\n") == 1
    page = page_of("r.html")
    text = page.one("main").text
    how = (
        "sample OUT.mp3 --run run --fill 'a song.mid' --frames 4:19 --below --particles 20 --seed 1"
    )
    assert how in text
    assert "What was given is grey." in text
    for name in ("s.mp3", "s.mid"):
        call_ok("sample", name, "--run", run, *options, "--seed", 1)
    assert sounds(page)[0] == Path("s.mp3").read_bytes()
    shown, _ = pictures(page)  # the last is a real piece
    roll = open_dataset(data)["valid"][0]
    real_end = len(roll) / 4  # at the same pace, as seen, heard and saved: 4 frames a second
    axis = max(4.0, real_end)
    assert page.all("div", "time")[0].attributes["data-seconds"] == f"{axis}"
    given = [(x * axis, width * axis) for x, _, width, _ in boxes(shown, "given")]
    np.testing.assert_allclose(given, [(0, 1), (1, 1), (2, 1), (3, 1)], atol=1e-3)
    heard, rate = soundfile.read(BytesIO(sounds(page)[1]))
    assert len(heard) == pytest.approx(rate * (real_end + 0.1), abs=1)
    *_, saved = page.all("a")
    midi = mido.MidiFile(file=BytesIO(embedded(saved.attributes["href"])))
    assert [m.tempo for m in midi if m.type == "set_tempo"] == [10**6]
    written = mido.MidiFile("s.mid")
    drawn = [m for m in written.tracks[1] if m.type == "note_on"]
    assert len(list(boxes(shown))) == len(drawn)


def test_a_dataset_in_two_folders_is_one_table(call, run, seconds_run, data):
    """By content, each run once: also where another dataset, or run, has the same name."""
    options = ("--hidden", 3, "--epochs", 1, "--model", "frame-wise")
    shutil.copytree(data, "copy")
    call_ok("prepare", data.parent / "music", "-o", "other/data", "--steps-per-beat", 2)
    for place, name in (("other/data", "b/same"), ("copy", "c/same")):
        call_ok("train", place, *options, "--run", name)
    runs = (run, "b/same", "c/same", seconds_run, "c/../c/same")
    call_ok("report", *runs, "--out", "r.html", "--samples", 0)
    page = page_of("r.html")
    sections = [f"{data.parent.name}/data", "other/data", "seconds"]
    assert [h.text for h in page.all("h2")][:3] == sections
    first, _, curves, second, *others = tables_of("r.html")
    assert [row[0].split("|")[0] for row in first[1:3]] == ["run", "c/same"]
    assert {row[0] for row in curves[1:]} == {"run", "c/same"}
    assert second[1][0].startswith("b/same|")
    in_seconds = "seconds-run|tied gru 4, note-unit of gru "
    assert any(table[1][0].startswith(in_seconds) for table in others)
    assert "data and copy hold the same pieces." in page.one("main").text


def test_a_gap_is_explained_without_absolute_paths(call, run, data, here):
    """Nowhere: not of runs, datasets, files, errors or in sounds; a page is made to be shared."""
    shutil.copytree(data, here / "some where/data")
    write_piece(here / "a song.mid", 3)
    options = ("--hidden", 3, "--epochs", 2, "--model", "frame-wise", "--unit", "tanh")
    call_ok("train", here / "some where/data", *options, "--run", here / "runs/gone")
    shutil.move(here / "some where", here / "moved")
    fill = ("--fill", here / "a song.mid", "--frames", "0:4", "--particles", 9)
    with pytest.MonkeyPatch.context() as elsewhere:
        (here / "x").mkdir()
        elsewhere.chdir(here / "x")
        call_ok("report", here / "runs/gone", run, f"--out={here / 'r.html'}", *fill)
    page = page_of("r.html")
    files = [embedded(link.attributes["href"]) for link in page.all("a")]
    assert len(files) == 3
    written = [Path("r.html").read_bytes(), *sounds(page), *files]
    for path in (here, data.parent, here.parent, Path.home()):
        assert not [part for part in written if bytes(path) + b"/" in part]
    text = page.one("main").text
    assert (
        "seqmodel report gone run --out=r.html --fill 'a song.mid' --frames 0:4 --particles 9"
        in text
    )
    assert "gone could not be scored: data is not a prepared dataset" in text
    assert "The valid figure of gone was recorded in training." in text
    best = min(line["valid_nats_per_frame"] for line in read_metrics(Path("runs/gone")))
    gone, curve, *_ = tables_of("r.html")
    assert gone[0][:2] == ["run", "valid"]
    assert (gone[1][1], len(curve)) == (f"{best:.4f}", 3)
    names = [caption.text.split(":")[0] for caption in page.all("figcaption")]
    assert names == ["gone", "run", "A real piece, 0.mid of valid"]


def test_a_run_that_began_from_another_says_so(call, run, data):
    """Guards against "1 of 1" for what took many epochs; the page names its command."""
    options = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end")
    call_ok("train", data, *options, "--init-from", run, "--run", "runs/more", "-q")
    call_ok("report", "--out", "a file.html", "--samples", 0, "-q")  # of the newest
    assert tables_of("a file.html")[0][1][-2] == "1 of 1 more"
    text = page_of("a file.html").one("main").text
    assert "more started from the weights of run, epoch 2: its epochs and time are those" in text
    assert "seqmodel report --out 'a file.html' --samples 0 -q" in text
    assert "model: frame-wise\nunit: lstm\nhidden: 4\n" in text


def test_watching_says_its_address_and_ends_by_a_signal(run, here):
    """Of figures that training recorded; nothing is written. What is not there yet is told."""
    watching = start("report", run, "a\nb", "--watch", stdout=subprocess.PIPE)
    line = watching.stdout.readline()
    address, rest = line.split(" ", 1)
    assert rest == f"follows {run} and a\\nb; stop it with Ctrl-C\n"
    page = read(urlopen(address).read().decode())
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=PATIENCE) == ("", "not shown: there is no run a\\nb\n")
    assert watching.returncode == 128 + signal.SIGINT
    figures, points = map(rows, page.all("table"))
    assert figures[1][1] == min(row[5] for row in points[1:])
    assert [*here.iterdir()] == []
