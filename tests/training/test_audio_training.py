"""Training on audio: state and samples carried between windows, stops within a piece, learning."""

import pytest

from seqmodel.config import resolve
from seqmodel.data.bundled import sample_dataset
from seqmodel.data.dataset import open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.audio.evaluation import audio_nats_per_frame
from seqmodel.media.audio.frames import AudioFrames, AudioSettings
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import with_sizes
from seqmodel.runs.folder import read_metrics
from seqmodel.training import loop

# ---- what is learned ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    return open_dataset(sample_dataset(tmp_path_factory.mktemp("speech"), "speech"))


def test_two_epochs_of_the_bundled_speech_beat_the_trivial_models(tmp_path, train, speech):
    """Guards against defaults that do not learn speech, or learn it slowly from a bad start.

    The README's commands do the same with the logistic output.
    """
    options = {
        "unit": "gru",
        "hidden": 32,
        "epochs": 2,
        "output": "gaussian",
        "model": "frame-wise",
    }
    train(resolve(options, presets=AUDIO.presets), tmp_path / "run", data=speech)
    first, second = read_metrics(tmp_path / "run")
    assert second["train_nats_per_frame"] < first["train_nats_per_frame"] - 0.5
    assert second["valid_nats_per_frame"] < first["valid_nats_per_frame"]
    train_split, valid = speech["train"], speech["valid"]
    trivial = audio_nats_per_frame(train_split, valid, speech.frame, discrete=False)
    assert second["valid_nats_per_frame"] < min(trivial.values()) - 1


# ---- windows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_frames(tmp_path_factory, recordings):
    """A function of (frame, context) that returns the recordings as a dataset of such frames."""
    import soundfile

    folder = tmp_path_factory.mktemp("frames")
    for split, pieces in recordings.items():
        (folder / "in" / split).mkdir(parents=True)
        for k, samples in enumerate(pieces):
            soundfile.write(folder / "in" / split / f"{k}.wav", samples, 8000)

    def made(frame, context):
        out = folder / f"{frame}-{context}"
        if not out.exists():
            prepare(
                find_sources([str(folder / "in")]),
                out,
                AudioSettings(frame_size=frame, context=context),
            )
        return open_dataset(out)

    return made


@pytest.mark.parametrize(
    ("output", "frame", "context", "truncate"),
    [
        ("gaussian", 10, 20, 2),
        ("logistic", 10, 3, 7),
        ("gaussian", 4, 33, 7),
        ("logistic", 1, 5, 7),
    ],
)
def test_windows_carry_the_state_and_the_samples(
    tmp_path, make_audio_config, train, other_frames, output, frame, context, truncate
):
    """At a learning rate of 0 the loss is that of whole pieces; a carry that is lost shows."""
    options = {"epochs": 1, "learning_rate": 0.0, "output": output, "batch_size": 5}
    data = other_frames(frame, context)
    trainer = train(make_audio_config(**options, truncate=truncate), tmp_path / "cut", data=data)
    (line,) = read_metrics(tmp_path / "cut")
    whole = likelihood(trainer.state.model, data["train"]).nats_per_frame
    assert line["train_nats_per_frame"] == pytest.approx(whole, rel=2e-5)


def test_no_more_than_a_window_is_read_at_a_time(
    tmp_path, make_audio_config, train, audio_dataset, monkeypatch
):
    """Guards against holding long recordings in memory as a whole, a batch of them at once."""
    lengths, load = [], loop.batches.load

    def loading(split, *given, **named):
        batch = load(split, *given, **named)
        if split.name == "train":
            lengths.append(len(batch.frames))
        return batch

    monkeypatch.setattr(loop.batches, "load", loading)
    train(make_audio_config(truncate=8, epochs=1), tmp_path / "run", data=audio_dataset)
    assert max(lengths) == 8
    assert len(lengths) > 20


@pytest.mark.parametrize(("unit", "hidden"), [("lstm", 195), ("gru", 227), ("tanh", 400)])
def test_the_papers_protocol_for_speech(unit, hidden):
    """Chung et al. 2014, section 4: 20 samples predict 10; about 169,000 weights in the unit."""
    frame = AudioFrames(16_000)
    config = with_sizes(resolve({"preset": "paper", "unit": unit}, presets=AUDIO.presets), frame)
    assert (frame.context, frame.frame_size, config.hidden) == (20, 10, hidden)
    assert (config.optimizer, config.weight_noise, config.clip) == ("rmsprop", 0.075, 1.0)
    assert (config.components, config.learning_rate_draws, config.schedule) == (20, 10, "constant")


# ---- other frames, the paper -------------------------------------------------------------------
