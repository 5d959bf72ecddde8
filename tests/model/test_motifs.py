"""Motifs: their texts, run by Python and compiled, against counts kept in a dictionary."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from models import read_however_cut
from texts import compiled

from seqmodel.model.motifs import (
    CONTEXTS,
    MOST,
    MOTIFS,
    count_scales,
    learn_motifs,
    motifs_size,
    write_motifs,
)
from seqmodel.model.notes import NoteEncoder

pytestmark = pytest.mark.usefixtures("unoptimised")

D = 30


def piece(T, seed=0):
    """Frames (T, D) whose second half is the first, a fourth higher."""
    random = np.random.default_rng(seed)
    frames = np.cumsum(random.random((T, D)) < 0.06, 0) % 2
    frames[T // 2 :, 5:] = frames[: T - T // 2, :-5]
    return frames.astype(float)


def by_definition(frames):
    """The inputs (T, D, MOTIFS) after each frame."""
    found = np.zeros((len(frames), D, MOTIFS))
    seen = defaultdict(lambda: [0, 0])
    keys = {}
    wide = np.pad(frames, ((max(n for n, *_ in CONTEXTS), 0), (24, 24)))
    for t, frame in enumerate(frames):
        for (_, note), key in keys.items():
            counts, sounds = seen[key], int(frame[note])
            counts[sounds] = min(counts[sounds] + 1, MOST)
            if counts[1 - sounds] > 2:
                counts[1 - sounds] = counts[1 - sounds] // 2 + 1
        keys = {}
        for k, (back, width, absolute) in enumerate(CONTEXTS):
            end = len(wide) - len(frames) + t + 1
            for note in range(D):
                around = wide[end - back : end, note + 24 - width : note + 25 + width]
                if around.any():
                    keys[k, note] = k, around.tobytes(), note if absolute else None
        for (k, note), key in keys.items():
            silent, sounded = seen[key]
            if silent + sounded:
                odds = np.log((sounded + 0.4) / (silent + 0.4)) / 4
                told = odds, 1, np.log2(1 + silent + sounded) / 4
                found[t, note, 3 * k : 3 * k + 3] = told
    return found


def by_texts(frames, learn, write):
    memory, found = np.zeros(motifs_size(D), np.int64), np.zeros((len(frames), D, MOTIFS))
    scales = count_scales().numpy().ravel()
    for t, frame in enumerate(frames):
        learn(frame=frame, memory=memory, D=D)
        for n in range(D):
            write(to=found[t, n], memory=memory, scales=scales, n=n, D=D)
    return found


@pytest.mark.filterwarnings("ignore:overflow")
def test_motifs_are_those_of_the_definition():
    """Guards against windows, counts or cells that are another note's or another context's."""
    frames = piece(120)
    memory = np.zeros(1, np.int64)
    learn = compiled(learn_motifs, {"frame": frames[0], "memory": memory, "D": D})
    given = {"to": frames[0], "memory": memory, "scales": frames[0], "n": 0, "D": D}
    fast = by_texts(frames, learn, compiled(write_motifs, given))
    np.testing.assert_allclose(fast, by_definition(frames), atol=1e-12)
    plain = by_texts(frames[:40], learn_motifs, write_motifs)
    np.testing.assert_array_equal(plain, fast[:40])


def test_the_encoder_reads_them_however_a_piece_is_cut():
    """Guards their place in the memory, beside the echo's and the ages', and their going on."""
    frames = np.stack([piece(60, seed) for seed in (1, 2)], 1)
    encoder = NoteEncoder(D, echo=True, ages=True, motifs=True)
    start = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    encoded = read_however_cut(encoder, torch.from_numpy(frames), start)
    found = encoded.skip.view(60, 2, D, -1)[..., -MOTIFS:].numpy()
    for b in range(2):
        # Before the first frame stands one of silence.
        read = np.vstack([np.zeros((1, D)), frames[:-1, b]])
        np.testing.assert_allclose(found[:, b], by_definition(read), atol=1e-12)
