"""The sound encoder, against definitions in NumPy."""

import copy
import math

import numpy as np
import pytest
import torch
from guards import guarded
from sounds import forgetting, mean_size, voice

from seqmodel.model.encoder import Past
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.predictors import FULL, SAMPLES, predictors_at
from seqmodel.model.sound.steering import TrainingStatistics, no_statistics, unpacked
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["guarded"]  # buffers are guarded in every test here

CPU = torch.device("cpu")
OFFSET, OUTSIDE, MOST_DC, LOUDEST = 1e-9, 0.1, 5.0, 100.0


def known_at(rate, roughest=2 * FULL):
    """Steering that differs from node to node and stage to stage; `voice` is sharper at times."""
    random, M = np.random.default_rng(7), predictors_at(rate).reported_coefficients
    pushes, voices = random.uniform(-0.5, 0.5, (2, 16))
    low = random.uniform(-0.6, 0, (16, M))
    ranges = np.concatenate([low, low + random.uniform(0.1, 0.8, (16, M))], 1)
    tables = pushes, 0 * pushes, voices, 0 * voices, ranges
    tables = map(torch.from_numpy, tables)
    limits = {"most_dc": MOST_DC, "loudest": LOUDEST}
    return TrainingStatistics(0.2, 4.0, 200.0, roughest, *tables, strength=1.5, **limits)


def start(rate, B):
    predictors, known = predictors_at(rate), known_at(rate)
    return predictors, known, predictors.start_memory(known.grid, B, CPU)


def lattice_by_hand(x, order, forget):
    """Predictions, coefficients and backward errors after each sample, by Burg's sums."""
    f, b = np.zeros((order + 1, len(x))), np.zeros((order + 1, len(x) + 1))  # b[:, t] is before t
    k, said, ks, bs = np.zeros(order), [], [], []
    for t, sample in enumerate(x):
        f[0, t] = b[0, t + 1] = sample
        for m in range(order):
            f[m + 1, t] = f[m, t] - k[m] * b[m, t]
            b[m + 1, t + 1] = b[m, t] - k[m] * f[m, t]
        w = forget ** np.arange(t, -1, -1.0)
        past_f, past_b = f[:order, : t + 1], b[:order, : t + 1]
        squares = 100 * forget ** (t + 1) + (w * (past_f**2 + past_b**2 + 2 / 12)).sum(1)
        k = 0.995 * 2 * (w * past_f * past_b).sum(1) / squares
        said.append(np.clip(k @ b[:order, t + 1], -32768, 32767))
        ks.append(k)
        bs.append(b[:order, t + 1])
    return np.array(said), np.array(ks), np.array(bs)


def steered_by_hand(rate, roughest, anchor, level, loud, sharp, dc, lattice, t, pitch):
    """The anchor and its level, full scale 1, from the formulas of `steering`."""
    known, (peak, share, echo), M = known_at(rate), pitch, predictors_at(rate).reported_coefficients
    table = np.column_stack([known.pushes, known.ranges]).T
    row = [np.interp(min(math.log2(loud), 15), np.arange(16), column) for column in table]
    push, low, high = row[0], np.array(row[1 : 1 + M]), np.array(row[1 + M :])
    voice = np.interp(15 + 5 * math.log2(share), np.arange(16), known.voices)
    k, b = (each[t][:M] for each in lattice)
    pull = OUTSIDE * (np.minimum(np.maximum(k, low), high) - k) @ b
    pull += OUTSIDE * (np.clip(dc, -MOST_DC, MOST_DC) - dc)
    anchor = anchor * min(1, 200 / sharp) ** 1.5
    pull -= np.clip(OUTSIDE * anchor * max(0, 1 - LOUDEST / loud), -level, level)
    moved = anchor + 1.5 * (pull + peak * (1 - peak) * voice * echo)
    level = min(level, roughest + 1000 * forgetting(rate, 0.00625) ** (t + 1))
    return [np.clip(moved, -32768, 32767) / 32768, level * math.exp(1.5 * push) / 32768]


def features_by_hand(samples, rate, roughest, orders, lags, step):
    """The features after each sample of one piece (T,), from the definitions."""
    x = samples * 32768 + OFFSET
    T, times = len(x), (0.010, 0.003, 0.025, 0.0625)
    lattices = [
        lattice_by_hand(x, order, forgetting(rate, time))
        for order, time in zip(orders, times, strict=True)
    ]
    said = [each for each, *_ in lattices]
    errors = [x - np.concatenate([[0], each[:-1]]) for each in said]
    slow = mean_size(errors[0], forgetting(rate, 0.00625), 200) + 0.5
    fast = mean_size(errors[0], forgetting(rate, 0.0012), 200) + 0.5
    loud = mean_size(x, forgetting(rate, 0.0125), 300) + 1
    sharp = mean_size(np.diff(x, prepend=0), forgetting(rate, 0.002), 300) + 1
    kept = forgetting(rate, 0.05) ** np.arange(T)
    dc = (1 - kept[1]) * np.convolve(x, kept)[:T]
    padded = np.concatenate([np.zeros(step), errors[0]])
    smooth = np.array([padded[t + 1 : t + 1 + step].mean() for t in range(T)])
    found = []
    for t in range(T):

        def last(values, n, t=t):
            return np.array([values[t - j] if t >= j else 0.0 for j in range(n)])

        def over(values, level, t=t):
            return np.clip(values / level[t], -8, 8)

        w = forgetting(rate, 0.021) ** np.arange(t, -1, -1.0)
        energy = 1e4 * forgetting(rate, 0.021) ** (t + 1) + (w * (smooth[: t + 1] ** 2 + 1)).sum()
        acf = []
        for lag in lags:
            ago = np.concatenate([np.zeros(lag * step), smooth])[: t + 1]
            acf.append((w * smooth[: t + 1] * ago).sum() / energy)
        best = int(np.argmax(acf)) if max(acf) > 1e-3 else 0
        lag = lags[best]
        places = [t + 1 - (lag - j) * step for j in range(-4, 5)]
        echo = np.array([smooth[p] if p >= 0 else 0.0 for p in places])
        whole = [int(s) for s in np.rint(samples[: t + 1] * 32768)]
        gcd = math.gcd(*whole)
        grid, seen = (gcd & -gcd, min(2, sum(s != 0 for s in whole))) if gcd else (4, 0)
        voice = max(*acf, 1e-3), lag / lags[-1], echo[4]
        now = said[0][t], slow[t], loud[t], sharp[t], dc[t]
        certain = 0.2 * grid**seen / (0.2 * grid**seen + 0.8) if grid > 1 else 0
        found.append(
            np.concatenate(
                [
                    over(last(x, 16) - said[0][t], loud),
                    over(last(errors[0], 24), slow) / 2,
                    *(over(each[t : t + 1] - said[0][t], slow) for each in said[1:]),
                    over(last(errors[3], 8), slow) / 2,
                    lattices[0][1][t][:32],
                    [np.log(slow[t]) / 2 - 2, np.log(fast[t]) / 2 - 2, np.log(loud[t]) / 2 - 3],
                    over(echo, slow) / 2,
                    [max(*acf, 1e-3), math.log2(lag / lags[-1])],
                    [certain, grid / 32768],
                    steered_by_hand(rate, roughest, *now, lattices[0][1:], t, voice),
                ]
            )
        )
    return np.array(found)


@pytest.mark.parametrize(
    ("rate", "orders", "lags", "step", "grid", "roughest"),
    [
        (8000, (16, 8, 32, 32), range(20, 161), 1, 8, 20.0),
        (20000, (40, 20, 64, 64), range(25, 201), 2, 1, 2 * FULL),
    ],
)
def test_features_are_what_their_definitions_say(rate, orders, lags, step, grid, roughest):
    """Guards against a sum, lag, scale or line that is a sample off, or reads the next sample."""
    samples = voice(260, grid=grid)
    predictors, _, memory = start(rate, 1)
    told, _ = compiled_inputs(predictors, known_at(rate, roughest), samples, memory)
    expected = features_by_hand(samples[:, 0].numpy(), rate, roughest, orders, list(lags), step)
    np.testing.assert_allclose(told[:, 0].numpy(), expected, rtol=1e-9, atol=1e-9)
    assert expected[-1, -5] != 0  # it has found a period


def test_a_limited_level_leaves_the_start_of_a_quiet_piece_alone():
    """Guards against a limit that lets a burst pass, or cuts runs that store none, 0."""
    predictors, known, memory = start(8000, 1)
    samples = torch.from_numpy(np.random.default_rng(3).integers(-3, 4, (1100, 1)) / FULL)
    samples[1000:] *= 3000
    old = unpacked(known._replace(roughest=0.0).packed(), 16)
    old = old._replace(strength=known.strength, most_dc=MOST_DC, loudest=LOUDEST)
    without, limited = (
        compiled_inputs(predictors, each, samples, memory)[0]
        for each in (old, known._replace(roughest=6.0))
    )
    assert torch.equal(limited[:1000], without[:1000])
    most = 6.1 * math.exp(1.5 * float(known.pushes.max())) / FULL
    assert limited[1000:, 0, -1].max() < most < without[1010:, 0, -1].min() / 10
    assert torch.equal(limited[:, :, :-1], without[:, :, :-1])


@pytest.mark.parametrize("added", [("dc",), ("initial", "dc")])
def test_a_memory_from_before_a_level_was_added_gets_a_place_for_it(added):
    """Guards against a resumed run whose predictors read each other's numbers."""
    encoder, random = SoundEncoder(8000, 1), np.random.default_rng(0)
    memory = torch.from_numpy(random.normal(size=(3, encoder.predictors.memory_size)))
    places = [encoder.predictors.starts[name] for name in added]
    memory[:, places] = 0
    older = torch.from_numpy(np.delete(memory.numpy(), places, 1))
    assert torch.equal(encoder.restored(older), memory)
    assert torch.equal(encoder.restored(memory), memory)


def test_a_run_from_before_mean_and_loudness_were_measured_has_no_limit_of_them(tmp_path):
    """Its average of the weights loads too, and is drawn from as before."""
    encoder, path = SoundEncoder(8000, 1, steering=1.0), tmp_path / "best.safetensors"
    names = ["model.encoder.known", "average.module.encoder.known"]
    save_checkpoint(path, dict.fromkeys(names, encoder.known), {})
    loaded, _ = load_checkpoint(path)
    for name in names:
        encoder.most_dc.fill_(30), encoder.loudest.fill_(30)
        kept = {key.rsplit(".", 1)[1]: t for key, t in loaded.items() if key[:12] == name[:12]}
        encoder.load_state_dict(kept)
        assert encoder.steered()[-2:] == (2 * FULL, 2 * FULL)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("dtype", "rate", "B", "threads"), [(torch.float32, 8000, 5, 2), (torch.float64, 48000, 7, 3)]
)
def test_pieces_side_by_side_are_each_as_alone(dtype, rate, B, threads):
    """And so is the memory, with noise and without, in one window or two, and in float32."""
    samples = voice(41, B, grid=2).to(dtype)
    noise = torch.from_numpy(np.random.default_rng(5).normal(0, 0.5, (41, B))).to(dtype)
    noise[:, ::2] = 0
    predictors, known, memory = start(rate, B)
    torch.set_num_threads(threads)
    close = {"rtol": 1e-8, "atol": 1e-8} if dtype == torch.float64 else {}
    for through in (None, noise):

        def read(samples, memory, *at, through=through):
            own = None if through is None else through[at].to(samples).contiguous()
            return compiled_inputs(predictors, known, samples[at], memory, noise=own)

        told, kept = read(samples, memory, slice(41))
        first = read(samples, memory, slice(23))
        second = read(samples, first[1], slice(23, 41))
        assert torch.equal(torch.cat([first[0], second[0]]), told)
        assert torch.equal(second[1], kept)
        for k in range(B):
            own = slice(k, k + 1)
            alone, after = read(samples.double(), memory[own], slice(41), own)
            torch.testing.assert_close(told[:, own], alone.to(dtype), **close)
            torch.testing.assert_close(kept[own], after, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("guidance", [1.0, 8.0])
def test_pieces_with_labels_follow_their_course(guidance):
    """By NumPy. Guards against the course of other labels, and guidance without a limit."""
    T, rate, M, random = 420, 8000, 16, np.random.default_rng(3)
    late = torch.tensor([0.0, 0.0, 48.0]).double()
    widths = random.uniform(0, 0.2, (1, 50, M + 1))
    means = np.concatenate([random.uniform(-0.9, 0.9, (3, 50, M)), np.full((3, 50, 1), 6.0)], 2)
    means[2, :, M] = 12.0
    courses = torch.from_numpy(np.concatenate([widths, means]))
    known = known_at(rate)._replace(
        afforded=torch.tensor([0.7]).double(), courses=courses, guidance=guidance
    )
    predictors, samples = predictors_at(rate, 3), voice(T, 3)
    memory = predictors.start_memory(known.grid, 3, CPU)
    memory[:, predictors.starts["combination"]] = torch.arange(3.0).double()
    memory[:, predictors.starts["moment"]] += late
    found, _ = compiled_inputs(predictors, known, samples, memory)
    plain, unlabelled, beginning = start(rate, 3)
    without, _ = compiled_inputs(plain, unlabelled, samples, beginning)
    voiceless = unlabelled._replace(voices=0 * unlabelled.voices)
    still, _ = compiled_inputs(plain, voiceless, samples, beginning)
    at = predictors.columns["course"].start
    others = [n for n in range(predictors.input_size) if n not in (at, at + 1)]
    assert torch.equal(found[:, 0, others], without[:, 0])
    assert not found[:, 0, at : at + 2].any()
    assert torch.equal(found[:, :, others[:-2]], without[:, :, :-2])
    for piece in (1, 2):
        x = samples[:, piece].numpy() * 32768 + OFFSET
        said, ks, bs = lattice_by_hand(x, M, forgetting(rate, 0.010))
        slow = mean_size(x - np.append(0, said[:-1]), forgetting(rate, 0.00625), 200) + 0.5
        loud = mean_size(x, forgetting(rate, 0.0125), 300) + 1
        moments = late[piece].item() + np.arange(1, T + 1) / 160
        there = np.clip((50 - moments) / 10, 0, 1)
        centre, width = (
            np.array([np.interp(moments, np.arange(50), column) for column in table.T]).T
            for table in (means[piece], widths[0])
        )
        near = np.clip(ks, centre[:, :M] - width[:, :M], centre[:, :M] + width[:, :M])
        off = np.clip(((near - ks) * bs).sum(1) / slow, -8, 8) * there
        missing = np.clip(centre[:, M] - np.log(loud), -8, 8) * there
        course = found[:, piece, at : at + 2].numpy()
        np.testing.assert_allclose(course, np.stack([off, missing], 1), rtol=1e-7, atol=1e-8)
        anchor, level = (without[:, piece, n].numpy() for n in (-2, -1))
        kept = (anchor - still[:, piece, -2].numpy()) * 32768 * there * (min(guidance, 3) - 1)
        pull = 1.5 * 0.7 * guidance * np.clip(off, -0.15, 0.15) * slow
        pulled = np.clip(anchor * 32768 + pull + kept, -32768, 32767) / 32768
        inside = (np.abs(anchor) < 0.999) & (np.abs(pulled) < 0.999)
        assert inside.any()
        np.testing.assert_allclose(found[inside, piece, -2], pulled[inside], atol=1e-8)
        louder = np.exp(1.5 * 0.7 * guidance * np.clip(0.05 * missing, -0.3, 0.3))
        np.testing.assert_allclose(found[:, piece, -1], level * louder, rtol=1e-7)


def test_the_loudest_sounds_are_pushed_as_at_the_last_node():
    """Guards against a push from beyond the table."""
    predictors, known, memory = start(8000, 2)
    memory[:, predictors.starts["loud"]] = torch.tensor([2.0**15, 60_000])
    steered, unsteered = (
        compiled_inputs(predictors, given, torch.zeros(1, 2).double(), memory)[0]
        for given in (known, known._replace(strength=0.0))
    )
    factor = (1.5 * known.pushes[15]).exp()
    torch.testing.assert_close(steered[..., -1], unsteered[..., -1] * factor, rtol=0.02, atol=0)


def test_a_piece_is_left_at_its_own_end():
    """Guards against a memory that has read padding, or a piece of another lane."""
    encoder, B, S = SoundEncoder(8000, 2).eval(), 11, 2
    frames = voice(60, B).T.reshape(B, 30, S).transpose(0, 1)
    lengths = torch.tensor([30, 0, 7, 30, 12, 1, 29, 3, 3, 0, 5])
    begin = encoder.encode(frames[:4], encoder.start(frames, B)).last
    whole = encoder.encode(frames, begin, lengths)
    assert torch.isfinite(whole.inputs).all()
    for piece, length in enumerate(lengths.tolist()):
        alone = Past(*(part[piece : piece + 1] for part in begin))
        if length:
            encoded = encoder.encode(frames[:length, piece : piece + 1], alone)
            assert torch.equal(encoded.inputs[:, 0], whole.inputs[: S * length, piece])
            alone = encoded.last
        assert all(torch.equal(x[0], y[piece]) for x, y in zip(alone, whole.last, strict=True))


def test_a_piece_that_goes_on_from_another_has_a_grid_of_its_own():
    encoder = SoundEncoder(8000, 1).eval()
    encoder.known.copy_(known_at(8000).packed())
    past = encoder.encode(voice(80, 2).unsqueeze(2), encoder.start(torch.zeros(1), 2)).last
    joined = encoder.carried_over(past)
    names = [name for name, size in encoder.predictors.sizes.items() for _ in range(size)]
    changed = (joined.memory != past.memory).any(0).nonzero().flatten().tolist()
    assert [names[k] for k in changed] == ["grid", "seen"]
    coarse = voice(80, 2, grid=256).unsqueeze(2)
    told, alone = (
        encoder.encode(coarse, p).inputs for p in (joined, encoder.start(torch.zeros(1), 2))
    )
    assert torch.equal(told[..., -4:-2], alone[..., -4:-2])


def awkward(T):
    """Samples of the kinds that upset predictors, one piece each (T, B)."""
    t = np.arange(T)
    random = np.random.default_rng(2)
    click = np.zeros(T)
    click[T // 2] = -1
    lines = [
        np.zeros(T), np.full(T, 0.7), np.full(T, -1.0), np.where(t // 37 % 2, 32767 / 32768, -1.0),
        np.where(t % 2, 32767 / 32768, -1.0), np.sin(t * 0.3), click, random.uniform(-1, 1, T),
        np.where(t < T // 2, random.uniform(-1, 1, T), 0.0),
    ]  # fmt: skip
    return torch.from_numpy(np.stack(lines, 1))


@pytest.mark.parametrize("rate", [1, 192000])
def test_features_of_awkward_signals_are_finite_and_limited(rate):
    """Silence divides nothing by zero; full-scale squares and clicks blow nothing up."""
    samples = awkward(3000).float()
    predictors, known, memory = start(rate, samples.shape[1])
    told, memory = compiled_inputs(predictors, known, samples, memory)
    assert torch.isfinite(told).all()
    assert torch.isfinite(memory).all()
    assert told.abs().max() <= 8
    assert (told[..., -2].abs() <= 1).all()
    assert (told[..., -1] >= 0.5 / 32768 / 3).all()
    assert (told[..., predictors.columns["reflections"]].abs() < 1).all()
    silent = told[-1, 0]
    assert silent[-2].abs() < 1e-6
    tiny = torch.finfo(torch.float64).tiny
    assert not ((memory != 0) & (memory.abs() < tiny)).any()  # no denormal numbers, which are slow


def test_some_pieces_are_read_through_noise_and_only_in_training():
    """Targets stay clean, a quiet piece gets little noise, and a seed gives the same noise."""
    encoder = SoundEncoder(8000, 4, noise=0.5)
    frames = voice(80, 40).T.reshape(40, 20, 4).transpose(0, 1)
    begin = encoder.start(torch.zeros(1, dtype=torch.float64), 40)

    def encode(seed):
        torch.manual_seed(seed)
        return encoder.encode(frames, begin)

    noisy, again, other = encode(1), encode(1), encode(2)
    clean = encoder.eval()
    clean = clean.encode(frames, begin)
    assert torch.equal(noisy.inputs, again.inputs)
    assert torch.equal(noisy.frames, frames)
    assert not torch.equal(noisy.inputs, other.inputs)
    same = (noisy.inputs == clean.inputs).all(2).all(0)
    assert 18 < same.sum() < 34
    assert torch.equal(noisy.last.numbers, clean.last.numbers)
    off = _heard(encoder, noisy) - _heard(encoder, clean)
    level = 32768 * clean.inputs[-17:-1, :, -1].T.flip(1)
    assert torch.equal(off, off.round())
    assert (off.abs() <= 0.5 + 0.5 * 4.5 * level).all()
    assert off[~same].abs().max() > 2


def _heard(encoder, encoded):
    """The last samples heard, in levels (B, 16)."""
    line = encoder.predictors.parts(encoded.last.memory)[SAMPLES]
    return (line.flip(1) - OFFSET).round(decimals=6)


def test_noise_keeps_to_the_grid():
    encoder = SoundEncoder(8000, 1, noise=2.0)
    encoder.known.copy_(known_at(8000).packed())
    frames = voice(100, 30, grid=256, seed=3).unsqueeze(2)
    torch.manual_seed(0)
    encoded = encoder.encode(frames, encoder.start(torch.zeros(1, dtype=torch.float64), 30))
    heard = _heard(encoder, encoded)
    clean = _heard(encoder, encoder.eval().encode(frames, encoder.start(frames, 30)))
    assert (heard != clean).any()
    assert (heard % 256 == 0).all()


def test_levels_under_noise_are_those_of_what_is_to_be_predicted():
    """Guards against levels that noise raises: all that follows would seem soft, and would fade."""
    predictors, known = predictors_at(8000), no_statistics(16)
    memory = predictors.start_memory(known.grid, 2, CPU)
    samples = voice(900, 2)
    noise = torch.from_numpy(np.random.default_rng(1).normal(0, 0.6, (900, 2)))
    told, _ = compiled_inputs(predictors, known, samples, memory, noise=noise)
    anchor, level = (FULL * told[..., n].numpy() for n in (-2, -1))
    loudness = predictors.columns["loudness"].stop - 1
    for piece in range(2):
        x = FULL * samples[:, piece].numpy()
        errors = x - np.append(0.0, anchor[:-1, piece])
        levels = mean_size(errors, forgetting(8000, 0.00625), 200.0) + 0.5
        np.testing.assert_allclose(level[:, piece], levels, rtol=1e-6)
        loud = mean_size(x + OFFSET, forgetting(8000, 0.0125), 300.0) + 1
        np.testing.assert_allclose(told[:, piece, loudness], np.log(loud) / 2 - 3, rtol=1e-6)


def test_nothing_is_steered_in_training_or_without_strength():
    """Guards against a unit that learns to undo the steering."""
    samples = voice(300).unsqueeze(1).float()
    steered, plain = (SoundEncoder(8000, 1, steering=s) for s in (1.0, 0.0))
    told = []
    for encoder in (steered.eval(), plain.eval(), copy.deepcopy(steered).train()):
        encoder.known.copy_(known_at(8000).packed())
        told.append(encoder.encode(samples, encoder.start(samples, 1)).inputs)
    assert torch.equal(told[1], told[2])
    assert torch.equal(told[0][..., :-2], told[1][..., :-2])
    assert (told[0][..., -2:] != told[1][..., -2:]).any(0).all()
    assert torch.equal(unpacked(steered.known, 16).pushes, known_at(8000).pushes)


@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_voices_are_kept_up_as_far_as_that_can_be_afforded(strength):
    """What it costs is a matter of the data: 0.4 bits where nearly all is predictable."""
    encoder, known = SoundEncoder(8000, 10, steering=1.0), known_at(8000)
    encoder.known.copy_(known.packed())

    def bits():
        return strength * float((unpacked(encoder.known, 16).voices ** 2).sum())

    before = bits()
    encoder.correct(None, lambda: 30.0 + 10 * math.log(2) * bits())
    assert bits() == pytest.approx(min(before, 0.02))
    share = math.sqrt(bits() / before)
    expected = known._replace(voices=share * known.voices).packed()
    torch.testing.assert_close(encoder.known, expected)
