"""Which backend runs a case, on which device, and the error if none can."""

from itertools import product

import pytest
import torch

from seqmodel.errors import UsageError
from seqmodel.units import UNITS, make, unit_spec
from seqmodel.units.backends import BACKENDS, backend_for, choose_device, why
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS, Case

CPU, CUDA, META = (torch.device(kind) for kind in ("cpu", "cuda", "meta"))
TORCHS = ("tanh", "lstm-nopeephole", "gru-reset-after")
"""The units that torch.nn computes."""
LARGE = {"H": 2048, "B": 256}


def case(name="lstm-nopeephole", *, dtype=torch.float32, device=CPU, B=16, I=88, H=36, **options):  # noqa: E741
    return Case(unit_spec(name), dtype, device, B, I, H, **options)


def test_torchs_layers_run_what_they_can_compute():
    """Guards against dropped peepholes, or an activation other than the requested one."""
    for name, s, phi, device in product(UNITS, GATE_ACTIVATIONS, ACTIVATIONS, (CPU, CUDA)):
        there = name in TORCHS and phi == "tanh" and s == "sigmoid"
        there = there or (name == "tanh" and phi in ("tanh", "relu"))
        asked = case(name, device=device, gate_activation=s, activation=phi)
        assert (BACKENDS["torch-nn"].unsupported_reason(asked) is None) == there, asked


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (case("gru-reset-after"), "cpu"),
        (case("gru-reset-after", device=CUDA), "torch-nn"),
        (case("tanh", device=CUDA, activation="relu"), "torch-nn"),
        (case("tanh", device=CUDA, activation="sigmoid"), "reference"),
        (case("gru", device=CUDA), "reference"),
        (case("gru-reset-after", dtype=torch.bfloat16), "reference"),
        (case("gru-reset-after", device=META), "reference"),
    ],
)
def test_auto_takes_the_first_backend_that_can_and_says_why(wanted, expected):
    """Guards against taking a slower backend than necessary, or giving another's reason."""
    assert backend_for("auto", wanted).name == expected
    name, reason = why(wanted)
    assert name == expected
    before = list(BACKENDS)[: list(BACKENDS).index(expected)]
    assert reason.count("not ") >= len(before)
    assert all(
        f"not {other}: {BACKENDS[other].unsupported_reason(wanted)}" in reason for other in before
    )


def test_a_requested_backend_that_cannot_run_is_an_error():
    """Guards against running on a backend other than the requested one."""
    for name, unit, device in (("cpu", "lstm", CUDA), ("torch-nn", "lstm", CPU)):
        reason = BACKENDS[name].unsupported_reason(case(unit, device=device))
        with pytest.raises(UsageError) as caught:
            backend_for(name, case(unit, device=device))
        assert str(caught.value) == f"the {name} backend cannot run {unit} here: {reason}"
    with pytest.raises(UsageError, match="torch-nn backend cannot run lstm"):
        make("lstm", 3, 4, backend="torch-nn")(torch.zeros(2, 1, 3))


def test_a_missing_device_is_a_one_line_error(monkeypatch):
    """Guards against a traceback from inside torch."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"^--device cuda: this torch .* finds no GPU; [^\n]*$"):
        choose_device("cuda", case())
    with pytest.raises(UsageError, match="no device 'gpu'; choose one of auto, cpu, cuda"):
        choose_device("gpu", case())
    assert choose_device("auto", case(**LARGE)) == CPU
    assert choose_device("cpu", case()) == CPU


@pytest.mark.parametrize(
    ("wanted", "option", "backend", "expected"),
    [
        # 7 us per step; launching it takes a GPU about 40.
        *((case(name, H=36, B=16), "auto", "auto", CPU) for name in TORCHS),
        *((case(name, H=46, B=1), "auto", "auto", CPU) for name in TORCHS),
        *((case(name, H=1024, B=128), "auto", "auto", CUDA) for name in TORCHS),
        *((case(name, H=2048, B=32), "auto", "auto", CUDA) for name in TORCHS),
        # The specification would be loops of small kernels on a GPU.
        *((case(name, **LARGE), "auto", "auto", CPU) for name in UNITS if name not in TORCHS),
        *((case(name, **LARGE), "cuda", "auto", CUDA) for name in UNITS if name not in TORCHS),
        (case("tanh", activation="sigmoid", **LARGE), "auto", "auto", CPU),
        (case(**LARGE), "auto", "reference", CPU),
        (case(**LARGE), "auto", "cpu", CPU),
        (case(**LARGE), "auto", "torch-nn", CUDA),
    ],
)
def test_auto_takes_a_gpu_where_the_backend_runs_and_is_faster(
    wanted, option, backend, expected, monkeypatch
):
    """Guards against a GPU that waits for launches, and a device that the backend cannot use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device(option, wanted, backend) == expected
    with pytest.raises(UsageError, match="the cpu backend cannot run"):
        choose_device("cuda", wanted, "cpu")
