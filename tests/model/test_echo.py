"""The echo: against a brute-force definition, and compiled against plain."""

import numpy as np
import pytest
import torch

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.echo import LONGEST, REACH_BACK, STEPS, followed, remember, start_memory
from seqmodel.model.echo_kernel import compiled_echoes
from seqmodel.model.notes import NoteEncoder
from seqmodel.sampling.sampler import CHUNK, Sampler, _draw_plainly

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


@SIZES
def test_what_followed_is_found_where_the_definition_finds_it(size):
    """Guards against finding the frame itself, the next, an older stretch or a bit of the next."""
    frames = pieces(70, 2, size)
    for piece in range(2):
        memory = start_memory(1, size, torch.device("cpu"))
        for t in range(len(frames)):
            memory = remember(memory, torch.from_numpy(frames[t, piece : piece + 1]))
            after, length = followed(memory, size)
            best, expected = by_hand([f.tolist() for f in frames[: t + 1, piece]])
            assert int(length) == best
            assert after[0].tolist() == ([False] * size if expected is None else expected)


@SIZES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_compiled_echoes_are_the_plain_ones(size, dtype):
    frames = torch.from_numpy(pieces(90, 3, size, kinds=4, seed=1)).to(dtype)
    plain = memory = start_memory(3, size, torch.device("cpu"))
    first = compiled_echoes(frames[:37], memory)
    second = compiled_echoes(frames[37:], first[2])
    assert torch.equal(memory, start_memory(3, size, torch.device("cpu")))  # unchanged
    for t, frame in enumerate(frames):
        plain = remember(plain, frame)
        after, length = followed(plain, size)
        compiled = first if t < 37 else second
        assert torch.equal(compiled[0][t % 37 if t < 37 else t - 37], after.to(dtype))
        assert torch.equal(compiled[1][t if t < 37 else t - 37], length[:, 0].to(dtype))
    assert torch.equal(second[2], plain)


def test_frames_too_far_back_are_forgotten():
    """Guards the ring buffer: an overwritten frame must not be found, nor a run beyond it."""
    frames = torch.zeros(REACH_BACK + 60, 1, 8, dtype=torch.float64)
    numbers = torch.arange(len(frames)) % 200 + 1  # recurs after 200 frames
    frames[:, 0] = (numbers.unsqueeze(1) >> torch.arange(8)) & 1
    frames[20] = 0  # recurs once with the first just within reach, then just out of reach
    for again, known in ((20 + REACH_BACK - 1, 1), (20 + REACH_BACK, 0)):
        piece = frames[: again + 1].clone()
        piece[again] = 0
        after, length, memory = compiled_echoes(piece, start_memory(1, 8, torch.device("cpu")))
        assert int(length[again]) == known
        assert torch.equal(after[again, 0], known * frames[21, 0])
        assert int(length[again - 1]) == LONGEST
        plain = start_memory(1, 8, torch.device("cpu"))
        for frame in piece:
            plain = remember(plain, frame)
        assert torch.equal(plain, memory)


@pytest.mark.parametrize("onsets", [False, True])
def test_notes_read_whether_they_sounded_then(onsets):
    """The last inputs by hand: the stretch's length, and the same if the note sounded after it."""
    notes = 5
    encoder = NoteEncoder(notes, onsets=onsets, echo=True)
    size = notes * (1 + onsets)
    frames = torch.from_numpy(pieces(40, 2, size, seed=3))
    encoded = encoder.encode(frames, encoder.start(torch.zeros(1, dtype=torch.float64), 2))
    assert torch.equal(encoded.inputs[..., -encoder.beside_size :], encoded.beside)
    told = encoded.beside.view(40, 2, notes, -1).numpy()
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


@pytest.mark.parametrize("onsets", [False, True])
def test_plain_inputs_are_the_compiled_ones(onsets, monkeypatch):
    """The plain ones serve devices without compiled code."""
    encoder = NoteEncoder(30, onsets=onsets, echo=True)
    frames = torch.from_numpy(pieces(20, 2, 30 * (1 + onsets), seed=5))
    past = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    compiled = encoder.encode(frames, past)
    one = encoder.inputs(compiled.last)
    assert torch.equal(one.x[:, -encoder.beside_size :], one.beside)
    monkeypatch.setattr("seqmodel.kernels.device.unsupported_reason", lambda tensors: "elsewhere")
    plain = encoder.encode(frames, past)
    assert torch.equal(plain.inputs, compiled.inputs)
    assert torch.equal(plain.last.memory, compiled.last.memory)
    assert torch.equal(encoder.inputs(plain.last).x, one.x)


def test_appending_frames_one_by_one_equals_encoding_them():
    """Guards against a memory that reads a frame twice, or not at all, where sampling begins."""
    encoder = NoteEncoder(20, echo=True)
    frames = torch.from_numpy(pieces(15, 1, 20))
    past = encoder.start(torch.zeros(1, dtype=torch.float64), 1)
    last = encoder.encode(frames, past).last
    for frame in frames:
        past = encoder.append(past, frame)
    assert all(map(torch.equal, past, last))


@pytest.mark.parametrize("output", ["bernoulli", "note-unit"])
def test_compiled_and_plain_sampling_read_the_same_echo(output):
    torch.manual_seed(4)
    options = {"model": "tied", "output": output, "unit": "gru", "hidden": 6, "end": True}
    model = build_model(with_sizes(resolve(options), FRAMES), FRAMES).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    with torch.no_grad():  # so that it mostly repeats its input
        model.output.linear.bias -= 3
    prime = pieces(40, 1, 88)[:, 0]
    sampler = Sampler(model)
    compiled, _ = next(sampler.draw(Uniforms(3), prime=prime))
    with torch.no_grad():
        start = sampler.double, sampler.after(prime)
        plain, _ = next(_draw_plainly(*start, Uniforms(3), CHUNK, 1.0, 0))
    np.testing.assert_array_equal(compiled, plain)
    other, _ = next(sampler.draw(Uniforms(3), prime=prime[:-1]))
    assert not np.array_equal(other[: len(plain)], plain[: len(other)])


def test_without_echo_and_clock_there_is_no_memory():
    """So that old checkpoints still give the same models."""
    options = {"model": "tied", "unit": "gru", "hidden": 6}
    options |= dict.fromkeys(("echo", "clock", "metre"), False)
    model = build_model(with_sizes(resolve(options), FRAMES), FRAMES)
    assert model.start(2).past.memory is None
    assert model.layers()[0].input_size == NoteEncoder(88).input_size == 58
    assert len(model.start(1).tensors()) == 2


@pytest.mark.parametrize("frame", [FRAMES, AudioFrames(8000)])
def test_echo_is_for_the_tied_model(frame):
    from seqmodel.errors import UsageError

    with pytest.raises(UsageError, match="--echo is for --model tied"):
        build_model(resolve({"model": "frame-wise", "echo": True, "hidden": 3}), frame)
