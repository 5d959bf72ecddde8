"""Pages of runs, and what inspection of runs and datasets finds."""

import json
import shutil
import zipfile
from functools import partial
from io import BytesIO
from threading import Thread
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile
from refusals import refused

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.media.audio.inspection import inspect_audio
from seqmodel.media.audio.medium import Audio
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.report import watching
from seqmodel.report.inspection import inspect_run
from seqmodel.report.page.parts import Curves, Samples, Table
from seqmodel.report.run_page import draw, real_piece, run_page
from seqmodel.report.subjects import load_subjects, score
from seqmodel.runs import folder as runs
from seqmodel.runs.folder import load_run
from seqmodel.sampling.sampler import Sampler


def ignore(done, total):
    pass


@pytest.fixture
def make_page():
    """A function of run folders that returns their page."""

    def make(*folders, number=0):
        subjects = load_subjects(folders)
        samples = draw(subjects, number=number, seed=3, progress=ignore)
        return run_page(score(subjects, ignore), samples, seed=3, command="a command")

    return make


def of_kind(section, kind):
    return [part for part in section.parts if isinstance(part, kind)]


def test_densities_and_probabilities_are_kept_apart(
    make_page, audio_run_folder, logistic_run_folder
):
    """Guards against a table or a chart of nats that are not comparable."""
    page = make_page(audio_run_folder, logistic_run_folder)
    *sections, _ = page.sections
    assert [section.heading for section in sections] == ["tones (densities)", "tones"]
    for section, folder in zip(sections, (audio_run_folder, logistic_run_folder), strict=True):
        run = load_run(folder)
        values = evaluate(run, open_dataset(run.config.data), "valid")
        figures, more = of_kind(section, Table)
        ours, *trivial = figures.rows
        assert ours.cells[2] == f"{values['nats_per_frame']:.4f}"
        assert ours.strong == frozenset()  # nothing to be better than
        names = [f"{name} (trivial)" for name in values["baselines"]]
        assert [row.cells[0] for row in trivial] == names
        assert [curve.name for curve in of_kind(section, Curves)[0].curves] == [folder.name]
        names = list(more.columns)
        assert ("bits per sample" in names) == (folder == logistic_run_folder)
        assert (
            more.rows[1].cells[names.index("nats per sample")] == f"{values['nats_per_sample']:.4f}"
        )


def test_the_best_of_several_stands_out(make_page, run_folder, make_config, train, tmp_path):
    """Guards against emphasis on the highest figure, which is the worst."""
    train(make_config(epochs=1), tmp_path / "short")
    figures = of_kind(make_page(tmp_path / "short", run_folder).sections[0], Table)[0]
    short, long = figures.rows[:2]
    for k in (1, 2, 3):
        best = short if float(short.cells[k]) < float(long.cells[k]) else long
        assert [k in row.strong for row in (short, long)] == [row is best for row in (short, long)]
    assert 2 in long.strong


def test_samples_of_audio_are_the_exact_sound(make_page, sample_wise_run_folder, monkeypatch):
    """Checks every 16-bit level of the FLAC, of two samples and of as much of the data."""
    run = load_run(sample_wise_run_folder)
    valid = open_dataset(run.config.data)["valid"]
    length = valid[0].size + 30  # ends within the second piece
    monkeypatch.setattr(Audio, "page_seconds", length / 8000)
    (part,) = of_kind(make_page(sample_wise_run_folder, number=2).sections[0], Samples)
    pieces = [
        np.concatenate([*Sampler(run.model).piece(length // 10, seed=3, number=k)]) for k in (0, 1)
    ]
    pieces.append(np.concatenate([valid[0].reshape(-1), valid[1].reshape(-1)[:30]]))
    names = [f"tones-lstm-3, sample {k}" for k in (1, 2)]
    names.append("Real pieces, 0.wav to 1.wav of valid")
    for sample, piece, name in zip(part.samples, pieces, names, strict=True):
        heard, rate = soundfile.read(BytesIO(sample.sound), dtype="int16")
        np.testing.assert_array_equal(heard, np.rint(piece.reshape(-1) * 32768))
        assert sample.caption == f"{name}: 0.1 s (670 samples at 8,000 Hz)"
        assert (rate, sample.picture.seconds) == (8000, length / 8000)


def test_music_can_be_saved_and_stands_beside_a_real_piece(
    make_page, run_folder, tmp_path, monkeypatch
):
    """Guards against a MIDI that is not the music heard, read back here by `prepare`'s reader."""
    monkeypatch.setattr(MusicSampling, "_hint", lambda *_: "odd")
    (part,) = of_kind(make_page(run_folder, number=1).sections[0], Samples)
    run = load_run(run_folder)
    pieces = [np.concatenate([*Sampler(run.model).piece(240, seed=3)])]
    pieces.append(open_dataset(run.config.data)["valid"][0])
    for sample, piece in zip(part.samples, pieces, strict=True):
        name, content = sample.download
        (tmp_path / name).write_bytes(content)
        np.testing.assert_array_equal(load_midi(tmp_path / name, run.frame).frames, piece)
        assert sample.caption.startswith(f"{name.removesuffix('.mid')}: {len(piece)} frame")
        assert sample.caption.endswith(" s; odd")


def test_a_part_of_a_file_is_named_after_the_file(run_folder, tmp_path):
    """Guards against frame numbers as the name of a piece that is cut out of a file."""
    run = load_run(run_folder)
    folder = shutil.copytree(run.data, tmp_path / "data")
    index = folder / "valid.jsonl"
    first, *others = index.read_text("utf-8").splitlines()
    for source in ("a/b#1.mid#frames/12-25", "a/b#1.mid#valid/0#frames/12-25", "a/b#1.mid"):
        line = json.dumps({**json.loads(first), "source": source})
        index.write_text("\n".join([line, *others, ""]), "utf-8")
        (sample,) = real_piece(run, open_dataset(folder))
        assert sample.download[0] == "A real piece, b#1.mid of valid.mid"


def test_a_medium_that_cannot_be_played_has_no_samples(make_page, audio_run_folder, monkeypatch):
    """Guards against a page that fails for a third medium without a player."""
    monkeypatch.setattr(Audio, "page_format", "")
    page = make_page(audio_run_folder, number=1)
    assert not of_kind(page.sections[0], Samples)


def test_a_dataset_prepared_differently_gets_a_remark(
    make_page, make_config, train, dataset, tmp_path
):
    """Guards against unfair figures that look like fair ones."""
    shutil.copytree(dataset.folder, tmp_path / "data")
    config = make_config(data=str(tmp_path / "data"), epochs=1)
    train(config, tmp_path / "run", data=open_dataset(tmp_path / "data"))
    manifest = json.loads((tmp_path / "data/manifest.json").read_text())
    manifest["frame"]["drums"] = True
    (tmp_path / "data/manifest.json").write_text(json.dumps(manifest))
    remark = make_page(tmp_path / "run").sections[0].notes[-1]
    assert "prepared differently after run was trained (drums kept, not drums dropped)" in remark


def test_a_run_killed_before_its_metrics_were_written_has_a_page(make_page, run_folder, tmp_path):
    """The best checkpoint is written first; its metrics line may be missing."""
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / runs.METRICS).unlink()
    section = make_page(tmp_path / "run").sections[0]
    (curve,) = of_kind(section, Curves)[0].curves
    assert (curve.metrics, curve.best_line) == ([], None)
    figures = of_kind(section, Table)[0].rows[0].cells
    assert figures[-2:] == ("\N{EN DASH}", "\N{EN DASH}")


def test_the_best_draw_of_a_search_is_labelled_as_one(make_page, run_folder, tmp_path):
    """Guards against taking the time of one draw for the time of the whole search."""
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / runs.DRAWS_INDEX).touch()
    notes = of_kind(make_page(tmp_path / "run").sections[0], Table)[0].notes
    assert "run is the best trial of a search; its time is that of this trial." in notes


def test_a_watched_page_is_made_anew_whatever_has_changed(run_folder, tmp_path, monkeypatch):
    """A zip exported again, a run without best weights yet, what could not be read for a moment."""
    zipped, begun = tmp_path / "run.zip", tmp_path / "begun"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.write(run_folder / runs.BEST, runs.BEST)
    shutil.copytree(run_folder, begun, ignore=shutil.ignore_patterns(runs.BEST))
    said = list[str]()

    def fail(run):
        raise SeqmodelError(f"{run} is busy")

    with monkeypatch.context() as patch:
        patch.setattr(watching, "load_run", fail)
        server = watching.make_server([zipped, begun], "a command", said.append)
    thread = Thread(target=server.serve_forever)
    thread.start()

    def page():
        return urlopen(f"http://127.0.0.1:{server.server_port}/").read().decode()

    try:
        assert said == [f"not shown: {run} is busy" for run in (zipped, begun)]
        assert "busy" not in page()
        zipped.write_bytes(b"cut")
        assert f"{zipped} is not a run" in page()
        zipped.unlink()
        with zipfile.ZipFile(zipped, "w") as archive:
            archive.write(run_folder / runs.BEST, runs.BEST)
        assert f"{zipped} is not a run" not in page()
        (begun / runs.LAST).write_bytes(b"cut")
        assert f"{begun / runs.LAST} is " in page()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_silence_has_no_level(tmp_path):
    """The logarithm of 0 is not finite, and JSON cannot hold it."""
    soundfile.write(tmp_path / "a.wav", np.zeros(8), 8000)
    values = inspect_audio(tmp_path / "a.wav", {}, tmp_path / "plot.png")
    assert (values["peak"], values["rms_db"], values["clipped_samples"]) == (0.0, None, 0)
    assert (values["frames"], values["dtype"]) == (0, "int16")


def test_a_run_without_an_epoch_can_be_inspected(run_folder, tmp_path):
    """Also if the best checkpoint, which is written first, is there without its line of metrics."""
    shutil.copy(run_folder / runs.CONFIG, tmp_path)
    expected = {"path": str(tmp_path), "kind": "run", "epochs": 0, "remark": ""}
    assert inspect_run(tmp_path, None) == expected
    (tmp_path / runs.DRAWS).mkdir()
    assert "has not finished its search" in inspect_run(tmp_path, None)["remark"]
    draw = partial(inspect_run, tmp_path, tmp_path / "plot.png")
    refused(draw, "no complete epoch to draw yet")
    shutil.copy(run_folder / runs.BEST, tmp_path)
    values = inspect_run(tmp_path, None)
    assert (values["epochs"], "best" in values, "model" in values) == (0, False, True)
