"""The echo: its text, run by Python and compiled, against a brute-force definition."""

import numpy as np
import pytest
import torch
from models import model_of, read_however_cut
from texts import compiled

from seqmodel.config import MODELS
from seqmodel.model.echo import LONGEST, REACH_BACK, STEPS, memory_size, remember, words_of
from seqmodel.model.notes import NoteEncoder

pytestmark = pytest.mark.usefixtures("unoptimised")

SIZES = pytest.mark.parametrize("size", [1, 63, 88, 129, 176])


def pieces(T, B, size, kinds=3, seed=0):
    """Frames (T, B, size) of only a few kinds, so that stretches recur."""
    random = np.random.default_rng(seed)
    kind = random.random((kinds, size)) < 0.3
    kind[0] = False
    kind[1, -1] = True  # the last bit of the last word
    return kind[random.integers(0, kinds, (T, B))].astype(np.float64)


def by_hand(heard):
    """The rule over a list of frames: the longest stretch's length, and the frame that followed."""
    last, best, after = len(heard) - 1, 0, None
    for j in range(max(0, last - REACH_BACK + 1), last):
        length = 0
        while length < min(j + 1, LONGEST) and heard[j - length] == heard[last - length]:
            length += 1
        if length and length >= best:  # the latest wins a tie
            best, after = length, heard[j + 1]
    return best, after


def listened(frames, text):
    """(length, what followed or None) after each of a piece's frames (T, size); its memory."""
    size, found = frames.shape[1], []
    words, memory = words_of(size), np.zeros(memory_size(size), np.int64)
    runs, kept = memory[1:], memory[1 + REACH_BACK :].reshape(REACH_BACK, words)
    for frame in frames:
        end = text(frame=frame, memory=memory, size=size, words=words)
        bits = kept[(end + 1) % REACH_BACK, :, np.newaxis] >> np.arange(64) & 1
        found.append((runs[end], bits.ravel()[:size].tolist()) if end >= 0 else (0, None))
    return found, memory


def compiled_text(size):
    """`remember`, compiled."""
    example = {"frame": np.zeros(size), "memory": np.zeros(1, np.int64), "size": size}
    run = compiled(remember, example, words=words_of(size))
    return lambda words, **given: run(**given)


@SIZES
def test_what_followed_is_found_where_the_definition_finds_it(size):
    """Guards against finding the frame itself, the next, an older stretch or a bit of the next."""
    for piece in pieces(70, 2, size).swapaxes(0, 1):
        expected = [by_hand(piece[: t + 1].tolist()) for t in range(len(piece))]
        ours, memory = listened(piece, compiled_text(size))
        plain, same = listened(piece, remember)
        assert ours == plain == expected
        assert (memory == same).all()


def test_frames_too_far_back_are_forgotten():
    """Guards the ring buffer: an overwritten frame must not be found, nor a run beyond it."""
    numbers = np.arange(REACH_BACK + 60) % 200 + 1  # recurs after 200 frames
    frames = (numbers[:, np.newaxis] >> np.arange(8) & 1).astype(float)
    frames[20] = 0  # recurs once with the first just within reach, then just out of reach
    for again, known in ((20 + REACH_BACK - 1, 1), (20 + REACH_BACK, 0)):
        piece = frames[: again + 1].copy()
        piece[again] = 0
        found, _ = listened(piece, compiled_text(8))
        assert found[again] == ((1, frames[21].tolist()) if known else (0, None))
        assert found[again - 1][0] == LONGEST


@pytest.mark.parametrize("onsets", [False, True])
def test_notes_read_whether_they_sounded_then(onsets):
    """The last inputs by hand: the stretch's length, and the same if the note sounded after it."""
    notes = 5
    encoder = NoteEncoder(notes, onsets=onsets, echo=True)
    size = notes * (1 + onsets)
    frames = torch.from_numpy(pieces(40, 2, size, seed=3))
    start = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    encoded = read_however_cut(encoder, frames, start)
    told = encoded.skip.view(40, 2, notes, -1).numpy()
    for piece in range(2):
        line = [[0.0] * size, *frames[:, piece].tolist()]
        for t in range(40):
            length, after = by_hand(line[: t + 1])
            after = after or [0.0] * size
            known = [float(length >= step) for step in STEPS]
            for n in range(notes):
                expected = known + [after[n] * k for k in known]
                if onsets:
                    expected += [after[notes + n] * k for k in known]
                assert told[t, piece, n].tolist() == expected


def test_without_echo_and_clock_there_is_no_memory():
    """So that old checkpoints still give the same models."""
    options = {"model": "tied", "unit": "gru", "hidden": 6}
    model = model_of(options | dict.fromkeys(MODELS["tied"].settings, False))
    assert model.start(2).past.memory is None
    assert model.layers()[0].input_size == NoteEncoder(88).input_size == 58
    assert len(model.start(1).tensors()) == 2
