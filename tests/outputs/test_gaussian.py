"""The Gaussian mixture: an exact density, kept finite, and draws that follow it."""

import math
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made import gaussian as make
from made import resonance
from scipy import stats
from scores import DEVIATION, MEAN, C, assert_compiled_is_plain, chosen, uniforms_of
from texts import compiled

from seqmodel.outputs.draws import choose
from seqmodel.outputs.gaussian import GaussianMixtureOutput

H, F, K = 7, 4, 5


def test_floor_share_uses_the_most_responsible_component():
    """Not the likeliest a priori, nor an average over components."""
    output = make(frame_size=4, components=3)
    under, over = math.log(output.floor) - 0.1, math.log(output.floor) + 0.1
    parameters = torch.zeros(2, 9, 3, dtype=torch.float64)
    parameters[:, 0] = torch.tensor([0.0, 5.0, 0.0])  # the second is the likeliest a priori
    parameters[:, 1:5] = torch.tensor([-3.0, 0.0, 3.0])
    parameters[:, 5:, 0] = torch.tensor([under, over, over, under])
    parameters[:, 5:, 1] = under
    parameters[:, 5:, 2] = torch.tensor([under, over, over, over])
    z = torch.tensor([[-3.0], [3.0]], dtype=torch.float64).expand(2, 4)
    frames = MEAN + DEVIATION * z
    assert output.floor_share(parameters, frames, frames).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(("kind", "least"), [("speech", 1.0), ("white", -0.2), ("silence", 2.0)])
def test_it_starts_near_a_single_gaussian_or_better(kind, least):
    """What a mixture gains, in nats per sample: in white noise there are no clusters."""
    noise = np.random.default_rng(1).normal(0, 0.1, (2000, 10))
    blocks = np.round(noise * 32768) / 32768 * (kind == "white")
    if kind == "speech":
        loudness = np.repeat([1.0, 0.05, 0.0, 0.3], 500)
        blocks = resonance(20_000, "heavy").reshape(2000, 10) * loudness[:, np.newaxis]
    mean, deviation = float(blocks.mean()), float(blocks.std()) or 0.1
    torch.manual_seed(0)
    output = GaussianMixtureOutput(50, 10, 20, mean=mean, deviation=deviation, context=C)
    output.start_at_data(blocks)
    frames = torch.from_numpy(blocks).float()
    nats = output.score(torch.rand(2000, 50) - 0.5, frames, frames).mean().item() / 10
    assert 0.5 * (1 + math.log(2 * math.pi)) - nats > least


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_a_seeds_draw_can_be_recomputed_from_the_stated_rule(temperature):
    output = make(spread=0.5)
    B = 300
    parameters = output(torch.randn(B, H, dtype=torch.float64)).detach()
    uniforms = uniforms_of(output, B)
    past = torch.zeros(B, C, dtype=torch.float64)
    ours = output.draw(parameters, past, uniforms, temperature).numpy()
    for row, u, block in zip(parameters.numpy(), uniforms.numpy(), ours, strict=True):
        logits, means, log_scales = row[0], row[1 : F + 1], row[F + 1 :]
        k = chosen(logits, u[0], temperature)
        for f in range(F):
            sigma = temperature * (1 / 32768 / DEVIATION + math.exp(log_scales[f, k]))
            z = means[f, k] + sigma * stats.norm.ppf(max(u[1 + f], 2.0**-54))
            level = np.clip(round((MEAN + DEVIATION * z) * 32768), -32768, 32767)
            assert block[f] * 32768 == level


def test_a_component_is_drawn_for_uniforms_below_its_cumulative_weight():
    """One equal to it belongs to the next; none without weight is drawn, whatever the rounding."""

    def chosen(logits, uniform):
        K = len(logits)
        return choose(
            SimpleNamespace(
                parameters=logits, K=K, weights=np.zeros(K), temperature=[1.0], at_zero=False,
                uniforms=[uniform], lanes=1,
            )
        )  # fmt: skip

    uniforms = [0.0, 0.2499, 0.25, 0.5, 0.75, 1 - 2.0**-53]
    assert [chosen([-math.inf, 0.0, 0.0, 0.0, 0.0], u) for u in uniforms] == [1, 1, 2, 3, 4, 4]
    logits = np.random.default_rng(6).normal(size=(1000, 8))
    logits[:, -1] = -2000
    assert all(chosen(row, uniforms[-1]) < 7 for row in logits)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_scale", [-1e4, -50.0, 0.0, 86.0, 90.0, 1e4])
def test_no_scale_makes_the_nats_or_a_gradient_infinite(log_scale, dtype):
    """Digital silence drives sigma to 0; the compiled exp and log take normal numbers only."""
    output = make(components=1).to(dtype)
    with torch.no_grad():
        output.linear.bias[1 : F + 1] = -MEAN / DEVIATION  # so that raw 0 is hit exactly
        output.linear.bias[F + 1 :] = log_scale
    h, frames = torch.zeros(5, 1, H, dtype=dtype), torch.zeros(5, 1, F, dtype=dtype)
    frames[1], frames[2] = -1.0, 32767 / 32768
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert_compiled_is_plain(output, h, frames, bound=bound)
    nats = output.plain_nats(h, frames, None)
    assert all(s.isfinite().all() for s in (nats, *torch.autograd.grad(nats.sum(), h)))
    log_sigma = np.logaddexp(math.log(1 / 32768 / DEVIATION), log_scale)
    silent = F * (log_sigma + 0.5 * math.log(2 * math.pi))
    assert nats[0].item() == pytest.approx(silent, rel=2e-6)


def logs(x, y, count):
    for n in range(count):
        y[n] = log(x[n])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_log_keeps_all_digits(dtype):
    """Near 1 too, where the parts of log(2^n m) could cancel."""
    info = np.finfo(dtype)
    random = np.random.default_rng(0)
    x = np.exp(random.uniform(np.log(info.tiny), np.log(info.max), 4096)).astype(dtype)
    x[::3] = 1 + random.normal(0, 1, len(x[::3])) * 10 ** random.uniform(-7, -1, len(x[::3]))
    x[:4] = 1, info.tiny, info.max, np.nan
    given = {"x": x, "y": np.empty_like(x), "count": len(x)}
    compiled(logs, given)(**given)
    y = given["y"]
    assert y[0] == 0
    assert np.isnan(y[3])
    exact = np.log(np.delete(x, 3).astype(np.longdouble))
    np.testing.assert_allclose(np.delete(y, 3), exact, rtol=4 * info.eps)
