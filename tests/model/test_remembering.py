"""All that notes remember at once, in a black box: the likelihood of a piece is its frequency."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodel import units
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import given_of, signatures
from seqmodel.model.clock import Clock
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes_tied import below_size
from seqmodel.sampling.sampler import Sampler


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first_change", [False, True])
def test_likelihood_is_frequency_with_all_that_is_remembered(first_change):
    """Whole pieces, drawn by compiled code, appear as often as their nats and those of ends say.

    Guards against a draw that reads other inputs than the likelihood: echo, bars, clock, ages and
    motifs all speak of two notes within five frames.
    """
    torch.manual_seed(3)
    bars = given_of(signatures([(0, (3, 8)), (2, (2, 4))], 5), Grid.of_beats(2))
    clock = Clock()
    clock.start_at(np.array([2, 3, 5]))
    inputs = {"echo": True, "ages": True, "motifs": True, "bars": bars, "clock": clock}
    encoder = NoteEncoder(2, **inputs, first_change=first_change)
    width = 3 + encoder.skip_size
    unit = units.make("gru", encoder.input_size, 3)
    pitch = units.make("gru", width + below_size(onsets=False), 3)
    output = NoteUnitOutput(width, pitch, 2, end=True, first_change=first_change)
    output.limit_ends(3 + encoder.end_skip_size)
    model = SequenceModel(encoder, unit, output)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.6)
    torch.nn.init.constant_(output.ending.bias, -1.0)
    sampler, draws, found = Sampler(model), 1500, Counter()
    assert sampler.is_compiled
    for number in range(draws):
        piece = sampler.piece(5, seed=1, number=number)
        found[np.concatenate(list(piece)).astype(int).tobytes(), piece.ended] += 1
    expected, seen = [], []
    model.double()
    for (content, ended), count in found.items():
        frames = torch.tensor(np.frombuffer(content, int).reshape(-1, 1, 2), dtype=torch.float64)
        last = torch.zeros(len(frames), 1, dtype=torch.float64)
        last[-1] = float(ended)
        with torch.no_grad():
            read = model.read(frames, model.start(1))
            nats = output.score(read.h, read.frames, read.past) + output.end_score(read.h, last)
        expected.append(draws * float(torch.exp(-nats.sum())))
        seen.append(count)
    expected, seen = np.array(expected), np.array(seen)
    likely = expected > 6
    assert likely.sum() > 20
    assert expected.sum() < draws
    expected, seen = (np.append(n[likely], draws - n[likely].sum()) for n in (expected, seen))
    assert stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1) > 1e-3
