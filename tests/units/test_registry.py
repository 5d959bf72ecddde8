"""Parameter counts, and the hidden size for a parameter budget."""

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.units import UNITS, hidden_size_for, make, unit_spec

SOME = settings(max_examples=60, deadline=None, derandomize=True)


def count(name, input_size, hidden_size, layers=1, bias=True):
    """The parameters of the module itself, counted one by one."""
    unit = make(name, input_size, hidden_size, layers=layers, bias=bias)
    return sum(weight.numel() for weight in unit.parameters())


def solved_count(name, input_size, hidden_size, layers, bias):
    """Like `count`, but without building the module; the tests below check that they agree."""
    sizes = [input_size] + [hidden_size] * (layers - 1)
    spec = unit_spec(name)
    return sum(spec.parameter_count(size, hidden_size, bias=bias) for size in sizes)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_counts_are_those_of_the_module(name, layers, bias):
    """Guards against counts that drift from the weights that are trained."""
    for input_size, hidden in ((1, 1), (7, 5)):
        unit = make(name, input_size, hidden, layers=layers, bias=bias)
        gates = unit.gates().values()
        views = sum(t.numel() for terms in gates for t in terms.values() if t is not None)
        total = count(name, input_size, hidden, layers, bias)
        assert unit.parameter_count() == views == total
        assert solved_count(name, input_size, hidden, layers, bias) == total


@SOME
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
        return abs(solved_count(name, input_size, hidden, layers, bias) - parameters)

    assume(solved_count(name, input_size, 1, layers, bias) <= 2 * parameters)
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
