"""Where training starts: the frames that an output starts from, and the resulting model."""

import numpy as np
import pytest
import torch
from noise import in_memory
from onsets import restrikes

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model.build import build_model
from seqmodel.outputs import samples as sample_blocks
from seqmodel.outputs.first_change import FirstChange

F, C = 3, 7
LENGTHS = (5, 1, 12, 2, 40, 1, 1, 8)


@pytest.fixture
def split():
    """Pieces of frames of 3 samples, no two samples alike: each encodes its position."""
    frame = AudioFrames(8000, F, C, "float32", 0.1, 0.2)
    ends = np.cumsum(LENGTHS) * F
    samples = np.arange(1, ends[-1] + 1, dtype=np.float32) / 1000
    return in_memory(frame, *np.split(samples, ends[:-1]))


def shown(monkeypatch, config, split):
    """The arrays that `start_at` passes to `start_at_data`."""
    model, given = build_model(config, split.frame), []
    monkeypatch.setattr(model.output, "start_at_data", lambda *arrays: given.extend(arrays))
    model.output.start_at(split)
    return given


def windows(split, stride):
    """Every stride-th frame of all pieces in a row, with the C samples before it in its piece."""
    rows = []
    for piece in split:
        line = [0.0] * C + piece.ravel().tolist()
        rows += [line[t : t + C + F] for t in range(0, piece.size, F)]
    return np.array(rows[::stride], np.float32)


@pytest.mark.parametrize("frames", [1000, 20, 1])
def test_frames_are_taken_evenly_from_all_pieces(monkeypatch, make_audio_config, split, frames):
    """Guards against taking first frames only, zeros before them, and seams between pieces."""
    monkeypatch.setattr(sample_blocks, "_START_FRAMES", frames)
    expected = windows(split, max(1, sum(LENGTHS) // frames))
    (blocks,) = shown(monkeypatch, make_audio_config(output="gaussian"), split)
    np.testing.assert_array_equal(blocks, expected[:, C:])
    before, targets = shown(monkeypatch, make_audio_config(output="logistic"), split)
    chosen = np.array([row[n % F : n % F + C + 1] for n, row in enumerate(expected)])
    np.testing.assert_array_equal(before, chosen[:, :C])
    np.testing.assert_array_equal(targets, chosen[:, C])


def test_a_signal_whose_period_is_whole_blocks_is_predicted_at_every_sample(make_audio_config):
    """Fitted to the first samples of blocks alone, the predictor saw two phases of a wave."""
    frame = AudioFrames(8000, F, C, "float32", 0.0, 1.0)
    samples = np.tile(np.repeat(np.float32([0.99, -1.0]), F), 200)
    wave = in_memory(frame, samples)
    output = build_model(make_audio_config(output="logistic"), frame).output
    output.start_at(wave)
    before = np.lib.stride_tricks.sliding_window_view(samples, C + 1)
    z = output.standardised(torch.from_numpy(before.copy()))
    error = (z[:, :-1] @ output.predictor - z[:, -1]).abs().max()
    assert error < 0.1


def test_strikes_start_at_how_often_sounding_notes_are_struck_again(make_config, struck_dataset):
    """Counted note by note; as a share of all frames or of all strikes it would differ."""
    model = build_model(make_config(end=True), struck_dataset.frame)
    model.output.start_at(struck_dataset["train"])
    again, could = restrikes(struck_dataset["train"])
    assert 0 < again.sum() < could.sum()
    chances = torch.sigmoid(model.output.linear.bias.detach().double()).numpy()
    np.testing.assert_allclose(chances[88:176], (again + 0.5) / (could + 1), rtol=1e-5)
    every = np.concatenate(list(struck_dataset["train"]))
    counts = np.append(every[:, :88].sum(0), len(struck_dataset["train"]))
    np.testing.assert_allclose(
        np.delete(chances, range(88, 176)), (counts + 0.5) / (len(every) + 1), rtol=1e-5
    )


def test_notes_up_to_the_first_change_start_at_their_shares_of_train(struck_dataset):
    """Guards against counting notes above a change, which the layer never tells."""
    train = struck_dataset["train"]
    chances, counts = np.zeros(3), np.zeros(3)  # of beginnings, ends and strikes of held notes
    for piece in train:
        past = np.zeros(88, bool)
        for frame in piece > 0:
            sounds, strikes = frame[:88], frame[88:]
            for note in range(88):
                held, sounding, struck = past[note], sounds[note], strikes[note]
                of = [not held, held, held and sounding]
                chances += of
                counts += np.array(of) & [sounding, not sounding, struck]
                if held != sounding or struck:
                    break
            past = sounds
    output = FirstChange(5, 88, onsets=True, hits=False)
    output.start_at(train)
    frame = torch.zeros(1, 1, 176)
    frame[..., 40:] = 1  # rows below are silent, those from 40 on held
    a, _ = output.read(torch.randn(1, 88, 5), torch.arange(0))
    logits = output.logits(a, frame[0])[0].detach().numpy()
    begins, ends, again = np.log((counts + 0.5) / (chances - counts + 0.5))
    np.testing.assert_allclose(
        logits[[0, 39, 40, 87, 128]], [begins, begins, -ends, -ends, again], 1e-5
    )
