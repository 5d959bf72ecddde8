"""What each command prints and writes when all is well."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import Call, call_ok, write_piece
from safetensors.numpy import load_file

import seqmodel
from seqmodel.dataset import Dataset

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def seconds_run(shared: Path, music: Path) -> Path:
    """A run on frames of 0.1 s that knows when pieces end."""
    call_ok("prepare", music, "-o", shared / "seconds", "--step-seconds", "0.1")
    call_ok(
        *("train", shared / "seconds", "--unit", "gru", "--hidden", 4, "--epochs", 1, "--end"),
        *("--run", shared / "seconds-run", "-q"),
    )
    return shared / "seconds-run"


# ---- prepare ------------------------------------------------------------------------------------


def test_prepare_sums_up_in_columns(call: Call, music: Path):
    """Guards the summary: counts that can be compared at a glance, and nothing on stderr."""
    result = call("prepare", music, "-o", "d")
    assert result.err == ""
    assert result.out == (
        "d: 88 notes, 4 steps per beat\n"
        "  train  10 pieces  320 frames  longest 32\n"
        "  valid   3 pieces   96 frames  longest 32\n"
        "  test    2 pieces   64 frames  longest 32\n"
    )


def test_prepare_explains_what_it_skips(call: Call, music: Path):
    """Guards against files that vanish from the count unseen; names stay on one line each."""
    shutil.copytree(music, "m")
    for k in range(7):
        Path(f"m/train/bad\n{k}.mid").write_text("x")
    Path("m/gone.mid").symlink_to("/nowhere")
    result = call("prepare", "m", "-o", "d")
    reason = "is not a MIDI file (it does not begin with MThd)"
    assert result.err.splitlines() == [
        "skipped 8 files:",
        "  m/gone.mid: no such file or directory",
        *[f"  m/train/bad\\n{k}.mid: {reason}" for k in range(4)],
        "  ... and 3 more, all in the manifest",
    ]
    assert len(json.loads(Path("d/manifest.json").read_text())["skipped"]) == 8
    assert call("prepare", "m", "-o", "d", "--force", "-q").err == ""


def test_prepare_says_what_is_odd_about_splits(call: Call, music: Path):
    """Guards against a silent dataset without valid, or with a piece in two splits."""
    for split in ("train", "test"):
        Path(f"m/{split}").mkdir(parents=True)
        shutil.copy(music / "train" / "0.mid", f"m/{split}")
    result = call("prepare", "m", "-o", "d")
    assert result.err.splitlines() == [
        "1 piece stood in two splits, such as m/train/0.mid; figures on those splits "
        "are a little too good",
        "no piece fell to valid: add files, or put them into folders named train and valid",
    ]


def test_one_recording_in_clips_is_told_how_to_get_splits(call: Call):
    """Guards against "add files" to whom has one long recording, and advice that does not help."""
    sound = np.random.default_rng(0).uniform(-1, 1, 40_000)
    soundfile.write("long.wav", sound, 8000)
    advice = (
        "all clips of a recording stay in one split, so cut it into several files, put these into "
        "folders named train, valid and test, and prepare the three folders together"
    )
    result = call("prepare", "long.wav", "-o", "d", "--clip-seconds", 1)
    assert (result.status, result.err) == (0, f"no piece fell to valid: {advice}\n")
    assert "train  5 pieces" in result.out
    result = call("train", "d")
    assert (result.status, result.out, result.err) == (
        1,
        "",
        f"seqmodel: d has no pieces in valid, which training needs: {advice}\n",
    )
    for name, part in zip(
        ("train", "valid", "test"), np.split(sound, [16_000, 32_000]), strict=True
    ):
        Path(name).mkdir()
        soundfile.write(f"{name}/part.wav", part, 8000)
    result = call("prepare", "train", "valid", "test", "-o", "e", "--clip-seconds", 1)
    assert (result.status, result.err) == (0, "")
    assert [line.split()[:2] for line in result.out.splitlines()[1:]] == [
        ["train", "2"],
        ["valid", "2"],
        ["test", "1"],
    ]


def test_prepare_json_is_the_manifest(call: Call, music: Path):
    result = call("prepare", music, "-o", "d", "--json")
    assert json.loads(result.out) == json.loads(Path("d/manifest.json").read_text())
    keys = {"format", "version", "media", "frame", "splits", "skipped", "split_by"}
    assert keys <= set(json.loads(result.out))


def test_prepare_reads_paths_globs_and_odd_names(call: Call, music: Path):
    """Guards names with spaces, brackets, accents and bytes that are no text."""
    odd = b"caf\xe9.mid".decode("utf-8", "surrogateescape")
    names = ["a b.mid", "[x]*?.mid", "überraschung 音.mid", "-dash.mid", odd]
    Path("m").mkdir()
    for k, name in enumerate(names):
        shutil.copy(music / "train" / f"{k}.mid", Path("m") / name)
    listed = "".join(f"m/{name}\n" for name in names)
    assert call("prepare", "-", "-o", "stdin", stdin=listed).status == 0
    assert call("prepare", "m/*.mid", "-o", "glob").status == 0
    assert call("prepare", *[f"m/{name}" for name in names], "-o", "names").status == 0
    for folder in ("stdin", "glob", "names"):
        splits = json.loads(Path(folder, "manifest.json").read_text())["splits"]
        assert sum(counts["pieces"] for counts in splits.values()) == len(names)
        assert call("inspect", folder).status == 0


@pytest.mark.parametrize("source", ["rolls", "rolls/*.npz", "rolls/r.npz"])
def test_published_rolls_have_two_steps_per_beat_however_they_are_named(call: Call, source: str):
    """Guards against sampled music at double speed because the rolls were named by their folder."""
    Path("rolls").mkdir()
    np.savez("rolls/r.npz", train=np.ones((5, 88), np.uint8))
    assert "2 steps per beat" in call("prepare", source, "-o", "d").out
    assert "3 steps per beat" in call("prepare", source, "-o", "e", "--steps-per-beat", 3).out


def write_sounds(folder: Path, count: int, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    for k in range(count):
        path = folder / f"{k}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, random.uniform(-1, 1, 8000 + 40 * k), 8000)
    return folder


def test_prepare_sums_up_audio_in_columns_with_seconds(call: Call):
    write_sounds(Path("s/train"), 3)
    write_sounds(Path("s/valid"), 1, seed=1)
    result = call("prepare", "s", "-o", "d", "--frame", 20, "--context", 30)
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "d: 8,000 Hz, frames of 20 samples, context 30, stored as int16\n"
        "  train  3 pieces  1,206 frames  longest 404  3.0 s\n"
        "  valid   1 piece    400 frames  longest 400  1.0 s\n"
    )
    manifest = json.loads(call("prepare", "s", "-o", "e", "--rate", 4000, "--json").out)
    assert manifest["frame"]["rate"] == 4000
    assert manifest == json.loads(Path("e/manifest.json").read_text())


OPTIONS = {
    "music": "--steps-per-beat=4 --step-seconds=1 --restrike=close --drums=drop --transpose-to-c",
    "audio": "--rate=8000 --context=20 --frame=10 --clip-seconds=1",
}


@pytest.mark.parametrize("media", OPTIONS)
def test_options_of_the_other_medium_are_refused(call: Call, music: Path, media: str):
    """Guards against an option that is taken, and then means nothing."""
    sounds = write_sounds(Path("s"), 1)
    right, wrong = (music, sounds) if media == "music" else (sounds, music)
    for option in OPTIONS[media].split():
        result = call("prepare", wrong, "-o", "d", option)
        name = option.partition("=")[0]
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith(f"seqmodel: {name} is for {media}, and {wrong}/")
        assert result.err.count("\n") == 1
        assert call("prepare", right, "-o", "d", "--force", option).status == 0


# ---- train --------------------------------------------------------------------------------------

EPOCH = r"epoch {}/2  train +\d+\.\d{{4}}  valid +\d+\.\d{{4}}\*  +[\d,]+ frames/s"


def test_train_speaks_in_plain_lines_when_nobody_watches(call: Call, data: Path, run: Path):
    """Guards the log of a job: one line per epoch, no control characters, the result on stdout."""
    result = call("train", data, "--hidden", 4, "--epochs", 2)
    lines = result.err.splitlines()
    assert lines[0] == f"runs/data-lstm-1: lstm of 4 units on {data}"
    assert re.fullmatch(EPOCH.format(1), lines[1])
    assert re.fullmatch(EPOCH.format(2), lines[2])
    assert re.match("a trivial model predicts valid better", lines[3])  # two epochs are not enough
    assert len(lines) == 4
    assert result.err.replace("\n", "").isprintable()
    best = json.loads(Path("runs/data-lstm-1/metrics.jsonl").read_text().splitlines()[1])
    assert result.out == (
        f"runs/data-lstm-1  best valid {best['valid_nats_per_frame']:.4f} nats per frame, "
        "epoch 2 of 2\n"
    )
    files = {"best.safetensors", "config.yaml", "last.safetensors", "learning-curve.png"}
    assert {f.name for f in Path("runs/data-lstm-1").iterdir()} == files | {"metrics.jsonl"}


def test_train_says_when_a_trivial_model_is_better_and_only_then(
    call: Call, data: Path, audio_dataset: Dataset
):
    """Guards against a run that learned nothing taken for a success; the figures are eval's."""
    audio, logistic = audio_dataset.folder, ["--output", "logistic", "--components", 2]
    for run, name, options, worse in [
        ("m", data, [], True),
        ("a", audio, [], True),
        ("b", audio, logistic, False),  # which starts at the linear prediction
    ]:
        train = ["train", name, "--hidden", 4, "--lr", 1e-9, "--epochs", 1, *options]
        result = call_ok(*train, "--run", run)
        told = json.loads(call("eval", run, "--json").out)
        baseline, figure = min(told["baselines"].items(), key=lambda item: item[1])
        assert (figure < told["nats_per_frame"]) == worse
        line = (
            f"a trivial model predicts valid better ({baseline.replace('_', ' ')}, {figure:.4f}): "
            f"train longer, or at another --learning-rate; `seqmodel eval {run}` shows all figures"
        )
        assert result.err.splitlines()[2:] == [line] * worse
        assert call_ok(*train, "-q").err == ""


def test_train_json_and_quiet(call: Call, data: Path):
    """Guards machine-readable output; runs without a name take the next number."""
    for number in (1, 2):
        result = call("train", data, "--hidden", 4, "--epochs", 1, "--json", "-q")
        assert result.err == ""
        values = json.loads(result.out)
        assert set(values) == {"run", "epochs", "best"}
        assert values["run"] == f"runs/data-lstm-{number}"
        assert values["best"]["epoch"] == values["epochs"] == 1


def test_a_search_names_each_rate(call: Call, data: Path):
    result = call("train", data, "--hidden", 4, "--epochs", 1, "--learning-rate-draws", 2)
    rates = [line for line in result.err.splitlines() if line.startswith("learning rate")]
    assert [rate[:23] for rate in rates] == ["learning rate 1 of 2: 9", "learning rate 2 of 2: 8"]
    assert result.out.count("\n") == 1


def test_settings_from_a_file_train_the_same_run(call: Call, data: Path, run: Path):
    """Guards against --config losing what the options said."""
    options = ["--hidden", 4, "--epochs", 2]
    Path("c.yaml").write_text(call("train", data, *options, "--print-config").out)
    call_ok("train", "--config", "c.yaml", "--run", "r")
    assert Path("r/config.yaml").read_text() == (run / "config.yaml").read_text()
    mine, theirs = (load_file(folder / "best.safetensors") for folder in (Path("r"), run))
    assert mine.keys() == theirs.keys()
    assert all((mine[name] == theirs[name]).all() for name in theirs)


def test_init_from_starts_from_the_weights(call: Call, data: Path, run: Path):
    """Guards against --init-from that is taken in and forgotten."""
    call_ok(
        "train", data, "--hidden", 4, "--epochs", 1, "--lr", 0, "--init-from", run, "--run", "r"
    )
    mine, theirs = (seqmodel.load_run(path).model.state_dict() for path in ("r", run))
    assert all((mine[name] == theirs[name]).all() for name in theirs)


@pytest.mark.parametrize("options", [[], ["--learning-rate-draws", 2]])
@pytest.mark.parametrize("start", [False, True])
def test_a_run_that_replaces_another_is_the_run_that_a_new_folder_gets(
    call: Call, data: Path, run: Path, options: list[object], start: bool
):
    """Guards against something of the old run left in the new, and against --init-from lost."""
    shutil.copytree(run, "old")
    Path("old/draws/7").mkdir(parents=True)
    Path("link").symlink_to("old")  # which stays a link
    train = ["train", data, "--hidden", 4, "--epochs", 1, *options]
    train += ["--init-from", run, "--lr", 1e-5] if start else []
    new = call_ok(*train, "--run", "new")
    replaced = call_ok(*train, "--run", "link", "--force")
    assert replaced.out == new.out.replace("new", "link")
    assert Path("link").is_symlink()
    ours, theirs = (
        {str(path.relative_to(folder)) for path in folder.rglob("*")}
        for folder in (Path("old"), Path("new"))
    )
    assert ours == theirs
    for name in ("best.safetensors", "config.yaml"):
        assert Path("old", name).read_bytes() == Path("new", name).read_bytes()
    assert {path.name for path in Path().iterdir()} == {"link", "new", "old"}


# ---- eval ---------------------------------------------------------------------------------------

FIGURES = ("nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame")
SCORES = ("accuracy", "precision", "recall")


def test_eval_prints_what_its_json_says(call: Call, data: Path, run: Path):
    """Guards against a table and a JSON that disagree; keys are those of the design."""
    values = json.loads(call("eval", run, "--json").out)
    counts = {"run", "data", "split", "epoch", "pieces", "frames"}
    assert set(values) == {*counts, *FIGURES, *SCORES, "baselines"}
    assert (values["run"], values["data"], values["split"]) == (str(run), str(data), "valid")
    figures = [values[name] for name in (*FIGURES, *SCORES)]
    table = call("eval", run)
    assert table.err == ""
    lines = table.out.splitlines()
    assert lines[0] == f"{run} (lstm, epoch 2) on valid of {data}: 3 pieces, 96 frames"
    assert [line.split()[-1] for line in lines[2:8]] == [f"{figure:.4f}" for figure in figures]
    assert lines[9] == "baselines, nats per frame"
    for line, (name, figure) in zip(lines[10:], values["baselines"].items(), strict=True):
        verdict = "" if values["nats_per_frame"] < figure else "  better than the run"
        assert line == f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}"
    assert "better than the run" in table.out  # two epochs are not enough


def test_eval_takes_the_newest_run_and_any_split(call: Call, data: Path):
    call_ok("train", data, "--hidden", 4, "--epochs", 1)
    call_ok("train", data, "--hidden", 4, "--epochs", 1, "--unit", "gru")
    values = json.loads(call("eval", "--split", "test", "--json").out)
    assert (values["run"], values["split"], values["frames"]) == ("runs/data-gru-1", "test", 64)


def test_eval_with_end_scores_the_end(call: Call, seconds_run: Path):
    values = json.loads(call("eval", seconds_run, "--json").out)
    assert (
        f"end, nats per piece      {values['end_nats_per_piece']:9.4f}"
        in call("eval", seconds_run).out
    )


def test_eval_on_frames_of_another_kind_warns(call: Call, data: Path, seconds_run: Path):
    """Guards against comparing figures per frame of different frames unawares."""
    warned = call("eval", seconds_run, "--data", data)
    assert warned.status == 0
    assert warned.err == (
        f"{data} was prepared otherwise (88 notes, 4 steps per beat) than what the run was "
        "trained on (88 notes, 0.1 s a step): its figures are no fair test\n"
    )
    assert call("eval", seconds_run, "--data", data, "-q").err == ""


# ---- sample -------------------------------------------------------------------------------------


def test_a_sampled_midi_file_prepared_again_gives_the_sampled_frames(
    call: Call, data: Path, run: Path, seconds_run: Path
):
    """Guards the whole circle, at any tempo and for both kinds of grid, bit for bit."""
    circles = [
        (run, [], []),
        (run, ["--tempo", "93"], []),
        (run, ["--tempo", "93.7", "--temperature", "2"], []),
        (seconds_run, [], ["--step-seconds", "0.1"]),
        (seconds_run, ["--tempo", "93"], ["--step-seconds", "0.1"]),
    ]
    for k, (trained, options, grid) in enumerate(circles):
        for suffix in ("npy", "mid"):
            call_ok("sample", f"{k}.{suffix}", "--run", trained, "--length", 300, *options)
        call_ok("prepare", f"{k}.mid", "-o", f"d{k}", *grid)
        again = seqmodel.open_dataset(f"d{k}")
        split = again[again.splits[0]]
        assert np.array_equal(split[0], np.load(f"{k}.npy")), options


@pytest.mark.parametrize("kind", ["mid", "npy", "png"])
def test_the_same_seed_gives_the_same_bytes(kind: str, call: Call, run: Path):
    """Guards reproducible samples, in a file and on stdout alike."""
    options = ["--run", run, "--length", 12]
    first = call("sample", f"a.{kind}", *options)
    assert (first.status, first.out, first.err) == (0, "", f"a.{kind}: 12 frames from {run}\n")
    streamed = call("sample", "-", "--format", kind, *options)
    assert (streamed.status, streamed.err) == (0, "")
    call_ok("sample", "b", "--format", kind, "-q", *options)
    assert Path(f"a.{kind}").read_bytes() == Path("b").read_bytes() == streamed.raw
    other = call("sample", "-", "--format", kind, "--seed", 2, *options)
    assert other.raw != streamed.raw


def test_number_length_and_names(call: Call, run: Path):
    """Guards numbered files: the first is the one a single sample gives, all are named."""
    result = call("sample", "new/o.npy", "-n", 3, "--run", run, "--length", 9)
    assert result.err == "".join(f"new/o-{k}.npy: 9 frames from {run}\n" for k in (1, 2, 3))
    call_ok("sample", "o.NPY", "--run", run, "--length", 9)
    rolls = [np.load(f"new/o-{k}.npy") for k in (1, 2, 3)]
    assert np.array_equal(rolls[0], np.load("o.NPY"))
    assert not np.array_equal(rolls[0], rolls[1])
    again = call("sample", "new/o.npy", "-n", 2, "--run", run)
    assert again.err == "seqmodel: new/o-1.npy exists already; add --force to replace it\n"
    assert call("sample", "new/o.npy", "-n", 2, "--run", run, "--force").status == 0
    assert len(np.load("new/o-1.npy")) == 256


@pytest.mark.parametrize(("seconds", "tempo", "frames"), [(2, 120, 16), (2, 60, 8), (0.01, 120, 1)])
def test_seconds_count_at_the_tempo(
    seconds: float, tempo: float, frames: int, call: Call, run: Path
):
    call_ok("sample", "o.npy", "--run", run, "--seconds", seconds, "--tempo", tempo)
    assert len(np.load("o.npy")) == frames


def test_the_file_has_the_tempo_that_was_asked_for(call: Call, run: Path, seconds_run: Path):
    """Guards against --tempo that only counts seconds; frames in seconds keep their length."""
    for trained, seconds in ((run, 62 * 60 / 93 / 4), (seconds_run, 6.2)):
        options = ["--run", trained, "--length", 62, "--tempo", 93, "--force"]
        call_ok("sample", "o.mid", *options)
        call_ok("sample", "o.npy", *options)
        values = json.loads(call("inspect", "o.mid", "--json").out)
        assert values["tempo_bpm"] == pytest.approx(93, abs=0.01)
        assert values["seconds"] == pytest.approx(seconds * len(np.load("o.npy")) / 62, abs=0.01)


def test_a_run_with_end_is_no_longer_than_what_it_heard(call: Call, seconds_run: Path):
    call_ok("sample", "o.npy", "--run", seconds_run, "-n", 5)
    longest = json.loads((seconds_run.parent / "seconds" / "manifest.json").read_text())
    lengths = [len(np.load(f"o-{k}.npy")) for k in range(1, 6)]
    assert max(lengths) <= longest["splits"]["train"]["longest"]


def test_prime_is_heard_and_put_before_only_when_asked(call: Call, music: Path, run: Path):
    """Guards against a primer that changes nothing, or that slips into the file."""
    primer = music / "train" / "0.mid"
    options = ["--run", run, "--length", 300]
    call_ok("sample", "plain.npy", *options)
    call_ok("sample", "primed.npy", *options, "--prime", primer)
    call_ok("sample", "both.npy", *options, "--prime", primer, "--include-prime")
    call_ok("sample", "both.png", *options, "--prime", primer, "--include-prime")
    plain, primed, both = (np.load(f"{name}.npy") for name in ("plain", "primed", "both"))
    call_ok("prepare", primer, "-o", "d")
    heard = seqmodel.open_dataset("d")
    assert np.array_equal(both, np.concatenate([heard[heard.splits[0]][0], primed]))
    assert len(primed) == len(plain) == 300
    assert not np.array_equal(plain, primed)
    assert Path("both.png").read_bytes().startswith(PNG)


def test_a_sampled_roll_primes_like_its_midi_file(call: Call, run: Path):
    """Guards against frames that were written here and cannot be used again."""
    for name in ("o.npy", "o.mid"):
        call_ok("sample", name, "--run", run, "--length", 50, "--seed", 2)
    for name in ("npy", "mid"):
        prime = ["--prime", f"o.{name}", "--include-prime"]
        result = call("sample", f"{name}.npy", "--run", run, "--length", 50, *prime)
        assert (result.status, result.err) == (0, f"{name}.npy: 100 frames from {run}\n")
    assert np.array_equal(np.load("npy.npy")[:50], np.load("o.npy"))
    assert Path("npy.npy").read_bytes() == Path("mid.npy").read_bytes()


# ---- inspect ------------------------------------------------------------------------------------


def test_inspect_midi(call: Call, here: Path):
    write_piece(Path("p.mid"), seed=3)
    result = call("inspect", "p.mid", "--plot", "new/p.png")
    values = json.loads(call("inspect", "p.mid", "--json").out)
    assert result.out == (
        "p.mid: MIDI format 0, 1 track\n"
        f"  {values['notes']} notes from {values['lowest']} to {values['highest']}\n"
        "  4.0 s at 120 bpm\n"
        f"  tonic {values['tonic']} (estimated)\n"
        "  32 frames at 4 steps per beat, 2.00 notes per frame\n"
    )
    assert result.err == "drawn to new/p.png\n"
    assert Path("new/p.png").read_bytes().startswith(PNG)
    keys = {"path", "kind", "format", "tracks", "channels", "notes", "tempo_bpm", "seconds"}
    assert keys | {"tonic", "grid", "frames", "notes_per_frame", "remarks"} <= set(values)


def test_inspect_roll(call: Call, run: Path):
    """Guards a sampled roll's notes: those of the same piece's MIDI file."""
    for name in ("o.npy", "o.mid"):
        call_ok("sample", name, "--run", run, "--length", 50)
    result = call("inspect", "o.npy", "--plot", "p.png")
    values, midi = (json.loads(call("inspect", name, "--json").out) for name in ("o.npy", "o.mid"))
    assert values.pop("kind") == "roll"
    assert values.pop("path") == "o.npy"
    assert list(values) == ["notes", "lowest", "highest", "frames", "notes_per_frame"]
    assert values == {name: midi[name] for name in values}
    assert result.out == (
        "o.npy: piano-roll of 50 frames\n"
        f"  {values['notes']} notes from {values['lowest']} to {values['highest']}, "
        f"{values['notes_per_frame']:.2f} notes per frame\n"
    )
    assert result.err == "drawn to p.png\n"
    assert Path("p.png").read_bytes().startswith(PNG)
    np.save("silent.npy", np.zeros((1, 88)))
    assert call("inspect", "silent.npy").out == (
        "silent.npy: piano-roll of 1 frame\n  0 notes, 0.00 notes per frame\n"
    )


def test_inspect_dataset(call: Call, data: Path):
    result = call("inspect", data, "--plot", "p.png", "-q")
    assert result.err == ""
    assert result.out == (
        f"{data}: dataset of 88 notes, 4 steps per beat\n"
        "  train  10 pieces  320 frames  longest 32  2.00 notes per frame\n"
        "  valid   3 pieces   96 frames  longest 32  2.00 notes per frame\n"
        "  test    2 pieces   64 frames  longest 32  2.00 notes per frame\n"
        "  every piece is as it was prepared\n"
    )
    assert Path("p.png").read_bytes().startswith(PNG)
    values = json.loads(call("inspect", data, "--json").out)
    assert values["kind"] == "dataset"
    assert values["splits"]["valid"] == {"pieces": 3, "frames": 96, "longest": 32}


def test_inspect_says_what_a_recording_and_its_dataset_hold(call: Call):
    tone = 0.5 * np.sin(np.arange(16000) * 0.1)
    soundfile.write("a.wav", tone, 8000)
    shown = call("inspect", "a.wav", "--plot", "a.png")
    assert (shown.status, shown.err) == (0, "drawn to a.png\n")
    assert shown.out == (
        "a.wav: WAV PCM_16, 8,000 Hz, 1 channel\n"
        "  2.000 s, 16,000 samples\n"
        "  peak 0.5000, RMS -9.0 dB, 0 clipped\n"
        "  1,600 frames of 10 samples, mono, stored as int16\n"
    )
    assert Path("a.png").read_bytes().startswith(PNG)
    assert json.loads(call("inspect", "a.wav", "--json").out)["samples"] == 16000
    stored, _ = soundfile.read("a.wav")
    Path("train").mkdir()
    Path("a.wav").rename("train/a.wav")
    call("prepare", "train", "-o", "d")
    shown = call("inspect", "d", "--plot", "d.png")
    assert shown.out == (
        "d: dataset of 8,000 Hz, frames of 10 samples, context 20\n"
        "  train  1 piece  1,600 frames  longest 1,600  2.0 s\n"
        f"  stored as int16; train has mean {stored.mean():.4g} and deviation {stored.std():.4g}\n"
        "  every piece is as it was prepared\n"
    )
    assert Path("d.png").read_bytes().startswith(PNG)
    assert json.loads(call("inspect", "d", "--json").out)["seconds"] == {"train": 2.0}


def test_inspect_run(call: Call, data: Path, run: Path):
    result = call("inspect", run, "--plot", "p.png")
    values = json.loads(call("inspect", run, "--json").out)
    best = values["best"]
    assert result.out == (
        f"{run}: run of 2 epochs\n"
        "  lstm, 4 hidden, 1 layer: 1,500 parameters, 1,940 with the output\n"
        f"  trained on {data}, 88 notes, 4 steps per beat\n"
        f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame, epoch 2; "
        f"accuracy {best['valid_accuracy']:.4f}\n"
    )
    assert Path("p.png").read_bytes() == (run / "learning-curve.png").read_bytes()
    assert values["config"]["hidden"] == 4


def test_inspect_a_run_killed_before_its_metrics_were_written(call: Call, run: Path):
    """Guards against a traceback on what kill -9 can leave: a best epoch without its line."""
    shutil.copytree(run, "r")
    Path("r/metrics.jsonl").unlink()
    result = call("inspect", "r")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("r: run of 0 epochs\n  lstm, 4 hidden")


# ---- units --------------------------------------------------------------------------------------


def test_units_prints_equations_and_counts(call: Call):
    """Guards the paper's sizes: 169,065, 168,888 and 168,400 parameters of speech units."""
    shown = call("units", "gru1", "--inputs", 3, "--hidden", 2)
    assert shown.out.splitlines()[-1] == "    3 inputs, 2 hidden: 24 parameters"
    assert any("z = s(Uz h' + bz)" in line for line in shown.out.splitlines())
    for unit, hidden, count in (("lstm", 195, 169065), ("gru", 227, 168888), ("tanh", 400, 168400)):
        values = json.loads(call("units", unit, "--inputs", 20, "--hidden", hidden, "--json").out)
        assert values["units"][0]["parameters"] == count


def test_units_solves_the_size(call: Call):
    values = json.loads(call("units", "--params", 20000, "--json").out)["units"]
    assert len(values) == 9
    keys = {"unit", "equations", "gates", "source", "inputs", "hidden", "parameters"}
    assert all(set(unit) == keys for unit in values)
    assert all(abs(unit["parameters"] - 20000) < 1000 for unit in values)


# ---- said before it misleads --------------------------------------------------------------------


def test_rolls_mixed_with_midi_say_whose_grid_counts(call: Call, music: Path):
    """Guards against rolls of eighth notes labelled as sixteenths in silence."""
    shutil.copytree(music, "m")
    np.save("m/train/roll.npy", np.eye(88, dtype=np.uint8))
    told = "rolls state no grid of their own: that of the MIDI files is taken\n"
    assert call("prepare", "m", "-o", "d").err == told
    assert call("prepare", "m", "-o", "e", "--steps-per-beat", 4).err == ""
    assert call("prepare", "m/train/roll.npy", "-o", "f").out.startswith("f: 88 notes, 2 steps")


def test_a_silent_sample_is_called_silent(call: Call, run: Path):
    """Guards against a plain success where temperature 0 leaves no note likelier on than off."""
    result = call("sample", "o.npy", "--run", run, "--temperature", 0, "--length", 8)
    assert not np.load("o.npy").any()
    assert result.err == f"o.npy: 8 frames from {run}, silent: try a higher --temperature\n"


def test_the_mark_of_a_silent_end_is_not_counted_as_a_note(call: Call, run: Path):
    call("sample", "o.mid", "--run", run, "--temperature", 0, "--length", 8)
    shown = json.loads(call("inspect", "o.mid", "--json").out)
    assert (shown["notes"], shown["frames"], shown["lowest"]) == (0, 8, None)
    assert "  0 notes\n" in call("inspect", "o.mid").out


def test_the_same_dataset_may_be_named_again_on_resume(call: Call, data: Path, run: Path):
    """Guards the command one gets with arrow up and --resume; the run is finished already."""
    result = call("train", data, "--hidden", 4, "--resume", "--run", run)
    assert result.out.startswith(f"{run}  best valid ")
