"""Discretised logistics of whole blocks, one sample at a time."""

import math

import numpy as np
import pytest
import torch
from made import resonance
from scipy import stats
from scores import DEVIATION, MEAN, C, chosen, exact_nats, random_blocks, uniforms_of

from seqmodel.outputs.logistic import WIDTH, DiscretisedLogisticOutput

H, F, K = 5, 3, 4


def make(*, frame_size=F, components=K, hidden=H, seed=0, residual=0.3):
    """An output in float64 with no parameter at zero and components unlike each other."""
    torch.manual_seed(seed)
    output = DiscretisedLogisticOutput(
        hidden, frame_size, components, mean=MEAN, deviation=DEVIATION, context=C
    ).double()
    with torch.no_grad():
        output.predictor.normal_(0, 0.4)
        output.residual.fill_(residual)
        output.correction.normal_(0, 0.3)
        output.mixture.weight.normal_(0, 0.3)
        output.mixture.bias.normal_(0, 1)
    return output


def mixtures(output, parameters, frames, past):
    """Logits, raw means and raw scales (F, K) of one block, computed by loops over the samples."""
    weights = {name: value.double().numpy() for name, value in output.state_dict().items()}
    residual = float(weights["residual"])
    samples = [*past.tolist(), *frames.tolist()]
    found = []
    for j in range(len(frames)):
        p = (np.array(samples[j : j + C]) - MEAN) / DEVIATION
        hidden = np.tanh(
            parameters[j].numpy() + weights["window.weight"] @ p + weights["window.bias"]
        )
        rows = weights["mixture.weight"] @ hidden + weights["mixture.bias"]
        logits, offsets, log_scales = np.split(rows, 3)
        linear = sum(
            (weights["predictor"][i] + residual * weights["correction"][i]) * p[i] for i in range(C)
        )
        means = MEAN + DEVIATION * (linear + residual * offsets)
        scales = 1 / 327680 + DEVIATION * residual * np.exp(log_scales)  # a tenth of a step
        found.append((logits, means, scales))
    return [np.array(part) for part in zip(*found, strict=True)]


def test_nats_are_those_of_the_equations():
    """Recomputed from the docstring by loops: windows, direction of time, units, tails, floor."""
    output = make()
    frames, past = random_blocks(12, F)
    frames[0, 1], frames[1, 2] = -1.0, 32767 / 32768
    parameters = output(torch.randn(12, H, dtype=torch.float64)).detach()
    assert parameters.shape == (12, F, WIDTH)
    ours = output.sample_nats(parameters, frames, past).detach()
    for n in range(12):
        parts = mixtures(output, parameters[n], frames[n], past[n])
        for j in range(F):
            expected = exact_nats(frames[n, j].item(), *(part[j] for part in parts))
            assert ours[n, j].item() == pytest.approx(expected, rel=1e-10)
    together = output.nats(parameters, frames, past)
    torch.testing.assert_close(together.detach(), ours.sum(-1))


def started(stream, components=8):
    mean, deviation = float(stream.mean()), float(stream.std())
    windows = np.lib.stride_tricks.sliding_window_view(stream, C)[:-1]
    torch.manual_seed(0)
    output = DiscretisedLogisticOutput(20, F, components, mean=mean, deviation=deviation, context=C)
    output.start_at_data(windows, stream[C:])
    return output, windows


@pytest.mark.parametrize("noise", ["logistic", "heavy"])
def test_it_starts_at_the_linear_predictor(noise):
    """In likelihood too, and with a non-zero gradient for every parameter."""
    stream = resonance(20_000, noise)
    output, windows = started(stream)
    z = (windows - output.mean) / output.deviation
    target = (stream[C:] - output.mean) / output.deviation
    least_squares = np.linalg.lstsq(z, target, rcond=None)[0]
    np.testing.assert_allclose(output.predictor, least_squares, atol=2e-3)
    assert output.residual.item() == pytest.approx(np.std(target - z @ least_squares), rel=1e-3)

    blocks = stream[C:][: (len(stream) - C) // F * F].reshape(-1, F)
    past = windows[::F][: len(blocks)]
    h = torch.rand(len(blocks), 20) - 0.5
    frames, past = torch.from_numpy(blocks).float(), torch.from_numpy(past.copy()).float()
    nats = output.score(h, frames, past)
    error = stream[C:] - output.mean - output.deviation * (z @ least_squares)
    _, scale = stats.logistic.fit(error, floc=0)
    alone = -stats.logistic.logpdf(error, 0, scale).mean() + math.log(32768)
    gap = nats.mean().item() / F - alone
    assert gap < {"logistic": 0.15, "heavy": -0.05}[noise]  # spread-out scales suit heavy tails
    assert gap > -0.2
    slopes = torch.autograd.grad(nats[0], list(output.parameters()))
    for (name, _), slope in zip(output.named_parameters(), slopes, strict=True):
        assert slope.abs().max() > 1e-3, name


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_it_starts_on_data_that_never_changes(level):
    """Silence leaves no residual and a singular system; K may exceed the number of windows."""
    torch.manual_seed(0)
    output = DiscretisedLogisticOutput(20, F, 8, mean=0.0, deviation=0.1, context=C)
    output.start_at_data(np.full((5, C), level), np.full(5, level))
    nats = output.score(torch.zeros(1, 20), torch.full((1, F), level), torch.full((1, C), level))
    assert nats.isfinite()
    assert nats.item() / F < 2


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_a_seeds_draw_can_be_recomputed_from_the_stated_rule(temperature):
    output, B = make(), 200
    parameters = output(torch.randn(B, H, dtype=torch.float64)).detach()
    past = random_blocks(B, F)[1]
    uniforms = uniforms_of(output, B)
    with torch.no_grad():
        ours = output.draw(parameters, past, uniforms, temperature)
    uniforms = uniforms.numpy()
    for n in range(B):
        block = torch.zeros(F, dtype=torch.float64)
        for j in range(F):
            logits, means, scales = (
                part[j] for part in mixtures(output, parameters[n], block, past[n])
            )
            k = chosen(logits, uniforms[n, 2 * j], temperature)
            u = max(uniforms[n, 2 * j + 1], 2.0**-54)
            sample = means[k] + temperature * scales[k] * (np.log(u) - np.log1p(-u))
            block[j] = np.clip(round(sample * 32768), -32768, 32767) / 32768
        assert ours[n].tolist() == block.tolist()
