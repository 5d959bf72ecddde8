"""Commands that show: `inspect`, `units`, `report` and `export`, each as the others have it."""

import json
import shutil
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from unittest.mock import Mock
from urllib.request import urlopen

import mido
import numpy as np
import pytest
import soundfile
from calling import PATIENCE, PNG, call_ok, call_refused, start, told, write_piece
from midi_tracks import notes, save, tempo
from reading import boxes, embedded, read, rows, sounds

from seqmodel.cli import job
from seqmodel.data import bundled
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.plots import plot_learning_curve
from seqmodel.runs.folder import read_metrics


def test_inspect_midi(call):
    write_piece(Path("p.mid"), seed=3)
    result = call("inspect", "p.mid", "--plot", "p.png")
    values = told("inspect", "p.mid")
    assert result.out == (
        "p.mid: MIDI format 0, 1 track\n"
        f"  {values['notes']} notes from {values['lowest']} to {values['highest']}\n"
        "  4.0 s at 120 bpm\n"
        f"  tonic {values['tonic']} (estimated)\n"
        "  32 frames at 4 steps per beat, 2.00 notes per frame\n"
    )
    assert result.err == "drawn to p.png\n"
    assert Path("p.png").read_bytes().startswith(PNG)
    shutil.copy("p.mid", "tune")  # without a telling name, as `prepare` reads them too
    assert call("inspect", "tune").out == result.out.replace("p.mid", "tune")
    save(Path("two.mid"), [[tempo(0, 500_000), tempo(480, 900_000), *notes([(0, 960, 60)])]])
    assert told("inspect", "two.mid")["seconds"] == 0.5 + 0.9
    Path("text").write_text("MThis is none")
    call_refused("inspect", "text", says="text")


def test_inspect_dataset(call, data):
    result = call("inspect", data, "--plot", "p.png", "-q")
    assert result.err == ""
    *lines, valid, test, last = result.out.splitlines()
    assert lines == [
        f"{data}: dataset of 88 notes, 4 steps per beat",
        "  train  10 pieces  320 frames  2.00 notes per frame  longest 32",
        "  valid   3 pieces   96 frames  2.00 notes per frame  longest 32",
        "  test    2 pieces   64 frames  2.00 notes per frame  longest 32",
        "  metre: 4/4 assumed for 15 pieces",
    ]
    assert "% of valid repeats 8 or more frames of train" in valid
    assert "% of test repeats 8 or more frames of train" in test
    assert last == "  every piece matches its hash"
    assert Path("p.png").read_bytes().startswith(PNG)
    values = told("inspect", data)
    assert values["kind"] == "dataset"
    assert values["splits"]["valid"] == {"pieces": 3, "frames": 96, "longest": 32}


@pytest.mark.parametrize("what", ["p.mid", "dataset"])
def test_files_and_datasets_are_inspected_without_torch(data, here, what):
    """torch takes seconds to load, more than everything else."""
    write_piece(Path("p.mid"), seed=3)
    code = "import sys; sys.modules['torch'] = None; from seqmodel.cli.main import main; main()"
    path = data if what == "dataset" else what
    command = [sys.executable, "-c", code, "inspect", path]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""


def test_inspect_describes_a_recording_and_its_dataset(call):
    """Loudness is over all channels, and only samples at full scale count as clipped."""
    sound = np.round(np.random.default_rng(0).uniform(-0.4, 0.4, (20_005, 2)) * 32768) / 32768
    sound[[7, 9000, 20_000], [0, 1, 1]] = (-1, 32767 / 32768, 0.9)
    Path("train").mkdir()
    soundfile.write("train/a.FLAC", sound, 8000, subtype="PCM_16")
    level = round(20 * np.log10(np.sqrt((sound**2).mean())), 2)
    expected = {"path": "train/a.FLAC", "kind": "audio", "container": "FLAC", "subtype": "PCM_16"}
    expected |= {"rate": 8000, "channels": 2, "samples": 20_005, "seconds": 2.501, "peak": 1.0}
    expected |= {"rms_db": level, "clipped_samples": 2, "frame_size": 10, "frames": 2000}
    assert told("inspect", "train/a.FLAC") == {**expected, "dtype": "int16", "remarks": []}
    shown = call("inspect", "train/a.FLAC", "--plot", "a.png")
    assert (shown.status, shown.err) == (0, "drawn to a.png\n")
    for words in (
        "FLAC PCM_16, 8,000 Hz, 2 channels",
        "2.501 s, 20,005 samples",
        "peak 1.0000, RMS",
    ):
        assert words in shown.out
    call("prepare", "train", "-o", "d")
    shown, frame = call("inspect", "d", "--plot", "d.png").out, open_dataset("d").frame
    assert f"train has mean {frame.mean:.4g} and deviation {frame.deviation:.4g}\n" in shown
    assert "every piece matches its hash" in shown
    assert told("inspect", "d")["seconds"] == {"train": 2.5}
    assert all(Path(name).read_bytes().startswith(PNG) for name in ("a.png", "d.png"))


def test_inspect_run(call, data, run):
    result = call("inspect", run, "--plot", "p.png")
    values = told("inspect", run)
    best = values["best"]
    assert best == read_metrics(run)[1]
    assert result.out == (
        f"{run}: run of 2 epochs\n"
        "  lstm 4, bernoulli\n"
        "  1,500 parameters, 1,940 with the output\n"
        f"  trained on {data}, 88 notes, 4 steps per beat\n"
        f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame, epoch 2; "
        f"accuracy {best['valid_accuracy']:.4f}\n"
    )
    plot_learning_curve(Path("expected.png"), read_metrics(run))
    assert Path("p.png").read_bytes() == Path("expected.png").read_bytes()
    assert values["config"]["hidden"] == 4


def test_units_prints_equations_and_counts(call):
    shown = call("units", "gru1", "--inputs", 3, "--hidden", 2)
    assert shown.out == (
        "# gru1  (Dey, Salem 2017, GRU1)\n"
        "z = s(Uz h' + bz)\n"
        "r = s(Ur h' + br)\n"
        "n = phi(W x + U (r (.) h') + b)\n"
        "h = (1 - z) (.) h' + z (.) n\n"
        "# 3 inputs, 2 hidden: 24 parameters\n\n"
    )
    values = told("units", "--params", 20000)["units"]
    assert len(values) == 9
    keys = {"unit", "equations", "starts", "forms", "gates", "source"}
    keys |= {"inputs", "hidden", "parameters"}
    assert all(set(unit) == keys for unit in values)
    assert all(abs(unit["parameters"] - 20000) < 1000 for unit in values)


def test_inspect_reads_the_rolls_that_prepare_reads(call):
    """Guards against wrong figures, and against refusing files of rolls."""
    rolls = {"train_0": np.eye(5, 88, dtype=np.uint8), "train_1": np.eye(9, 88, dtype=np.uint8)}
    np.savez_compressed("a.npz", **rolls, valid_0=np.ones((2, 88), np.uint8))
    Path("a.npz").rename("a.NPZ")
    result = call("inspect", "a.NPZ", "--plot", "p.png")
    assert (result.status, result.out) == (
        0,
        "a.NPZ: piano-rolls from A0 to C8\n"
        "  2 steps per beat (assumed)\n"
        "  train: 2 pieces, 14 frames, longest 9, 1.00 notes per frame\n"
        "  valid: 1 piece, 2 frames, longest 2, 88.00 notes per frame\n",
    )
    assert Path("p.png").read_bytes().startswith(PNG)
    train = {"pieces": 2, "frames": 14, "longest": 9, "notes_per_frame": 1.0}
    assert told("inspect", "a.NPZ")["splits"]["train"] == train
    says = "--listen renders files of music, and a.NPZ is a file of rolls"
    call_refused("inspect", "a.NPZ", "--listen", "o.wav", says=says, status=2)


def test_verify_reads_every_byte(call, run, data, music):
    """Guards the last checkpoint, which nothing else reads until a resume."""
    shutil.copytree(run, "r")
    assert "unchanged: best.safetensors, last.safetensors" in call("inspect", "r", "--verify").out
    assert "every piece matches its hash" in call("inspect", data, "--verify").out
    last = Path("r/last.safetensors")
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    last.write_bytes(content[:-1])
    assert call("inspect", "r").out.splitlines()[-1].startswith("  r may not have finished trai")
    last.write_bytes(content)
    assert "finished" not in call("inspect", "r").out
    call_refused("inspect", "r", "--verify", says="r/last.safetensors is damaged")
    call_refused("inspect", music / "train" / "0.mid", "--verify", says="...", status=2)


# ---- sound --------------------------------------------------------------------------------------


def test_the_sound_is_that_of_the_sampled_notes(run, seconds_run):
    """Each option does to the sound what it does to the frames, which are rendered separately."""
    for trained, options, listen in (
        (run, ["--length", 40, "--temperature", 1.5], []),
        (run, ["--seconds", 4, "--tempo", 90], ["--tempo", 90]),
        (seconds_run, ["--seconds", 4, "--tempo", 90, "--seed", 3], ["--tempo", 150]),
    ):
        for suffix in ("npy", "wav"):
            call_ok("sample", f"o.{suffix}", "-n", 2, "--run", trained, "--force", *options)
        for k in (1, 2):
            rendered = ("--listen", f"p-{k}.wav", "--force", *listen)
            shown = call_ok("inspect", f"o-{k}.npy", *rendered)
            assert shown.err == f"rendered to p-{k}.wav\n"
            assert Path(f"p-{k}.wav").read_bytes() == Path(f"o-{k}.wav").read_bytes()
        assert Path("o-1.wav").read_bytes() != Path("o-2.wav").read_bytes()


def test_an_unsupported_format_is_reported_before_sampling(run, here, monkeypatch):
    """Guards against an hour of sampling for a format that libsndfile does not support."""
    refuse = Mock(side_effect=soundfile.LibsndfileError(1))
    monkeypatch.setattr("seqmodel.media.sound._encode", refuse)
    monkeypatch.setattr("seqmodel.sampling.sampler.Sampler.piece", None)
    write_piece(Path("p.mid"), seed=1)
    says = "...libsndfile ... cannot write mp3 at ... Hz: use a"
    for command in (("sample", "o.mp3", "--run", run), ("inspect", "p.mid", "--listen", "o.mp3")):
        call_refused(*command, says=says, status=2)
    assert [path.name for path in here.iterdir()] == ["p.mid"]


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
    figures, _, curves, *_ = tables_of("r.html")  # the data moved, but are those of the other run
    assert figures[1][2] == f"{best:.4f}"
    assert [row[0] for row in curves[1:]] == ["gone"] * 2 + ["run"] * 2
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


@pytest.mark.parametrize(
    ("name", "kind"),
    [("page.html", "page"), ("model.onnx", "ONNX graph"), ("run.zip", "zip")],
)
def test_what_is_asked_for_is_written(call, run, name, kind):
    """What is in it is tested with pages, graphs and zips."""
    result = call("export", run, name)
    said = f"{name}: {kind} of {run}, {Path(name).stat().st_size / 1000:,.0f} kB\n"
    assert (result.status, result.out, result.err) == (0, "", said)
    assert call("export", run, name.upper(), "-q").err == ""
    assert Path(name.upper()).read_bytes() == Path(name).read_bytes()


def test_what_was_there_is_replaced_only_when_all_is_written(run, here, monkeypatch):
    """Guards against a page cut short where the disk is full, or where something fails before."""
    page = Path("page.html")
    page.write_text("mine")

    with monkeypatch.context() as patch:
        document = "seqmodel.export.page.render.document"
        patch.setattr(document, Mock(side_effect=SeqmodelError("no")))
        call_refused("export", run, page, "--force", says="no")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left")))
        call_refused("export", run, page, "--force", says="...no space left")
    assert page.read_text() == "mine"
    assert [*here.iterdir()] == [here / "page.html"]
    call_ok("export", run, page, "--force")
    assert page.read_text("utf-8").endswith("</html>\n")


def test_the_command_on_a_page_finds_the_run(run, here):
    shutil.copytree(run, "runs/mine")
    call_ok("export", "runs/mine", "page.html")
    assert " --run runs/mine --seed " in Path("page.html").read_text("utf-8")


def test_without_the_extra_export_says_what_to_install(run, here, monkeypatch):
    """Guards a traceback of an import; nothing is left behind."""
    for name in [name for name in sys.modules if name.startswith("seqmodel.export.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    says = "the package onnx is missing: pip install 'seqmodel[onnx]'"
    call_refused("export", run, "model.onnx", says=says)
    assert list(here.iterdir()) == []


BUNDLED = bundled.sample_sources().parent / "pretrained"


@pytest.fixture
def zipped(run):
    """The run as ./r.zip, made where its dataset is not; a zip of it is the same again."""
    call_ok("export", run, "r.zip", "-q")
    call_ok("export", "r.zip", "again.zip", "-q")
    assert Path("again.zip").read_bytes() == Path("r.zip").read_bytes()
    Path("again.zip").unlink()
    return "r.zip"


def test_a_zip_samples_scores_and_shows_as_its_folder(call, run, data, zipped):
    """Guards --best-of too, which reads the figures of training."""
    options = ("--length", 12, "--best-of", 2)
    of_zip = call_ok("sample", "a.mid", "--run", zipped, *options)
    of_run = call_ok("sample", "b.mid", "--run", run, *options)
    assert of_zip.err == of_run.err.replace("b.mid", "a.mid").replace(str(run), zipped)
    assert Path("a.mid").read_bytes() == Path("b.mid").read_bytes()
    ours, theirs = (told("eval", each, "--data", data) for each in (zipped, run))
    assert ours == {**theirs, "run": zipped}
    ours, theirs = (call_ok("inspect", each).out.splitlines() for each in (zipped, run))
    assert ours[0] == "r.zip: run of 2 epochs"
    assert (ours[1:-2], ours[-1]) == (theirs[1:-2], theirs[-1])
    assert ours[-2] == "  trained on data, 88 notes, 4 steps per beat"
    assert "  unchanged: best.safetensors\n" in call_ok("inspect", zipped, "--verify").out
    assert call("inspect", zipped, "--plot", "c.png").err == "drawn to c.png\n"
    call_ok("report", zipped, run, "--out", "r.html", "--samples", 0)
    assert "r.zip" in Path("r.html").read_text()


def test_another_dataset_of_the_same_name_gives_a_zip_no_baselines(call, data, zipped):
    """A zip has only the name of its data: trivial models were fitted to whatever had that name."""
    call_ok("sample", "a.mid", "--run", zipped, "--length", 100)
    call_ok("prepare", "a.mid", "--out", "data", "--no-onsets", "-q")
    assert told("eval", zipped, "--data", "a.mid")["baselines"] == {}
    shutil.rmtree("data")
    shutil.copytree(data, "data")
    assert told("eval", zipped, "--data", "a.mid")["baselines"]


def test_training_starts_from_a_zip_but_never_goes_on_in_it(data, run, zipped):
    """Guards the zip's bytes too."""
    before = Path(zipped).read_bytes()
    small = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end", "-q")
    train = ("train", data, *small)
    one, other = (
        told(*train, "--init-from", start, "--run", f"{k}")["best"]
        for k, start in enumerate((zipped, run))
    )
    assert one["valid_nats_per_frame"] == other["valid_nats_per_frame"]
    says = "r.zip is a file, which holds no training state: start from its weights with --init-from"
    call_refused("train", "--resume", "--run", zipped, says=f"{says} r.zip")
    says = "r.zip is not a run folder, so it is never replaced; choose another path"
    call_refused(*train, "--force", "--run", zipped, says=says)
    assert Path(zipped).read_bytes() == before


# ---- without any run ----------------------------------------------------------------------------


def test_music_and_speech_before_any_training(call, here):
    """Guards the first command that a newcomer types, and the choice of the medium."""
    music, speech = BUNDLED / "music.zip", BUNDLED / "speech.zip"
    assert call_ok("sample", "out.mid", "--length", 40, "--no-end").err == (
        f"no run of music in runs/: using {music}, trained on the bundled music\n"
        f"out.mid: 40 frames from {music}, cut off at the limit\n"
    )
    assert call_ok("sample", "out.wav", "--seconds", 0.1).err == (
        f"no run of audio or music in runs/: using {speech}, trained on the bundled speech\n"
        f"out.wav: 0.1 s (800 samples at 8,000 Hz) from {speech}\n"
    )
    for name, taken in (("o.mp3", music), ("o.png", music), ("o.flac", speech)):
        assert f"using {taken}, " in call_ok("sample", name, "--seconds", 0.5).err
    assert call_ok("sample", "q.mid", "--length", 9, "-q").err == ""
    assert sorted(path.name for path in here.iterdir()) == sorted(
        ["out.mid", "out.wav", "o.mp3", "o.png", "o.flac", "q.mid"]
    )


def test_a_run_of_ones_own_comes_first(call, run):
    """Guards against the bundled run taken in place of the one just trained."""
    shutil.copytree(run, "runs/mine")
    for name in ("o.mid", "o.wav"):
        said = call("sample", name, "--length", 9).err
        assert said.startswith(f"{name}: 9 frames")
        assert said.endswith(" from runs/mine\n")
    result = call("sample", "-", "--format", "raw", "--seconds", 0.1)  # no music
    assert result.err.startswith("no run of audio in runs/: using ")
    assert len(result.raw) == 1600


def test_eval_without_any_run(call, monkeypatch):
    """Guards the bundled run's data, prepared on first use as `train` does."""
    scored = []
    monkeypatch.setattr(
        "seqmodel.evaluation.evaluate.evaluate",
        lambda run, dataset, name, **_: scored.append(dataset[name]) or {"of": dataset.folder.name},
    )
    result = call_ok("eval", "--json")
    assert result.err.startswith("no run in runs/: using ")
    assert (json.loads(result.out), len(scored[0])) == ({"of": "sample-music"}, 20)
    assert [path.name for path in Path("runs").iterdir()] == ["sample-music"]


def test_a_run_without_onsets_goes_on_from_music_without(call, run, monkeypatch):
    """Guards earlier runs: by default the music now has onsets."""
    monkeypatch.setattr(job.Job, "_train", lambda *_: None)
    small = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--epochs", 1, "--run", "r", "-q")
    call_ok("train", "--init-from", run, *small)
    assert [path.name for path in Path("runs").iterdir()] == ["sample-data"]


def test_weights_of_other_frames_are_remarked_on(call, run, shared, seconds_run, monkeypatch):
    monkeypatch.setattr(job.Job, "_train", lambda *_: None)
    small = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--epochs", 1, "--run", "r")
    told = call_ok("train", shared / "seconds", "--init-from", run, *small).err
    assert "seconds was prepared differently from " in told
    assert "run's data (0.1 s per step, not 4 steps per beat)" in told


def test_an_installation_without_the_bundled_runs_says_so(monkeypatch, here):
    monkeypatch.setattr(bundled, "__file__", str(here / "seqmodel" / "data" / "bundled.py"))
    says = "this installation has no sample_data/pretrained/music.zip in or next to "
    call_refused("sample", "o.mid", says=f"{says}{here}/seqmodel; name a run")
