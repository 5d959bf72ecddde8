"""Units that are modules of the user's: what they are given, and what is refused."""

import sys
from pathlib import Path

import numpy as np
import own_modules
import pytest
import torch
from own_modules import Attention

from seqmodel.data.batches import load
from seqmodel.errors import UsageError
from seqmodel.model.build import build_model, with_sizes
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.state import TrainingState
from seqmodel.training.update import weight_noise, window_gradient
from seqmodel.units import make
from seqmodel.units.own_module import check_module


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
