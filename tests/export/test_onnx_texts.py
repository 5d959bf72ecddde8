"""Texts of the language of kernels as nodes: the same in onnxruntime as run by Python."""

import numpy as np
import onnxruntime
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import helper
from texts import SIZE, programs, text_of

from seqmodel.export.onnx.graph import DOUBLE, INT64, IR_VERSION, OPSET, Graph
from seqmodel.export.onnx.texts import Array, Number, View, add_text
from seqmodel.kernels.code.language import clear, independent, unrolled


def run_as_graph(text, k, x, *constants, instead=None):
    """What a text returns, and its arrays after."""
    g = Graph()
    kinds = {"k": INT64, "x": DOUBLE}
    arrays = {
        name: Array(g, g.input(name, [1, SIZE], kind), [SIZE], kind) for name, kind in kinds.items()
    }
    views = map(View, arrays.values())
    result = add_text(g, text, *views, *constants, instead=instead)
    for name, array in arrays.items():
        g.output(f"new.{name}", array.all(), 1, SIZE, kind=kinds[name])
    if isinstance(result, Number):
        g.output("result", result.symbol, 1, 1, kind=result.kind)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(g.to_proto("text"), opset_imports=[opset], ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    k, x, *more = session.run(None, {"k": k[np.newaxis], "x": x[np.newaxis]})
    return (more[0].item() if more else result), k[0], x[0]


def check(text, seed=0):
    """Python and onnxruntime find the same in random arrays."""
    random = np.random.default_rng(seed)
    k, x = random.integers(-50, 50, SIZE), random.normal(size=SIZE)
    result, new_k, new_x = run_as_graph(text, k, x, SIZE)
    with np.errstate(all="ignore"):
        expected = text(k, x, SIZE)
    if not np.isfinite(x).all():  # min and max of nan differ
        return
    assert result == expected
    np.testing.assert_array_equal(new_k, k)
    np.testing.assert_allclose(new_x, x, rtol=1e-9, atol=1e-12)


# Without shrinking: each try makes a session.
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(source=programs(bits=False), seed=st.integers(0, 99))
def test_random_programs_give_the_same_by_python_and_as_nodes(source, seed, tmp_path_factory):
    """Guards operators, branches and loops."""
    check(text_of(source, tmp_path_factory.mktemp("text")), seed)


def bump(x, n):
    x[n] += 1.0
    return x[n]


def before(x, n):
    return x[max(n - 1, 0)]


def scaled_sum(x, n):
    total = 0.0
    for m in range(SIZE):
        total += x[m] * n
    return total


def add_one(x, y):
    for n in range(SIZE - 1):
        x[n] = y[n] + 1.0


def calls(k, x, count):
    """In loops: with loops, with side effects, reading what is written."""
    for n in range(count):
        k[n] = int(scaled_sum(x, n) * 100)
    for n in range(count):
        s = bump(x, 0)
        k[n] += int(s * 10)
    for n in range(count):
        x[n] = before(x, n) * 0.5 + n
    return 0


def aliases(k, x, count):
    """Arrays under two names, and from a step's place on."""
    add_one(x[1:], x)
    y = x[1:]
    for n in range(3):
        y[n] = 1.0
        x[n + 3] = 2.0 + n
    for n in range(3):
        own = x[n:]
        own[n] = 5.0 + n
    s = 0.0
    for n in range(3):
        rest = x[n:]
        s += rest[1]
    k[0] = int(rest[0] * 100 + s)
    return 0


def totals(k, x, count):
    """That are assigned otherwise too."""
    s = 0.0
    for n in range(count):
        s = x[n]
        s += x[n] * 2.0
    for n in range(count):
        s += x[n]
        s = max(s, x[n] * 2.0)
    for _ in range(count):
        s += 0.5
    x[0] = s
    above = 0
    for n in range(count):
        above += x[n] > 0.5
    return above


def conditions(k, x, count):
    """Under which alone there are effects, places and divisors."""
    never = k[0] * 0 > 1
    far = 99 if k[0] > -99 else 0
    x[1] = bump(x, 0) if never else 2.0
    x[2] = 3.0 if never and bump(x, far) > 0.0 else x[2]
    x[3] = 4.0 if never or count > 0 else 5.0
    x[4] = 1.0 if never else x[far - 98]
    k[1] = 1 // (far - 99) + 1 % (far - 99) if never else 7
    if never:
        x[5] = TABLE[far] + x[far]
    if 0 < count < int(2.5):
        x[6] = 1.0
    return 0


def fills(k, x, count):
    """With as many numbers as a loop or a call has steps, or none."""
    last = k[count - 1] % 3
    for n in range(count):
        k[n] = last
    clear(x[last:], 3)
    clear(x[last:], count - SIZE)
    for n in range(count - SIZE):
        x[n] = 5.0
    return 0


TABLE = np.array([1.0, 2.0])


@pytest.mark.parametrize("text", [calls, aliases, totals, conditions, fills])
def test_they_give_the_same_where_steps_depend_on_each_other(text):
    check(text)


def side_by_side(k, x, count):
    """Steps with names, stores, branches and calls of their own, and what is reduced over them."""
    most = x[0]
    above = 0
    half = 2.0
    for n in independent(count):
        half = x[n] * 0.5
        most = max(most, half)
        if x[n] > 0.0:
            above += 1
            x[n] = half
        elif k[n] > 0:
            k[n] = k[n] * 2
        for m in unrolled(2):
            k[n] += m + n
    least = 9.0
    for n in independent(1, count, 2):
        own = x[n:]
        least = min(least, own[0] + k[n - 1])
    for n in independent(count - 1, count):
        x[n] = 1.0
    x[0] = most + least
    return 0


def test_independent_steps_give_the_same():
    check(side_by_side)


def test_independent_steps_are_one_value_however_many():
    """Unrolled, the graph of a mark would have thousands of nodes for each note."""
    sizes = list[int]()
    for count in (2, SIZE):
        g = Graph()
        x = Array(g, g.input("x", [1, SIZE], DOUBLE), [SIZE])
        k = Array(g, g.input("k", [1, SIZE], INT64), [SIZE], INT64)
        add_text(g, side_by_side, View(k), View(x), count)
        g.output("new", x.all(), 1, SIZE, kind=DOUBLE)
        sizes.append(len(g.to_proto("text").node))
    assert sizes[1] <= sizes[0]


def array_twice(k, x, count):
    y = x
    if k[0] > 0:
        y = x[1:]
    y[0] = 1.0
    return 0


def out_of_range(k, x, count):
    for n in range(count):
        k[n] = int(x[n + 1])
    return 0


def bits(k, x, count):
    return k[0] & 1


def real_remainder(k, x, count):
    return x[0] % 2


def replaced(k, x, count):
    return add_one(x, x) if k[0] > 0 else 0


def unknown_bound(k, x, count):
    for n in range(k[0]):
        x[n] = 0.0
    return 0


def loop_within_steps(k, x, count):
    for n in independent(count):
        for m in range(count):
            x[n] += x[m]
    return 0


def sum_in_a_branch(k, x, count):
    above = 0
    for n in independent(count):
        if x[n] > 0.0:
            above += 1
    return above


ERRORS = {
    array_twice: "y is an array and is assigned twice",
    out_of_range: "the index is out of range",
    bits: "BitAnd has no node",
    real_remainder: "a real stands where an integer is needed",
    replaced: "add_one cannot depend on a condition",
    unknown_bound: "a loop in a graph has constant bounds",
    loop_within_steps: "a loop is within independent steps",
    sum_in_a_branch: "above has no value here",
}


@pytest.mark.parametrize("text", ERRORS, ids=lambda text: text.__name__)
def test_what_cannot_be_nodes_is_an_error_at_its_line(text):
    with pytest.raises(SyntaxError, match=ERRORS[text]) as raised:
        run_as_graph(text, np.arange(SIZE), np.ones(SIZE), SIZE, instead={add_one: None})
    assert raised.value.filename == __file__
