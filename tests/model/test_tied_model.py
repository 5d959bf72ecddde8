"""The tied model: each note's inputs, flaws in training, invariance to transposition."""

import numpy as np
import pytest
import torch
from models import random_model

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.media.music.frames import PianoRollFrames, transposed
from seqmodel.media.music.grid import Grid
from seqmodel.media.registry import medium_of, presets_of_kind
from seqmodel.model import notes, sequence
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.encoder import Past
from seqmodel.model.notes import FRAME_INPUTS, NoteEncoder, absolute_pitch

pytestmark = pytest.mark.usefixtures("unoptimised")

OUTPUTS = pytest.mark.parametrize("output", ["bernoulli", "note-unit"])


def tied(output="note-unit", **options):
    given = {"model": "tied", "output": output, "hidden": 6} | options
    return random_model(given, std=0.4, seed=1).double()


def nats(model, frames):
    """The nats of each note (T, D) of one piece (T, D)."""
    line = torch.as_tensor(frames, dtype=torch.float64).unsqueeze(1)
    with torch.no_grad():
        h, x, past, _ = model.read(line, model.start(1))
        logits = model.output.note_logits(h, x, past)
    return torch.nn.functional.softplus((1 - 2 * line) * logits)[:, 0]


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize(
    ("notes", "dtype"),
    [(1, torch.float64), (11, torch.float32), (12, torch.bfloat16), (88, torch.float64)],
)
def test_a_note_reads_the_frame_before(notes, onsets, dtype):
    """The definition, note by note: a window, pitch classes counted from n, a count."""
    random = torch.Generator().manual_seed(2)
    past = (torch.rand(3, notes * (1 + onsets), generator=random) < 0.3).double()
    drum_keys = {21 + notes // 2: 5}
    encoder, pitches = NoteEncoder(notes, onsets=onsets, drum_keys=drum_keys), 8 + 12 + 1
    ours = encoder.encode_next(Past(past.to(dtype))).inputs.view(3, notes, -1)
    frames, struck = past[:, :notes], past[:, notes:].tolist()
    for k, frame in enumerate(frames.tolist()):
        for n in range(notes):
            around = [n + d if 0 <= n + d < notes else None for d in range(-12, 13)]
            window = [0 if m is None else frame[m] for m in around]
            classes = [
                sum(x for m, x in enumerate(frame) if (m - n - c) % 12 == 0) for c in range(12)
            ]
            expected = torch.tensor([*window, *classes, sum(frame) / 12], dtype=torch.float64)
            assert torch.equal(ours[k, n, :FRAME_INPUTS], expected.to(dtype)), (k, n)
            if onsets:
                strikes = [0 if m is None else struck[k][m] for m in around]
                assert ours[k, n, FRAME_INPUTS + pitches :].tolist() == strikes
    pitch = ours[:, :, FRAME_INPUTS : FRAME_INPUTS + pitches]
    assert (pitch[0] == pitch[2]).all()
    assert torch.equal(pitch[0], absolute_pitch(notes, drum_keys).to(dtype))


def test_notes_read_how_often_drums_hit_their_keys():
    """Guards against a kit's rhythms on any keys, as weights are shared by all of them."""
    plain, with_drums = absolute_pitch(88), absolute_pitch(88, {36: 99, 42: 9, 38: 1})
    expected = np.zeros(88)
    expected[[36 - 21, 42 - 21, 38 - 21]] = 1, 0.5, np.log(2) / np.log(100)
    assert torch.equal(with_drums[:, :-1], plain)
    np.testing.assert_allclose(with_drums[:, -1], expected)


KINDS = pytest.mark.parametrize(("onsets", "hits"), [(False, False), (True, False), (False, True)])


def random_notes(T, B, D, *, onsets):
    """Frames (T, B, F), which notes sound, and which are struck: some of those held, too."""
    sounding = torch.rand(T, B, D) < 0.7
    fresh = sounding & ~torch.cat([torch.zeros(1, B, D, dtype=torch.bool), sounding[:-1]])
    struck = fresh | (sounding & (torch.rand(T, B, D) < 0.3)) if onsets else fresh
    return (torch.cat([sounding, struck], 2) if onsets else sounding).double(), sounding, struck


@KINDS
def test_in_training_whole_notes_are_missing_from_what_is_read(onsets, hits, monkeypatch):
    """In half of the pieces; never from what is predicted, nor once the model is trained."""
    monkeypatch.setattr(notes, "FREEZE_SHARE", 0)
    T, B, D = 9, 400, 5
    torch.manual_seed(3)
    frames, sounding, struck = random_notes(T, B, D, onsets=onsets)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1.0)
    past = encoder.start(torch.zeros(1, dtype=torch.float64), B)
    found = encoder.train().encode(frames, past)
    assert torch.equal(found.frames, frames)
    assert torch.equal(found.past[1:], frames[:-1])
    read = found.inputs.view(T, B, D, -1)[1:, ..., 12] > 0  # the note itself, of those around it
    begins = sounding if hits else struck
    missing, again = np.zeros(B), 0
    for b in range(B):
        for n in range(D):
            for t in range(T - 1):
                if not sounding[t, b, n]:
                    assert not read[t, b, n]
                elif t and not begins[t, b, n]:
                    assert read[t, b, n] == read[t - 1, b, n]
                else:
                    missing[b] += not read[t, b, n]
                    again += bool(t and sounding[t - 1, b, n] and read[t, b, n] > read[t - 1, b, n])
    shares = missing / begins[:-1].sum((0, 2)).numpy()
    assert (shares == 0).mean() == pytest.approx(0.55, abs=0.1)
    assert shares.mean() == pytest.approx(0.25, abs=0.05)
    assert (again > 0) == (onsets or hits)  # what is struck again is another note
    clean = NoteEncoder(D, onsets=onsets).encode(frames, past)
    assert torch.equal(encoder.eval().encode(frames, past).inputs, clean.inputs)


@KINDS
def test_what_changes_is_told_after_what_is_read(onsets, hits):
    """Else a chord that is read as held for too long is never taught to end."""
    T, B, D = 30, 50, 5
    torch.manual_seed(5)
    frames, sounding, struck = random_notes(T, B, D, onsets=onsets)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1.0, first_change=True)
    found = encoder.train().encode(frames, encoder.start(frames.new_zeros(1), B))
    read = found.inputs.view(T, B, D, -1)[..., 12] > 0
    assert (read[1:] != sounding[:-1]).any()
    assert torch.equal(found.past[..., :D] > 0, read)
    assert torch.equal(found.frames[..., :D] > 0, sounding)
    if onsets:
        assert torch.equal(found.frames[..., D:] > 0, sounding & (struck | ~read))
    assert torch.equal(found.last.numbers, frames[-1])


@KINDS
def test_in_training_frames_are_read_as_held(onsets, hits, monkeypatch):
    """In one stretch of a window, without strikes, in as many windows as there should be."""
    T, B, D = 120, 300, 6
    torch.manual_seed(4)
    sounding = torch.rand(T, B, D) < 0.5
    frames = (torch.cat([sounding, sounding], 2) if onsets else sounding).double()
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1e-9)
    monkeypatch.setattr(notes, "FREEZE_SHARE", 0.4e9)
    found = encoder.train().encode(frames, encoder.start(frames.new_zeros(1), B))
    assert torch.equal(found.frames, frames)
    inputs = found.inputs.view(T, B, D, -1)
    read, struck = inputs[1:, ..., 12], inputs[1:, ..., -13]  # after each frame but the last
    stretches = []
    for b in range(B):
        given = frames[:-1, b, :D]
        other = (read[:, b] != given).any(1)
        if onsets:
            other |= (struck[:, b] != given).any(1)
        if other.any():
            first, last = int(other.nonzero().min()), int(other.nonzero().max())
            held = read[first : last + 1, b]
            assert (held == (read[first - 1, b] if first and not hits else 0)).all()
            assert not (onsets and struck[first : last + 1, b].any())
            stretches.append((first, last + 1 - first))
    firsts, lengths = np.array(stretches).T
    assert len(stretches) / B == pytest.approx(0.4, abs=0.08)
    assert lengths.max() <= notes.FROZEN
    assert np.mean(lengths) == pytest.approx(notes.FROZEN / 2, abs=6)
    assert np.mean(firsts) == pytest.approx(T / 2, abs=10)


def test_flaws_become_rarer_as_the_learning_rate_falls(make_config, train, tmp_path, monkeypatch):
    """Were they as many to the end, the likelihood of flawless music would pay for them."""
    shares = []
    monkeypatch.setattr(NoteEncoder, "anneal", lambda _, share: shares.append(share))
    options = {"model": "tied", "unit": "gru", "output": "bernoulli", "schedule": "cosine"}
    train(make_config(**options, hidden=2, batch_size=11, epochs=3), tmp_path / "run")
    assert shares == pytest.approx([1, 0.75, 0.25])


@OUTPUTS
@pytest.mark.parametrize("semitones", [-5, 7])
def test_transposing_a_piece_transposes_its_likelihood(output, semitones):
    """Except for the inputs that give absolute pitch, and for the two ends of the keyboard."""
    model = tied(output)
    (time_axis,) = model.layers()
    with torch.no_grad():
        time_axis.W[:, FRAME_INPUTS : FRAME_INPUTS + model.encoder.pitch.shape[1]] = 0
        if output == "note-unit":  # so that it forgets the lowest note within a few notes
            model.output.unit.U.mul_(0.3)
            model.output.unit.b.add_(2)
            model.output.first.joint.weight.zero_()  # the mean over all notes sees both ends
    roll = np.zeros((8, 88), np.uint8)
    roll[:, 40:50] = np.random.default_rng(4).random((8, 10)) < 0.4
    roll[4:] = roll[:4]  # so that there is an echo
    here, there = nats(model, roll), nats(model, transposed(roll, semitones))
    reach = slice(30, 60)
    moved = slice(30 + semitones, 60 + semitones)
    torch.testing.assert_close(there[:, moved], here[:, reach], rtol=0, atol=1e-4)
    assert float((there[:, reach] - here[:, reach]).abs().max()) > 1e-2


def test_windows_bound_the_rows_and_not_only_the_frames():
    """Guards memory use for long pieces: 8,192 frames of 88 rows each would take gigabytes."""
    assert tied().window(1) * 88 <= sequence.ROWS_AT_ONCE < (tied().window(1) + 1) * 88
    assert tied().window(4) == tied().window(1) // 4
    assert tied().window(10**6) == 1


def test_there_is_a_first_change_where_there_is_a_unit_along_pitch_but_for_drums():
    """Guards against a default that --output bernoulli would refuse, or that thins drums out."""
    kit = PianoRollFrames(Grid.of_beats(4), drums=True, kit=True)
    tied = {"model": "tied", "hidden": 4}
    for options, frame, expected in (
        (tied, FRAMES, True),
        (tied, kit, False),
        (tied | {"first_change": False}, FRAMES, False),
        (tied | {"first_change": True}, kit, True),
        (tied | {"output": "bernoulli"}, FRAMES, False),
        (tied | {"model": "frame-wise"}, FRAMES, False),
    ):
        config = with_sizes(
            resolve(options, None, presets_of_kind(medium_of(frame), frame.kind)), frame
        )
        assert config.first_change is expected
        build_model(config, frame)
