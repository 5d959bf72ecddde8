"""Labels from file names to samples, by the commands; the judge of samples and guidance."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import call_ok, call_refused

from seqmodel.data.dataset import open_dataset
from seqmodel.experiment.plan import sources_of
from seqmodel.media.audio.evaluation import AudioComparison
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes

SHARES = {"ann": 0.2, "bob": 0.7}
QUICK = ("--model", "frame-wise", "--unit", "gru", "--hidden", 4, "--no-end", "-q")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """midi/, pieces of one note, which sounds as often as who plays it likes; data/, and a run."""
    folder, random = tmp_path_factory.mktemp("told"), np.random.default_rng(0)
    for split, count in {"train": 40, "valid": 10}.items():
        (folder / "midi" / split).mkdir(parents=True)
        for who, share in SHARES.items():
            for k in range(count):
                roll = np.zeros((32, 88), np.uint8)
                roll[:, 50] = random.random(32) < share
                data = midi_bytes(roll, Grid.of_beats(4), flat=True)
                (folder / "midi" / split / f"{who}_{k}.mid").write_bytes(data)
    options = ("--no-onsets", "--labels", "{who}_*", "-q")
    call_ok("prepare", folder / "midi", *options, "-o", folder / "data")
    learns = ("--epochs", 6, "--lr", 0.02, "--run", folder / "run")
    call_ok("train", folder / "data", *QUICK, *learns)
    return folder


def entropy(shares):
    return float(-(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)).mean())


def test_what_is_learned_is_the_frequency_given_the_label(call, told):
    """By the notes of valid, and their shares: given who plays, and not told who."""
    result = json.loads(call("eval", told / "run", "--classify", "who", "--json").out)
    valid = open_dataset(told / "data")["valid"]
    share = np.array([piece[:, 50].mean() for piece in valid])
    by_who = [share[[who in source for source in valid.sources]].mean() for who in SHARES]
    assert result["nats_per_frame"] == pytest.approx(entropy(np.array(by_who)), abs=0.02)
    without = result["without_labels"]["nats_per_frame"]
    assert result["nats_per_frame"] + 0.06 < without < entropy(share.mean(keepdims=True)) + 0.01
    assert result["classify"]["confusion"] == [[10, 0], [0, 10]]
    shown = call("eval", told / "run", "--classify", "who").out
    assert f"  without labels         {without:9.4f}" in shown
    assert "who by likelihood, of 2 equally probable ones: 100.0% of 20 pieces" in shown
    assert "  ann   10    0" in shown
    of_files = call("eval", told / "run", "--data", told / "midi" / "valid")
    assert f"nats per frame           {without:9.4f}" in of_files.out
    assert "files have no labels: scored without those that" in of_files.err
    call_ok("report", told / "run", "--samples", 0, "-q")
    assert f"{result['nats_per_frame']:.4f}" in Path("report.html").read_text(encoding="utf-8")
    assert "  labels: who (ann and bob)\n" in call("inspect", told / "run").out


def test_samples_are_as_asked(call, told):
    """Each in turn, from a folder or its zip; the same bytes whether asked for alone or not."""
    call_ok("export", told / "run", "run.zip")
    drawn = ("-n", 4, "--label", "who=ann,bob", "--length", 400, "--run", "run.zip")
    result = json.loads(call("sample", "out.npy", *drawn, "--json").out)
    assert [piece["labels"]["who"] for piece in result["pieces"]] == ["ann", "bob"] * 2
    for piece in result["pieces"]:
        share = np.load(piece["path"])[:, 50].mean()
        assert share == pytest.approx(SHARES[piece["labels"]["who"]], abs=0.1)
    alone = ("--label", "who=ann", "--length", 400, "--run", told / "run")
    said = call("sample", "ann.npy", *alone).err
    assert said == f"ann.npy: 400 frames from {told / 'run'}, who ann\n"
    assert Path("ann.npy").read_bytes() == Path("out-1.npy").read_bytes()


def test_the_newest_run_that_knows_the_label_is_chosen(call, told):
    """It used to be the newest of all, which failed if it had no labels.

    A damaged run between the two is not needed.
    """
    shutil.copytree(told / "run", "runs/told")
    Path("runs/damaged").mkdir()
    Path("runs/damaged/best.safetensors").write_bytes(b"damaged")
    nothing = ("--labels", "none", "--epochs", 1)
    call_ok("train", told / "data", *QUICK, *nothing, "--run", "runs/newer")
    assert "from runs/told, who ann" in call("sample", "x.mid", "--label", "who=ann").err
    assert "from runs/newer" in call("sample", "y.mid").err
    assert call("sample", "x.ogg", "--label", "who=ann").err.startswith("x.ogg: ")


def test_a_model_may_be_told_nothing(call, told):
    """The same figures as where the data have no labels."""
    call_ok("prepare", told / "midi", "--no-onsets", "-o", "plain", "-q")
    nats = []
    for data, run, more in ((told / "data", "none", ("--labels", "none")), ("plain", "r", ())):
        call_ok("train", data, *QUICK, "--epochs", 1, *more, "--run", run)
        nats.append(json.loads(call("eval", run, "--json").out)["nats_per_frame"])
    assert nats[0] == nats[1]
    assert call("eval", told / "run", "--data", "plain").err == ""
    said = call("eval", "r", "--data", told / "data").err
    assert said == "labels unknown to r count as none: who (ann and bob)\n"
    command = ("sample", "out.mid", "--run", "none", "--label", "who=ann")
    call_refused(*command, says="...; none knows none", status=2)


def labels_of(data):
    train = open_dataset(data)["train"]
    return {Path(p.source).stem: dict(p.facts.get("labels", {})) for p in train.pieces}


def test_labels_come_from_folders_and_tables(call, told):
    """Other ways to name them; what a file lacks it lacks, and all of it is listed."""
    for k, folder in enumerate(("jigs", "waltzes")):
        Path(folder, "train").mkdir(parents=True)
        for n in range(2):
            shutil.copy(told / f"midi/train/ann_{2 * k + n}.mid", f"{folder}/train/{k}{n}.mid")
    sources = ("jigs", "waltzes/train/../train", "--no-onsets")
    said = call("prepare", *sources, "--labels", "folder", "-o", "a").out
    assert "  labels: folder (jigs and waltzes)\n" in said
    expected = {f"{k}{n}": name for k, name in enumerate(("jigs", "waltzes")) for n in range(2)}
    assert labels_of("a") == {stem: {"folder": name} for stem, name in expected.items()}
    call_ok("prepare", *sources, "--labels", "{kind}/*/{n}", "-o", "b")
    assert labels_of("b")["01"] == {"kind": "jigs", "n": "01"}
    Path("t.csv").write_text(
        'path, odd, key\njigs/train/00.mid, "a=b,🎹",C\n'
        "jigs/train/01.mid,,D\nwaltzes/train/10.mid,c,D\n"
    )
    said = call_ok("prepare", *sources, "--labels", "t.csv", "-o", "c").err
    assert "2 of 4 files have no odd\n1 of 4 files has no key" in said
    odd = {
        "00": {"odd": "a=b,🎹", "key": "C"},
        "01": {"key": "D"},
        "10": {"odd": "c", "key": "D"},
        "11": {},
    }
    assert labels_of("c") == odd
    assert "odd (a=b,🎹 and c), key (C and D)" in call("inspect", "c").out
    Path("t.csv").write_text(
        "\npath;odd;key\njigs/train/00.mid;a=b,🎹;C\njigs/train/01.mid;;D\nwaltzes/train/10.mid;c;D\n"
    )
    call_ok("prepare", *sources, "--labels", "t.csv", "-o", "d")
    assert labels_of("d") == odd
    Path("jigs/train/99.mid").write_text("not music")
    said = call_ok("prepare", *sources, "--labels", "{kind}/*/{n}", "-o", "e").err
    assert "skipped 1 file" in said
    assert "not in train" not in said  # nor is the file itself


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("{who}-*", "--labels {who}-* matches none of 100 files"),
        ("ann", "give a pattern of names such as '{digit}_{speaker}_*', folder, or a .csv file"),
        ("{a b}_*", "{a b} is not a name"),
        ("{a}_{a}", "{a} appears twice"),
        ("*/{split}/*", "no file has a split other than train; a label needs two values"),
        ("gone.csv", "gone.csv"),
        ("empty.csv", "first line must be path and names of labels"),
        ("unknown.csv", "no file for 2 of 2 rows, such as x.mid"),
        ("binary.csv", "is not a CSV file in UTF-8"),
        ("odd.csv", "no file for 2 of 2 rows"),
        ("twice.csv", "has two rows for"),
        ("wide.csv", "has 3 cells, but the first line 2"),
    ],
)
def test_labels_that_cannot_be_had_are_refused_in_a_line(told, how, words):
    Path("empty.csv").touch()
    Path("unknown.csv").write_text("path,who\nx.mid,a\ny.mid,b\n")
    Path("odd.csv").write_text(f"path,who\na\0b,a\n{'x' * 5000},b\n")
    Path("twice.csv").write_text("path,who\n" + f"{told}/midi/train/ann_0.mid,a\n" * 2)
    Path("wide.csv").write_text("path,who\nx.mid,a,b\n")
    Path("binary.csv").write_bytes(b"path,who\n\xff\xfe,a\n")
    source = told / "midi" / ("train" if how.startswith("*") else "")
    status = 2 if "{" in how or "." not in how else 1
    call_refused("prepare", source, "--labels", how, "-o", "d", says=f"...{words}", status=status)
    assert not Path("d").exists()


def test_a_label_of_too_many_values_is_refused(call, monkeypatch):
    """With what it would cost: an index of files makes a label of each."""
    monkeypatch.setattr("seqmodel.data.sources.MAX_VALUES", 3)
    for k in range(4):
        Path(f"{k}.mid").touch()
    said = call("prepare", ".", "--labels", "{index}", "-o", "d").err
    assert "index has 4 values, above 3: a gru of 128 would have 1,536 parameters" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sample x.mid --label who=eve", "there is no who 'eve'; choose from ann and bob"),
        ("sample x.mid --label who=", "no who ''"),
        (
            "sample x.mid --label who=ann,Bob",
            "no who 'Bob'; choose from ann and bob; did you mean bob",
        ),
        ("sample x.mid --label who", "write NAME=VALUE; choose from ann and bob"),
        ("sample x.mid --label age=7", "no label 'age'; ...run knows who"),
        ("sample x.mid --label who=ann,bob", "-n 2 draws all"),
        ("eval --classify age", "no label 'age'; ...run knows who"),
        ("eval --data x.mid --classify who", "exclude each other"),
        ("eval --judge who", "--judge needs --samples N"),
        ("eval --guidance 2", "--guidance needs --samples N"),
        ("sample x.mid --guidance 2", "--guidance needs --label NAME=VALUE"),
        ("sample x.mid --guidance 2 --label who=ann", "--guidance is for runs on audio"),
        ("eval --samples 1 --judge age", "--judge age: there is no label 'age'; ...run knows who"),
        ("eval --samples 1 --judge who", "--judge is for audio"),
        ("export x.html --label who=ann,bob", "a page draws one"),
        ("export x.zip --label who=ann", "--label is for pages"),
    ],
)
def test_labels_that_are_not_known_are_refused_in_a_line(told, command, words):
    name, *rest = command.split()
    run = ["--run", told / "run"] if name == "sample" else [told / "run"]
    call_refused(name, *run, *rest, says=f"...{words}", status=2)


def test_damaged_labels_are_found(call, told):
    """Guards against a traceback, and against a run that goes on with other labels."""
    shutil.copytree(told / "data", "d")
    index = Path("d/train.jsonl")
    first, rest = index.read_text().split("\n", 1)
    index.write_text(first.replace('{"who": "ann"}', '{"who": 7}') + "\n" + rest)
    said = call("train", "d", *QUICK).err
    assert said.startswith("seqmodel: d is damaged: train.jsonl, line 1: labels.who must be text")
    index.write_text(first.replace('"ann"', '"bob"') + "\n" + rest)
    resume = ("--resume", "--run", told / "run", "--epochs", 7)
    assert "is not the dataset that" in call("train", "d", *resume).err
    plans = [sources_of([path])[0].fingerprint for path in (told / "data", Path("d"))]
    assert plans[0] != plans[1]
    manifest = Path(shutil.copytree(told / "data", "e"), "manifest.json")
    manifest.write_text(manifest.read_text().replace('"ann"', '"eve"'))
    for how in (resume, ("--init-from", told / "run", *QUICK)):
        said = call("train", "e", *how).err
        assert "knows the labels who (ann and bob), but one for these data the labels who (" in said
        assert said.endswith("prepare them with the same --labels\n")


# ---- sound: the judge and guidance ---------------------------------------------------------------

RATE = 8000


def whistle(random, *, rising):
    """A tone that rises or falls by two octaves, of any length and loudness, amid silence."""
    length = int(random.uniform(0.15, 0.4) * RATE)
    octaves = np.linspace(0, 2, length) + random.uniform(-0.3, 0.3)
    tone = np.sin(2 * np.pi * np.cumsum(500 * 2**octaves) / RATE) * random.uniform(0.05, 0.5)
    hiss = 0.001 * random.standard_normal(length)
    return np.pad((tone if rising else tone[::-1]) + hiss, random.integers(0, RATE // 4, 2))


@pytest.fixture(scope="module")
def whistles(tmp_path_factory):
    """A dataset of both, train with a few of noise without the label, and a run told which."""
    folder, random = tmp_path_factory.mktemp("whistles"), np.random.default_rng(0)
    for split, count in {"train": 12, "valid": 5}.items():
        (folder / "wav" / split).mkdir(parents=True)
        for k in range(count):
            for way in ("up", "down"):
                samples = whistle(random, rising=way == "up")
                soundfile.write(folder / "wav" / split / f"{way}_{k}.wav", samples, RATE)
            noise = 0.1 * random.standard_normal(RATE // 8)
            soundfile.write(folder / "wav" / split / f"noise{k}.wav", noise, RATE)
    call_ok("prepare", folder / "wav", "--labels", "{way}_*", "-q", "-o", folder / "data")
    quick = ("--unit", "gru", "--hidden", 2, "--components", 1, "--epochs", 1, "-q")
    call_ok("train", folder / "data", *quick, "--run", folder / "run")
    return folder


def test_the_order_of_sounds_is_told_not_only_which_there_are(call, whistles):
    """The spectra of both are the same; samples, of a model that has learned little, are noise."""
    options = ("--samples", 8, "--seconds", 0.2, "--judge", "way")
    judged = json.loads(call("eval", whistles / "run", *options, "--json").out)["samples"]["judge"]
    assert judged["label"] == "way"
    assert judged["split"] == 1.0
    assert 0 <= judged["drawn"] < 1
    shown = call("eval", whistles / "run", *options).out
    assert f"way, recognised: {judged['drawn']:.1%} of samples, 100.0% of valid" in shown


def test_guidance_is_for_samples_alone(call, whistles):
    """Guards against an option that is not handed on, and likelihoods of a guided model."""
    options = ("eval", whistles / "run", "--samples", 4, "--seconds", 0.2, "--json")
    free, held = (json.loads(call(*options, "--guidance", g).out) for g in (1, 50))
    assert held["nats_per_frame"] == free["nats_per_frame"]
    assert (free["samples"]["guidance"], held["samples"]["guidance"]) == (1, 50)
    assert held["samples"]["split"] == free["samples"]["split"]
    assert held["samples"]["drawn"] != free["samples"]["drawn"]
    one = "--run", whistles / "run"
    for several, seconds in ((one, 0.1), ((*one, *one), 0.03)):
        sample = "sample", "-", "--format", "wav", *several, "--seconds", seconds
        drawn = [
            call(*sample, "--label", "way=up", *guidance).raw
            for guidance in (["--guidance", 1], ["--guidance", 50], ["--guidance", 4], [])
        ]
        assert len({*drawn}) == 3
        assert drawn[2] == drawn[3]


def test_noise_silence_and_clips_of_a_sample_have_some_value(whistles):
    train = open_dataset(whistles / "data")["train"]
    values = train.labels(train.frame.known_labels)[:, 0]
    assert set(values) == {0, 1, 2}
    noise = np.random.default_rng(1).standard_normal((400, 10)).astype(np.float32).clip(-1, 0.9)
    odd = [noise, np.zeros((900, 10), np.float32), np.zeros((1, 1), np.float32)]
    assert {*AudioComparison().classifier(train, values)(odd)} <= {1, 2}
