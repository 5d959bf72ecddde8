"""The compiled CPU backend against the specification: values, states and every gradient."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from drawing import CHOICES
from guards import guarded
from torch import Tensor

from seqmodel.errors import UsageError
from seqmodel.kernels import device
from seqmodel.kernels.linear.sparse import SparseFrames
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.memory import buffer
from seqmodel.kernels.run.threads import Job
from seqmodel.units import UNITS, backends, make, specification
from seqmodel.units.cpu import recurrence
from seqmodel.units.definition import TERMS
from seqmodel.units.specification import Case

__all__ = ["guarded"]  # buffers are guarded in every test here

pytestmark = pytest.mark.usefixtures("two_threads")

# Relative to each tensor's largest entry, or to 0.1 if that entry is smaller. In float32, sums of a
# few thousand terms are added in another order than the specification's, more so over 200 steps.
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5}
SIZES = [  # T, B, H, I
    (1, 1, 1, 1),
    (1, 16, 33, 5),
    (63, 7, 33, 88),
    (63, 1, 46, 20),
    (20, 16, 100, 88),
    (5, 7, 195, 20),
    (3, 16, 256, 17),
    (7, 33, 16, 16),
    (200, 7, 36, 33),
]


@pytest.fixture(params=[False, True], ids=["afterwards", "step by step"])
def summed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of summing the gradients of W and U, whatever the number of rows."""
    monkeypatch.setattr(recurrence, "WIDE", 1 if request.param else 1 << 20)


@contextmanager
def threads_for(backend: object) -> Iterator[None]:
    """One thread for the specification: on two of a busy machine its many small products crawl."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if backend in (specification.run, "reference") else before)
    yield
    torch.set_num_threads(before)


def random_weights(
    name: str, inputs: int, H: int, dtype: torch.dtype, bias: bool
) -> dict[str, Tensor | None]:
    shapes = UNITS[name].shapes(inputs, H, bias=bias)
    stacked: dict[str, Tensor | None] = dict.fromkeys(TERMS)
    for term, shape in shapes.items():
        scale = H**-0.5 if term == "U" else inputs**-0.5 if term == "W" else 1.0
        stacked[term] = (torch.randn(shape, dtype=dtype) * scale).requires_grad_()
    return stacked


def case_of(
    name: str, x: Tensor, H: int, *, s: str = "sigmoid", phi: str = "tanh", bias: bool = True
) -> Case:
    _, B, inputs = x.shape
    return Case(UNITS[name], x.dtype, x.device, B, inputs, H, s, phi, bias)


def compare(
    name: str,
    size: tuple[int, int, int, int],
    dtype: torch.dtype,
    *,
    s: str = "sigmoid",
    phi: str = "tanh",
    bias: bool = True,
    scale: float = 1.0,
) -> None:
    """Run both backends from the same numbers; all outputs and gradients must agree."""
    torch.manual_seed(0)
    T, B, H, inputs = size
    spec = UNITS[name]
    weights = random_weights(name, inputs, H, dtype, bias)
    x = (scale * torch.randn(T, B, inputs, dtype=dtype)).requires_grad_()
    state = tuple(torch.randn(B, H, dtype=dtype, requires_grad=True) for _ in spec.state)
    leaves = {"x": x, **{term: w for term, w in weights.items() if w is not None}}
    leaves |= dict(zip(("h0", "c0"), state, strict=False))
    given = [torch.randn(T, B, H, dtype=dtype) for _ in range(1 + len(state))]

    def run(backend: Any) -> Sequence[Tensor | None]:
        with threads_for(backend):
            case = case_of(name, x, H, s=s, phi=phi, bias=bias)
            h, final = backend(case, weights, x, state, None)
            reached, *of_final = given
            outputs, gradients = (h, *final), (reached, *(g[0] for g in of_final))
            found = torch.autograd.grad(
                outputs, list(leaves.values()), gradients, allow_unused=True
            )
        return *outputs, *found

    names = ["h", *(f"final {part}" for part in spec.state), *(f"d{leaf}" for leaf in leaves)]
    pairs = zip(names, run(specification.run), run(recurrence.run), strict=True)
    for what, right, ours in pairs:
        if right is None:
            assert ours is None or not ours.any(), what
            continue
        assert ours is not None, what
        assert ours.shape == right.shape, what
        assert bool(torch.isfinite(ours).all()), what
        # A net input in the thousands is exact to its last digit, which is not small in itself.
        bound = BOUND[dtype] * (5 if T > 100 else 1) * max(1.0, scale / 20)
        error = float(
            (ours - right).abs().max().detach() / right.abs().max().detach().clamp(min=0.1)
        )
        assert error < bound, f"{what}: {error:.1e}"


@pytest.mark.usefixtures("summed")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", UNITS)
def test_values_and_gradients(name: str, size: tuple[int, int, int, int]) -> None:
    """Each size in one type with one way of summing, and in the other with the other."""
    afterwards, even = recurrence.WIDE > 1, SIZES.index(size) % 2 == 0
    compare(name, size, torch.float32 if afterwards == even else torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("size", [(63, 7, 33, 88), (40, 16, 100, 88), (200, 1, 256, 41)], ids=str)
@pytest.mark.parametrize("name", UNITS)
def test_piano_rolls(name: str, size: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    """Sums of columns for sparse frames, with a silent frame and a full one among them."""
    torch.manual_seed(0)
    T, B, H, inputs = size
    weights = random_weights(name, inputs, H, dtype, bias=True)
    x = (torch.rand(T, B, inputs) < 0.05).to(dtype)
    x[1, 0], x[2, 0] = 0, 1
    assert listed(x, 2) is not None
    state = tuple(torch.zeros(B, H, dtype=dtype) for _ in UNITS[name].state)
    leaves = [w for w in weights.values() if w is not None]
    given = torch.randn(T, B, H, dtype=dtype)
    results = []
    for backend in (recurrence.run, specification.run):
        with threads_for(backend):
            h, _ = backend(case_of(name, x, H), weights, x, state, None)
            results.append([h, *torch.autograd.grad(h, leaves, given)])
    for ours, right in zip(*results, strict=True):
        bound = BOUND[dtype] * (5 if T > 100 else 1)
        assert (ours - right).detach().abs().max() < bound * right.detach().abs().max()


def listed(x: Tensor, threads: int = 1) -> SparseFrames:
    """The notes of x (T, B, I) as a unit lists them when it runs over x."""
    torch.set_num_threads(threads)
    h, _ = make("tanh", x.shape[2], 3, backend="cpu").to(x.dtype)(x)
    found: SparseFrames = h.grad_fn.sparse
    return found


@pytest.mark.parametrize("inputs", [88, 64, 130, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_the_notes_that_sound_are_listed(dtype: torch.dtype, inputs: int) -> None:
    """Guards against notes lost at the end of a word of 64 columns or of a vector."""
    torch.manual_seed(0)
    roll = (torch.rand(40, 3, inputs) < 0.1).to(dtype)
    roll[3, 0], roll[4, 1] = 0, 1
    for threads in (1, 2, 3):
        found = listed(roll, threads)
        for row, count, frame in zip(
            found.indices, found.counts, roll.view(-1, inputs), strict=True
        ):
            assert row[:count].tolist() == frame.nonzero().flatten().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_what_counts_as_a_piano_roll(dtype: torch.dtype) -> None:
    roll = torch.zeros(30, 2, 89, dtype=dtype)
    roll[::2, :, 5] = 1
    assert listed(roll)
    for value in (0.5, -1.0, float("nan"), 1 + 1e-6, 1e-30):
        for place in (0, -1):
            other = roll.clone()
            other.view(-1)[place] = value
            assert not listed(other), (value, place)
            assert not listed(other, 2), (value, place)
    assert not listed(torch.ones_like(roll))
    roll[..., :17], roll[..., 17:] = 1, 0  # 17 of 89: just few enough
    assert listed(roll)
    roll[..., 17] = 1
    assert not listed(roll)


@pytest.mark.parametrize(("s", "phi", "bias", "dtype"), CHOICES)
@pytest.mark.parametrize("name", UNITS)
def test_activations_and_biases(
    name: str, s: str, phi: str, bias: bool, dtype: torch.dtype
) -> None:
    compare(name, (5, 3, 19, 7), dtype, s=s, phi=phi, bias=bias)


@pytest.mark.parametrize("scale", [100.0, 1e4])
@pytest.mark.parametrize("name", UNITS)
def test_saturation(name: str, scale: float) -> None:
    compare(name, (5, 7, 33, 5), torch.float32, scale=scale)


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("value", [float("nan"), -1e30])
def test_non_finite_values_spread_as_in_the_reference(name: str, value: float) -> None:
    unit, plain = make(name, 4, 20, backend="cpu"), make(name, 4, 20, backend="reference")
    plain.load_state_dict(unit.state_dict())
    x = torch.randn(6, 3, 4)
    x[2, 1, 0] = value
    ours, right = unit(x)[0], plain(x)[0]
    assert torch.equal(ours.isnan(), right.isnan())
    assert torch.allclose(ours, right, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", UNITS)
def test_finite_differences(name: str) -> None:
    torch.set_num_threads(1)  # thousands of tiny calls
    weights = random_weights(name, 3, 5, torch.float64, bias=True)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(
        torch.randn(2, 5, dtype=torch.float64, requires_grad=True) for _ in UNITS[name].state
    )
    there = {term: w for term, w in weights.items() if w is not None}
    case = case_of(name, x, 5, s="hard-sigmoid", phi="sigmoid")

    def run(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = {**weights, **dict(zip(there, tensors[len(state) :], strict=True))}
        h, final = recurrence.run(case, given, x, tensors[: len(state)], None)
        return h, *final

    assert torch.autograd.gradcheck(run, (x, *state, *there.values()))


@pytest.mark.parametrize("name", ["lstm", "gru", "gru3", "tanh"])
def test_module_stacked_ragged_and_carried(name: str) -> None:
    """Through Unit and Stack: lengths that include 0 and T, state carried between calls."""
    torch.manual_seed(1)
    units = [make(name, 6, 21, backend=b, layers=2).double() for b in ("cpu", "reference")]
    units[1].load_state_dict(units[0].state_dict())
    x = torch.randn(9, 5, 6, dtype=torch.float64)
    lengths = torch.tensor([9, 0, 3, 1, 8])
    results = []
    for unit in units:
        _, state = unit(x[:4])
        h, last = unit(x, state, lengths)
        loss = h.square().sum() + sum(part.sin().sum() for layer in last for part in layer)
        gradients = torch.autograd.grad(loss, list(unit.parameters()))
        results.append([h, *(part for layer in last for part in layer), *gradients])
    for ours, right in zip(*results, strict=True):
        assert torch.allclose(ours, right, rtol=1e-10, atol=1e-10)


def gradients(outputs: Sequence[Tensor], given: Sequence[Tensor], leaves: Sequence[Tensor]) -> Any:
    found = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in pairs]


@pytest.mark.usefixtures("summed")
@pytest.mark.parametrize(
    ("dtype", "threads"), [(torch.float32, 3), (torch.float64, 1)], ids=["f32", "f64"]
)
@pytest.mark.parametrize("kind", ["data", "roll", "input with gradient"])
@pytest.mark.parametrize("name", UNITS)
def test_ragged_rows_equal_rows_run_alone(
    name: str, kind: str, dtype: torch.dtype, threads: int
) -> None:
    """Values, final states and every gradient; nothing beyond a row's length has any effect."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    T, lengths, inputs, H = 11, [11, 0, 3, 1, 10, 0, 7], 9, 21
    B, spec = len(lengths), UNITS[name]
    weights = random_weights(name, inputs, H, dtype, bias=True)
    x = torch.randn(T, B, inputs, dtype=dtype)
    if kind == "roll":
        x = (x > 1.5).to(dtype)
    for row, length in enumerate(lengths):
        if kind != "roll":
            x[length:, row] = float("nan") if row % 2 else float("inf")
    x.requires_grad_(kind == "input with gradient")
    state = tuple(torch.randn(B, H, dtype=dtype, requires_grad=True) for _ in spec.state)
    leaves = [*state, *(w for w in weights.values() if w is not None)]
    leaves += [x] if x.requires_grad else []
    d_h = torch.randn(T, B, H, dtype=dtype)
    d_final = [torch.randn(B, H, dtype=dtype) for _ in state]
    h, final = recurrence.run(case_of(name, x, H), weights, x, state, torch.tensor(lengths))
    ours = [h, *final, *gradients([h, *final], [d_h, *d_final], leaves)]
    right_h, ends, sums = torch.zeros_like(d_h), [], [torch.zeros_like(leaf) for leaf in leaves]
    for row, length in enumerate(lengths):
        of_row = [part[row : row + 1] for part in state]
        if length:
            alone = x[:length, row : row + 1]
            outputs, of_row = specification.run(
                case_of(name, alone, H), weights, alone, of_row, None
            )
            right_h[:length, row : row + 1] = outputs.detach()
            reached, given = [outputs, *of_row], [d_h[:length, row : row + 1]]
        else:
            reached, given = list(of_row), []
        given += [g[row : row + 1] for g in d_final]
        found = gradients(reached, given, leaves)
        sums = [total + more for total, more in zip(sums, found, strict=True)]
        ends.append(of_row)
    right = [right_h, *(torch.cat(parts) for parts in zip(*ends, strict=True)), *sums]
    for one, other in zip(ours, right, strict=True):
        assert (one - other).abs().max() <= BOUND[dtype] * other.abs().max().clamp(min=0.1)
    for row, length in enumerate(lengths):
        assert not h[length:, row].any()
        if x.requires_grad:
            assert not ours[-1][length:, row].any()


@pytest.mark.parametrize("name", UNITS)
def test_ragged_and_dense_loops_are_bit_identical(name: str) -> None:
    """Guards against ragged loops that round differently from the dense ones."""
    torch.manual_seed(0)
    unit = make(name, 9, 21, backend="cpu")
    x = torch.randn(11, 5, 9)
    lengths = torch.tensor([11, 4, 7, 0, 11])
    inside = (torch.arange(11).unsqueeze(1) < lengths).unsqueeze(2)
    weights, given = list(unit.parameters()), torch.randn(11, 5, 21) * inside
    dense, ragged = unit(x)[0], unit(x, lengths=lengths)[0]
    assert torch.equal(dense * inside, ragged)
    one, other = (torch.autograd.grad(h, weights, given) for h in (dense, ragged))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.usefixtures("summed")
@pytest.mark.parametrize("needs_x", [False, True])
def test_nothing_blows_up_beyond_the_length(needs_x: bool) -> None:
    """Masking by multiplication would give inf * 0 = nan in h and in U's gradient."""
    torch.manual_seed(0)
    unit = make("tanh", 3, 8, backend="cpu", activation="relu")
    with torch.no_grad():
        unit.U.copy_(2 * torch.eye(8))
    x = torch.rand(200, 4, 3, requires_grad=needs_x)
    lengths = torch.full((4,), 10)
    leaves = list(unit.parameters()) + ([x] if needs_x else [])
    h, final = unit(x, lengths=lengths)
    short, last = unit(x[:10])
    assert not h[10:].any()
    assert torch.equal(h[:10], short)
    assert torch.equal(final.h, last.h)
    one, other = (torch.autograd.grad(outputs.sum(), leaves) for outputs in (h, short))
    for ours, right in zip(one, other, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-6, atol=0)
        assert ours.isfinite().all()


@pytest.mark.parametrize("name", ["lstm", "mgu"])
def test_gradients_only_where_asked(name: str) -> None:
    """Of one step only, none of c; then with W frozen, which leaves the others as they were."""
    unit, plain = (make(name, 6, 21, backend=b).double() for b in ("cpu", "reference"))
    plain.load_state_dict(unit.state_dict())
    x = torch.randn(4, 3, 6, dtype=torch.float64, requires_grad=True)
    for frozen in (False, True):
        gradients = []
        for one in (unit, plain):
            one.W.requires_grad_(not frozen)
            asked = [x, *(p for p in one.parameters() if p.requires_grad)]
            gradients.append(torch.autograd.grad(one(x)[0][2].sum(), asked))
        for ours, right in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, right)
    with torch.no_grad():
        assert not unit(x)[0].requires_grad


def test_inputs_and_gradients_of_any_layout() -> None:
    torch.manual_seed(0)
    results = []
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    for backend in ("cpu", "reference"):
        torch.manual_seed(1)
        unit = make("lstm", 3, 20, backend=backend).double()
        h, _ = unit(x.permute(1, 2, 0))  # (T, B, I), not contiguous
        h.permute(2, 0, 1).contiguous().cos().sum().backward()
        h, _ = unit(x.permute(1, 2, 0)[::2])
        h.mean(2).sum().backward()  # a gradient expanded along H
        results.append([h, *(p.grad for p in unit.parameters())])
    for ours, right in zip(*results, strict=True):
        assert torch.allclose(ours, right, rtol=1e-10, atol=1e-12)


def test_backward_twice_and_modified_outputs() -> None:
    unit = make("gru", 3, 20, backend="cpu")
    h, _ = unit(torch.randn(5, 2, 3))
    first = torch.autograd.grad(h.sum(), unit.U, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(h.sum(), unit.U, retain_graph=True)[0])
    loss = h.sum()
    with torch.no_grad():
        h.mul_(2)  # the backward pass needs h unchanged
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name", ["lstm", "gru", "gru3", "gru-reset-after"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([1, 3])], ids=["dense", "ragged"])
def test_second_derivatives(name: str, lengths: Tensor | None) -> None:
    """The cpu backend computes them through the specification."""
    torch.set_num_threads(1)
    unit = make(name, 3, 4, backend="cpu").double()
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn_like(part, requires_grad=True) for part in unit.zero_state(2))
    weights = dict(unit.named_parameters())

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(weights, rest[len(state) :], strict=True))
        h, last = torch.func.functional_call(unit, given, (x, rest[: len(state)], lengths))
        return h, *last

    assert torch.autograd.gradgradcheck(run, (x, *state, *weights.values()), fast_mode=True)


def test_auto_runs_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    parallel_for = recurrence.parallel_for

    def watched(jobs: Sequence[Job], threads: int) -> None:
        ran.extend(job.kernel.name for job in jobs)
        parallel_for(jobs, threads)

    monkeypatch.setattr(recurrence, "parallel_for", watched)
    unit = make("lstm", 3, 4)
    h, _ = unit(torch.randn(5, 2, 3))
    assert "forward" in ran
    h.sum().backward()
    assert "backward" in ran
    assert type(h.grad_fn).__name__ != "StackBackward0"
    monkeypatch.setattr(specification, "by_gate", None)  # the specification cannot run
    unit(torch.randn(5, 2, 3))
    with pytest.raises(TypeError):
        make("lstm", 3, 4, backend="reference")(torch.randn(5, 2, 3))


def test_auto_leaves_the_rest_to_the_reference() -> None:
    unit = make("gru", 3, 4).to(torch.bfloat16)
    x = torch.randn(2, 2, 3, dtype=torch.bfloat16)
    assert unit(x)[0].dtype is torch.bfloat16
    name, why = backends.why(unit.case(2))
    assert name == "reference"
    assert "bfloat16" in why
    named = make("gru", 3, 4, backend="cpu").to(torch.bfloat16)
    with pytest.raises(UsageError, match="bfloat16"):
        named(x)
    with pytest.raises(ValueError, match=r"x must be torch\.float32 on cpu"):
        make("gru", 3, 4, backend="cpu")(x.double())


@pytest.mark.usefixtures("summed")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_any_number_of_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    compare("lstm", (9, 7, 33, 5), torch.float64)
    compare("gru", (300, 4, 120, 30), torch.float64)


def test_python_threads_without_gnu_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "forked", lambda: True)
    compare("lstm", (9, 7, 33, 5), torch.float64)
    compare("gru", (300, 4, 120, 30), torch.float64)


def test_several_graphs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a call that takes buffers that another still needs."""
    monkeypatch.setattr(memory, "buffer", buffer)
    monkeypatch.setattr(memory, "LARGE", 1)
    units = {b: make("lstm", 8, 60, backend=b) for b in ("cpu", "reference")}
    units["reference"].load_state_dict(units["cpu"].state_dict())
    x, results = torch.randn(100, 7, 8), []
    for backend, unit in units.items():
        weights = list(unit.parameters())
        with threads_for(backend):
            h = [unit(x * k)[0] for k in range(3)]  # three graphs alive at once
            results.append(
                [torch.autograd.grad(h[k].sum(), weights, retain_graph=True) for k in (1, 0, 2, 1)]
            )
    for turns in zip(*results, strict=True):
        for ours, right in zip(*turns, strict=True):
            assert torch.allclose(ours, right, rtol=1e-3, atol=1e-3)
