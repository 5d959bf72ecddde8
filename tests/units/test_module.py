"""Units as modules: weights, sizes, state, what is rejected; those of the user's own."""

import copy
import io
import re
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import own_modules
import pytest
import safetensors.torch
import torch
from drawing import random_tensor, random_unit
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from own_modules import Attention
from torch import func, nn

from seqmodel.data.batches import load
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.model.build import build_model, with_sizes
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.state import TrainingState
from seqmodel.training.update import weight_noise, window_gradient
from seqmodel.units import UNITS, hidden_size_for, make, unit_spec
from seqmodel.units.own_module import check_module

CELLS = ("lstm", "lstm-nopeephole")


@pytest.mark.parametrize("bias", [True, False])
def test_gates_are_views_that_cover_each_weight_once(name, bias):
    """Guards against gates that overlap, that are copies, or that have terms or sizes swapped."""
    unit = make(name, 3, 4, bias=bias)
    shapes = {"W": (4, 3), "U": (4, 4), "V": (4,), "b": (4,), "bU": (4,)}
    weights = []
    for gate, terms in unit.gates().items():
        there = {term for term, weight in terms.items() if weight is not None}
        assert there == {term for term in unit.spec.gates[gate] if bias or term not in ("b", "bU")}
        assert all(terms[term].shape == shapes[term] for term in there)
        weights += [terms[term] for term in there]
    with torch.no_grad():
        for k, weight in enumerate(weights, start=1):
            weight.fill_(float(k))
    stored = torch.cat([p.flatten() for p in unit.parameters()])
    for k, weight in enumerate(weights, start=1):
        assert int((stored == k).sum()) == weight.numel()
    assert stored.min() == 1
    stack = make(name, 3, 4, layers=2, bias=bias)
    assert list(stack.gates()) == [f"{k}.{gate}" for k in (0, 1) for gate in unit.gates()]
    for one, layers in ((unit, 1), (stack, 2)):
        counted = sum(weight.numel() for weight in one.parameters())
        assert one.parameter_count() == counted == count(name, 3, 4, layers, bias)


def count(name, input_size, hidden_size, layers=1, bias=True):
    """The number of weights, without building the unit."""
    sizes = [input_size] + [hidden_size] * (layers - 1)
    spec = unit_spec(name)
    return sum(spec.parameter_count(size, hidden_size, bias=bias) for size in sizes)


def test_changed_weights_take_effect_at_once(pair):
    """Guards against a backend that keeps weights of an earlier run: training would stall."""
    known, backend = pair
    unit, other = (random_unit(known, 3, 4, seed=seed, backend=backend) for seed in (1, 2))
    x = random_tensor(5, 2, 3)
    before, _ = unit(x)
    with torch.no_grad():
        for ours, theirs in zip(unit.parameters(), other.parameters(), strict=True):
            ours.copy_(theirs)
    after, _ = unit(x)
    assert not torch.equal(before, after)
    assert torch.equal(after, other(x)[0])
    assert torch.equal(after, copy.deepcopy(unit)(x)[0])


def test_initial_weights(name):
    """Guards against a missing forget bias of 1, or W and U drawn for all gates at once."""
    hidden = 16
    torch.manual_seed(0)
    for gate, terms in make(name, 48, hidden).gates().items():
        if terms["W"] is not None:
            bound = (6 / (48 + hidden)) ** 0.5
            assert 0.9 * bound < terms["W"].abs().max() <= bound
        if terms["U"] is not None:
            torch.testing.assert_close(terms["U"] @ terms["U"].T, torch.eye(hidden))
        for term in ("V", "b", "bU"):
            remembers = name in CELLS and (gate, term) == ("f", "b")
            if terms.get(term) is not None:
                assert (terms[term] == (1.0 if remembers else 0.0)).all(), (gate, term)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"x": torch.zeros(shape)}, r"x must be .*3\), not \(")
          for shape in [(5, 3), (5, 2, 4), (5, 2, 2), (0, 2, 3), (5, 2, 3, 1), (3,)]),
        *(({"state": (torch.zeros(shape), torch.zeros(shape))}, "state must be")
          for shape in [(1, 4), (3, 4), (2, 5), (4,), (2, 2, 4)]),
        ({"state": make("gru", 3, 4).zero_state(2)}, "state must be"),
        *(({"lengths": torch.tensor(lengths)}, "lengths must be")
          for lengths in ([6, 2], [-1, 2], [2], [2, 3, 4], [[2, 3]])),
    ],
)  # fmt: skip
def test_bad_arguments_are_a_value_error(arguments, message):
    """Guards against what would be broadcast, counted from the end, or read out of bounds."""
    with pytest.raises(ValueError, match=message):
        make("lstm", 3, 4)(**{"x": torch.zeros(5, 2, 3), **arguments})


def test_a_unit_runs_on_the_meta_device():
    """Guards against asking torch for autocast there, which is an error."""
    h, state = make("gru", 3, 4, layers=2).to("meta")(torch.zeros(5, 2, 3, device="meta"))
    assert h.shape == (5, 2, 4)
    assert h.device == state[1].h.device == torch.device("meta")


def test_a_type_or_device_unlike_the_weights_is_a_value_error():
    """Guards against float64 data read as float32, or a state left on another device."""
    unit, x = make("lstm", 3, 4), torch.zeros(5, 2, 3)
    with pytest.raises(ValueError, match=r"x must be torch.float32 on cpu.* not torch.float64"):
        unit(x.double())
    with pytest.raises(ValueError, match=r"x must be torch.float32 on cpu.* on meta"):
        unit(x.to("meta"))
    state = unit.double().zero_state(2)
    with pytest.raises(ValueError, match=rf"{state._fields[-1]} must be torch.float32 on cpu"):
        unit.float()(x, type(state)(*(t.float() for t in state[:-1]), state[-1]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(list(UNITS)),
    input_size=st.integers(1, 200),
    parameters=st.integers(1, 2_000_000),
    layers=st.integers(1, 4),
    bias=st.booleans(),
)
def test_the_solved_size_is_the_nearest(name, input_size, parameters, layers, bias):
    """Guards against off-by-one sizes and forgotten layers or biases: budgets would differ."""

    def distance(hidden):
        return abs(count(name, input_size, hidden, layers, bias) - parameters)

    assume(count(name, input_size, 1, layers, bias) <= 2 * parameters)
    hidden = hidden_size_for(name, input_size, parameters, layers=layers, bias=bias)
    assert hidden >= 1
    assert distance(hidden) <= distance(hidden + 1)
    if hidden > 1:
        assert distance(hidden) < distance(hidden - 1)


def test_too_small_a_budget_is_refused():
    """Guards against returning one hidden unit for a budget that it exceeds many times."""
    least = count("lstm", 88, 1)
    for parameters in (-5, 0, (least - 1) // 2):
        with pytest.raises(UsageError, match=f"lstm.* {least}"):
            hidden_size_for("lstm", 88, parameters)
    assert hidden_size_for("lstm", 88, (least + 1) // 2) == 1


def test_a_unit_of_a_file_is_made_as_the_command_line_makes_it(tmp_path, monkeypatch):
    """Guards against a path taken for a name, and a unit that is not called as its file is."""
    monkeypatch.chdir(tmp_path)
    Path("my.unit").write_text("h = phi(W x + Um h')")
    for path in ("my.unit", Path("my.unit"), tmp_path / "my.unit"):
        stack = make(path, 3, 4, layers=2)
        assert {unit.spec for unit in stack.units()} == {unit_spec(path)}
        assert unit_spec(path).name == "my"
        assert hidden_size_for(path, 3, 28) == 4
    with pytest.raises(SeqmodelError, match=r"^there is no file mi\.unit; did you mean my\.unit"):
        make("mi.unit", 3, 4)
    missing = re.escape("gone/my.unit; units listed by `seqmodel units` have no suffix")
    with pytest.raises(SeqmodelError, match=f"^there is no file {missing}$"):
        make(Path("gone/my.unit"), 3, 4)
    with pytest.raises(UsageError, match=r"package\.module:Class; did you mean lstm\?$"):
        make("lsmt", 3, 4)


TEXT = """\
z = s(Wz x + Uz h' + bz)
n = phi(Wn x + Un h' + bn)
h = (1 - z) (.) h' + z (.) n
unit: mine
"""
Z, N, H, NAME = TEXT.splitlines()
SAME = (
    f"# of the\nz = σ(Wz x+Uz h'+bz)  # gate\n{N}\n{H}\n{NAME}",  # noqa: RUF001
    f"{Z}\nbz starts at 1\n{N}\n{H}\nunit: other",
)
SWAPPED, LONGER = "h = z (.) h' + (1 - z) (.) n", "q = 1 - z"
OTHERS = [
    (TEXT, f"{N}\n{Z}\n{H}", {}, "has the gates z n where this one has the gates n z"),
    (TEXT, f"{Z}\n{N}\n{SWAPPED}", {}, f"has {H} where this one has {SWAPPED}"),
    (f"{Z}\n{LONGER}\n{N}\nh = q (.) h' + z (.) n\n{NAME}", TEXT, {},
     f"has {LONGER} where this one has no q"),
    (f"{TEXT}Uz has 2 heads", f"{TEXT}Uz has rank 1", {},
     "has a Uz of 2 heads where this one has a Uz of rank 1"),
    (TEXT, TEXT, {"activation": "relu"}, "has phi = tanh where this one has phi = relu"),
]  # fmt: skip


def of(text, **options):
    return make(text, 3, 4, layers=2, **options)


def test_the_same_equations_take_the_weights():
    """Guards against comparing comments, spaces, names and starts instead of what is computed."""
    unit, x = of(TEXT), random_tensor(5, 2, 3).float()
    for other in map(of, SAME):
        other.load_state_dict(unit.state_dict())
        assert torch.equal(other(x)[0], unit(x)[0])


def saved(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS = dict, saved, lambda weights: {name: weight.half() for name, weight in weights.items()}


@pytest.mark.parametrize(
    ("theirs", "ours", "options", "differs", "way"),
    [(*other, way) for other, way in zip(OTHERS, cycle(WAYS), strict=False)],
)
def test_another_unit_refuses_the_weights(theirs, ours, options, differs, way):
    """Guards against 'All keys matched' and something else computed."""
    unit, other = of(theirs), of(ours, **options)
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    weights = way(unit.state_dict())
    for strict in (True, False):
        with pytest.raises(RuntimeError) as caught:
            other.load_state_dict(weights, strict=strict)
        _, line, second = str(caught.value).split("\n\t")
        assert f"weights of another unit: mine {differs}; make it so, or delete" in line
        assert ["layers.0" in line, "layers.1" in second] == [True, True]
    assert all(torch.equal(before[name], now) for name, now in other.state_dict().items())
    unit.load_state_dict(weights)
    taken = {name: weight for name, weight in weights.items() if "extra" not in name}
    other.load_state_dict(taken)  # as of a version that said nothing
    assert torch.equal(other.units()[1].U, unit.units()[1].U)


def test_torchs_tools_carry_it(tmp_path):
    """Guards against a key that other ways to handle weights stumble over."""
    unit, x = of(TEXT), random_tensor(5, 2, 3).float()
    safetensors.torch.save_model(unit, str(tmp_path / "m.safetensors"))
    assert safetensors.torch.load_model(of(SAME[1]), tmp_path / "m.safetensors") == (set(), [])
    with pytest.raises(RuntimeError, match="weights of another unit"):
        safetensors.torch.load_model(of(OTHERS[0][1]), tmp_path / "m.safetensors")
    h = func.functional_call(unit, unit.state_dict(), (x,))[0]
    torch.testing.assert_close(h, unit(x)[0])
    parallel = nn.DataParallel(of(TEXT))
    parallel.load_state_dict(nn.DataParallel(unit).state_dict())
    torch.testing.assert_close(parallel(x)[0], h)
    with pytest.raises(RuntimeError, match="another unit: what they say of it cannot be read"):
        unit.load_state_dict(unit.state_dict() | {"layers.0._extra_state": torch.zeros(9)})


@pytest.mark.parametrize("kind", ["LayerNormLSTM", "Attention"])
def test_each_row_is_the_modules_own(kind):
    """Guards the order of states, and rows of others; `test_sequences` has gradients, too."""
    unit, x = make(f"own_modules:{kind}", 3, 4), torch.randn(5, 2, 3)
    state = unit.zero_state(2)
    state = type(state)(*map(torch.randn_like, state))
    h, after = unit(x, state, [5, 2])
    for row, length in enumerate((5, 2)):
        own = slice(row, row + 1)
        given = tuple(part[own] for part in state)
        right, end = unit.module(x[:length, own], given if len(given) > 1 else given[0])
        found = h[:length, own], *(part[own] for part in after)
        torch.testing.assert_close(found, (right, *(end if len(given) > 1 else (end,))))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LooksAhead", "depends on later frames"),
        ("MixesRows", "depends on other rows"),
        ("Forgets", "depends on where a sequence is cut"),
        ("Grows", "changes its shape"),
        ("Halves", "changes its dtype"),
        ("NotFinite", "not finite"),
        ("LooksFarAhead", "depends on later frames"),
        ("Random", "the same input gives another h"),
        ("Float32", "zero_state must be in the weights' dtype"),
        ("InADict", "a state is a tensor or a tuple of them, not a dict"),
        ("Narrow", "h must be (T, B, H)"),
        ("NoState", "zero_state"),
        ("Raises", "RuntimeError: mat1 and mat2 do not fit (own_modules.py, line "),
        ("MisspellsALayer", "no attribute 'lineal' (own_modules.py, line "),
        ("TakesMore", "'heads'; own_modules.py must have __init__(self, input_size, hidden_size)"),
        ("OnlyH", "own_modules.py must have forward(self, x, state)"),
        ("not_a_class", "no class not_a_class"),
        ("Missing", "no class Missing"),
    ],
)
def test_what_would_go_wrong_is_said_in_one_line(name, words):
    with pytest.raises(UsageError) as caught:
        check_module(f"own_modules:{name}", 3, 4)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits_at_once:Unit", "SystemExit: 3"),
        ("exits_at_once.py:Unit", r"write exits_at_once:Unit, without \.py"),
        ("no_such_module_here:Unit", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_exits_is_named_as_one_or_is_not_there(name, words, tmp_path, monkeypatch):
    """Guards against a command that ends without a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exits_at_once.py").write_text("raise SystemExit(3)")
    with pytest.raises(UsageError, match=words):
        make(name, 3, 4)


def test_a_file_in_the_working_directory_is_found_but_shadows_nothing(tmp_path, monkeypatch):
    """`json.py` beside the user's unit must not take the place of the library's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("raise RuntimeError\n")
    text = Path(own_modules.__file__).read_text()
    (tmp_path / "mine_alone.py").write_text("import colorsys\n" + text)
    before = list(sys.path)
    unit = make("mine_alone:Attention", 3, 4)
    assert unit.hidden_size == 4
    assert sys.path == before


def test_an_installed_package_names_its_units(tmp_path, monkeypatch):
    """By an entry point, as `pip install` leaves it in a folder NAME.dist-info."""
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "[seqmodel.units]\nnormal = own_modules:LayerNormLSTM\ngru = own_modules:Attention\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(make("normal", 3, 4).module).__name__ == "LayerNormLSTM"
    assert make("gru", 3, 4).spec.name == "gru"  # no package takes the place of a built-in unit
    with pytest.raises(UsageError, match="there is no unit 'abnormal'"):
        make("abnormal", 3, 4)


def test_an_error_while_sampling_is_told(make_config, dataset):
    """Compiled code calls the module, and cannot raise what it raises."""
    config = make_config(unit="own_modules:Attention")
    sampler = Sampler(build_model(with_sizes(config, dataset.frame), dataset.frame))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "forward", own_modules.Raises.forward)
        with pytest.raises(UsageError, match="RuntimeError: mat1 and mat2 do not fit"):
            list(sampler.piece(4, seed=1))


def test_training_reaches_all_of_a_module(make_config, dataset):
    """Guards against weight noise that spares modules, and a first state that never learns."""
    config = make_config(unit="own_modules:Attention", weight_noise=0.1)
    state = TrainingState(with_sizes(config, dataset.frame), dataset["train"], torch.device("cpu"))
    unit = state.model.unit.module
    before = {name: weight.detach().clone() for name, weight in unit.named_parameters()}
    with weight_noise(state.model, 0.1):
        noisy = {n for n, weight in unit.named_parameters() if not torch.equal(weight, before[n])}
    assert noisy == {"read.weight", "start"}
    assert all(torch.equal(weight, before[name]) for name, weight in unit.named_parameters())
    window_gradient(state, load(dataset["train"], np.arange(2), window=5), 1)
    assert all(weight.grad.any() for weight in unit.parameters())
