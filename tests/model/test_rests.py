"""A unit that rests where nothing begins or ends: whole, in windows, ragged, and in samples."""

import numpy as np
import pytest
import torch
from same_draws import same_draws

from seqmodel import units
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes_tied import below_size

pytestmark = pytest.mark.usefixtures("unoptimised")

KINDS = pytest.mark.parametrize(
    ("onsets", "hits"), [(False, False), (True, False), (False, True)], ids=["", "onsets", "hits"]
)


def model_of(D, *, onsets, hits):
    torch.manual_seed(D)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, ages=True, echo=True, rests=True)
    unit = units.make("lstm", encoder.input_size, 3, layers=2)
    h_size = 3 + encoder.skip_size
    along_pitch = units.make("gru", h_size + below_size(onsets=onsets), 4)
    output = NoteUnitOutput(
        h_size, along_pitch, D, onsets=onsets, hits=hits, end=True, first_change=True
    )
    model = SequenceModel(encoder, unit, output).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    for weight in output.first.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    torch.nn.init.constant_(output.first.own.bias, -2.0)
    torch.nn.init.constant_(output.ending.bias, -9.0)
    return model.eval()


def moves(frame, before, D, *, hits):
    """The definition, note by note: something begins, ends, or is struck."""
    return any(a != b for a, b in zip(frame[:D], before[:D], strict=True)) or any(
        frame if hits else frame[D:]
    )


@KINDS
def test_the_unit_is_the_one_moved_by_hand(onsets, hits):
    """However a piece is cut, in a ragged batch, and step by step."""
    D, T = 4, 60
    model = model_of(D, onsets=onsets, hits=hits)
    random = np.random.default_rng(1)
    line = np.repeat(random.random((T, D)) < 0.4, 1 + random.integers(0, 5, T), 0)[:T]
    line = line & (random.random(T) < 0.5)[:, None] if hits else line
    struck = line & ~np.pad(line[:-1], ((1, 0), (0, 0)))
    struck |= line & (random.random((T, D)) < 0.1)
    piece = torch.from_numpy(np.concatenate([line, struck], 1) if onsets else line).double()
    pieces = torch.stack([piece, piece], 1)
    heard = torch.cat([torch.zeros_like(piece[:2]), piece[:-1]])  # two frames before each
    with torch.no_grad():
        encoded = model.encoder.encode(piece.unsqueeze(1), model.start(1).past)
        state, rows, moved = model.start(1).state, [], 0
        h = state[-1][0].unsqueeze(0)
        for t in range(T):
            if t == 0 or moves(heard[t + 1].tolist(), heard[t].tolist(), D, hits=hits):
                h, state = model.unit(encoded.inputs[t : t + 1], state)
                moved += 1
            rows.append(torch.cat([h[0], encoded.skip[t]], 1))
        assert 5 < moved < T - 10
        read = model.read(pieces, model.start(2))
        torch.testing.assert_close(read.h[:, :D], torch.stack(rows))
        carry, cut = model.start(2), []
        for start in range(0, T, 7):
            reading = model.read(pieces[start : start + 7], carry)
            cut.append(reading.h)
            carry = reading.after
        torch.testing.assert_close(torch.cat(cut), read.h)
        ragged = model.read(pieces, model.start(2), torch.tensor([T, 23]))
        alone = model.read(pieces[:23, 1:], model.start(1))
        torch.testing.assert_close(ragged.h[:23, D:], alone.h)
        for ours, whole in zip(ragged.after.tensors()[:4], alone.after.tensors()[:4], strict=True):
            torch.testing.assert_close(ours[D:], whole)
        carry = model.start(1)
        for t in range(12):
            h, state = model.step(carry)
            torch.testing.assert_close(h, read.h[t, :D])
            past = model.encoder.append(carry.past, piece[t : t + 1])
            carry = carry._replace(state=state, past=past)


@KINDS
def test_compiled_and_plain_sampling_draw_the_same(onsets, hits, monkeypatch):
    """The skipped calls: a unit that went on, or was kept too long, would draw other notes."""
    monkeypatch.setattr("seqmodel.sampling.sampler.CHUNK", 24)
    D = 6
    drawn = same_draws(model_of(D, onsets=onsets, hits=hits))
    before = np.concatenate([np.zeros_like(drawn[:1]), drawn[:-1]])
    pairs = zip(drawn.tolist(), before.tolist(), strict=True)
    moved = [moves(frame, last, D, hits=hits) for frame, last in pairs]
    assert 0.1 < np.mean(moved) < 0.9
