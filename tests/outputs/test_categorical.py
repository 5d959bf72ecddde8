"""A softmax over the 256 levels of mu-law, one row per sample."""

import math

import numpy as np
import pytest
import torch
from made import categorical as make
from made import mu_law_rows as random_rows
from noise import in_memory
from scipy import special
from scores import assert_nats_are, chosen, plain, uniforms_of

from seqmodel.media.audio import mu_law
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.categorical import CategoricalOutput
from seqmodel.outputs.protocol import Window

H, S = 9, 3
SAMPLES = torch.from_numpy(mu_law.SAMPLES)


def levels_of(samples):
    """From 0 to 255."""
    return mu_law.encode(np.asarray(samples)).astype(int) + 128


def log_chances(output, row):
    """(256,), of the levels, by the equations."""
    weight, bias = (part.detach().numpy() for part in output.linear.parameters())
    return special.log_softmax(weight @ row.detach().numpy() + bias)


def test_nats_are_those_of_the_equations():
    """Recomputed by loops: which row is which sample's, and the level of a sample between two."""

    def nats(output, row, sample):
        return -log_chances(output, row)[levels_of(sample)]

    h, frames = random_rows(4)
    frames[1, 1, 2], frames[0, 0, 0], frames[0, 0, 1] = 0.3337, -1.0, 32767 / 32768
    assert_nats_are(nats, plain, make(), rows=(h, frames), rel=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_a_seeds_draw_can_be_recomputed_from_the_stated_rule(temperature):
    output, B = make(), 200
    h = random_rows(B)[0][:B, 0]
    uniforms = uniforms_of(output, B)
    with torch.no_grad():
        drawn = output.draw_frame(h, None, uniforms, temperature)
    assert not drawn.ended.any()
    for n in range(B):
        k = chosen(log_chances(output, h[n]), uniforms[n, 0].item(), temperature)
        assert drawn.frame[n].item() == mu_law.SAMPLES[k]


def test_figures_tell_silence_apart():
    """Recomputed sample by sample; padding counts for nothing."""
    output = make()
    h, frames = random_rows(6)
    quiet = torch.rand(frames.shape) < 0.8
    frames[quiet] = SAMPLES[127 + (torch.rand(int(quiet.sum())) < 0.5).long()].double()
    inside = torch.ones(6, 2, dtype=torch.bool)
    inside[4:, 1] = False
    seen, total = {True: [], False: []}, 0.0
    for t in range(6):
        for b in range(2 if t < 4 else 1):
            for s, k in enumerate(levels_of(frames[t, b])):
                seen[k in (127, 128)].append(-log_chances(output, h[t * S + s, b])[k])
    with torch.no_grad():
        sums = output.figure_sums(Window(h, frames, None, inside, inside))
    total = sum(seen[True]) + sum(seen[False])
    assert output.figures(sums, nats=total, frames=10, pieces=2) == pytest.approx(
        {
            "nats_per_sample": total / 30,
            "bits_per_sample": total / 30 / math.log(2),
            "silent_share": len(seen[True]) / 30,
            "bits_per_silent_sample": np.mean(seen[True]) / math.log(2),
            "bits_per_other_sample": np.mean(seen[False]) / math.log(2),
        }
    )


def test_it_starts_at_the_frequencies_of_train():
    """And, with ends, at theirs: recomputed from the counts."""
    pieces = [np.array([5, 5, 5, -7], np.int8), np.array([5, 127], np.int8)]
    frame = AudioFrames(8000, frame_size=2, dtype="mu-law")
    train = in_memory(frame, *pieces)
    output = CategoricalOutput(H, 2, 256, end=True)
    output.start_at(train)
    counts = np.ones(256)
    counts[[133, 121, 255]] += [4, 1, 1]
    start = output.linear.bias.detach().numpy()
    np.testing.assert_allclose(start, np.log(counts / counts.sum()), rtol=1e-6)
    assert output.ending.bias.item() == pytest.approx(math.log(2.5 / 1.5), rel=1e-6)
