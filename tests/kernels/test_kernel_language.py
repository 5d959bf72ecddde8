"""The language of kernels: a text gives the same run by Python and compiled, or a clear error."""

from math import exp, log

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from texts import SIZE, compiled, programs, text_of

from seqmodel.kernels.code.language import copy, side_by_side, unrolled
from seqmodel.kernels.run.signature import NEW, Array, Signature
from seqmodel.kernels.run.threads import compile_text, parallel_for

WIDTHS = (2, 5)


# Without shrinking: each try compiles a program.
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(source=programs(bits=True), seed=st.integers(0, 99))
def test_random_programs_give_the_same_run_by_python_and_compiled(source, seed, tmp_path_factory):
    """Guards every operator, rounding of // and %, conversions, and what a branch leaves behind."""
    text, random = text_of(source, tmp_path_factory.mktemp("text")), np.random.default_rng(seed)
    k, x = random.integers(-50, 50, SIZE), random.normal(size=SIZE)
    ours, theirs = {"k": k, "x": x, "count": SIZE}, {"k": k.copy(), "x": x.copy(), "count": SIZE}
    with np.errstate(all="ignore"):
        expected = text(**theirs)
    assert compiled(text, ours)(**ours) == expected
    np.testing.assert_array_equal(ours["k"], theirs["k"])
    np.testing.assert_array_equal(ours["x"], theirs["x"])


def halved(values, n, count):
    return values[n] // 2 if n < count else -1


def calling(x, k, count, doubled):
    """Constants decide when compiled, and calls take arrays from an index on."""
    total = 0
    for j in unrolled(len(WIDTHS)):
        total += WIDTHS[j]
    if doubled:
        copy(x, x[2:], 2)
    for n in range(count + 3):
        total += halved(k[1:], n, count)  # what is beyond `count` must not be read
    return total


@pytest.mark.parametrize("doubled", [False, True])
def test_calls_constants_and_conditions(doubled):
    given = {"x": np.arange(4.0), "k": np.array([9, -3, 7, 1]), "count": 3}
    run = compiled(calling, given, doubled=doubled)
    assert run(**given) == 7 + (-2 + 3 + 0) - 3
    assert given["x"].tolist() == ([0, 1, 0, 1] if doubled else [0, 1, 2, 3])


def in_lanes(x, table, y, work, first, last, B, lane, lanes):
    """Of each piece, side by side: sums, a branch, an element of its own, functions, rounding."""
    for group in range(first, last):
        own = side_by_side(work)
        piece = min(group * lanes + lane, B - 1)
        total = 0.0
        for n in range(3):
            total += x[piece * 3 + n]
            own[n] = total
        row = y[piece * 3 :]
        row[0] = exp(total) if total < 0.5 and total > -0.5 else log(total * total)
        row[1] = table[int(max(total, 0.0))] + own[int(max(-total, 0.0)) // 2 % 3]
        row[2] = 2 if not total > 0.0 else round(3 * total)


@pytest.mark.parametrize("lanes", [2, 4])
def test_a_text_about_one_piece_is_compiled_for_several(lanes):
    """Guards numbers, conditions and places that differ between lanes, and unused lanes."""
    arrays = (Array("x", ("B", "3"), torch.float32), Array("table", ("9",)))
    arrays += (Array("y", ("B", "3")), Array("work", ("3", f"{lanes}")))
    kernel = compile_text(
        Signature("lanes", ("B", "G"), arrays), 8, in_lanes, over="G", lanes=lanes
    )
    x = torch.from_numpy(np.random.default_rng(1).normal(0, 1, (5, 3))).float()
    table = torch.arange(9.0, dtype=torch.float64)
    fields = {"B": 5, "G": -(-5 // lanes), "x": x, "table": table, "y": NEW, "work": NEW}
    job = kernel.job(fields)
    parallel_for([job], 1)
    for piece in range(5):
        expected, given = np.zeros(3), x[piece].double().numpy()
        in_lanes(given, table.numpy(), expected, np.zeros(3), 0, 1, 1, 0, 1)
        np.testing.assert_allclose(job.created["y"][piece], expected, rtol=1e-14)


def test_no_statement_depends_on_a_condition_that_differs_between_lanes():
    def text(x, lane):
        if x[lane] > 0.0:
            x[lane] = 1.0

    signature = Signature("lanes", ("B",), (Array("x", ("B",)),))
    with pytest.raises(SyntaxError, match="the condition differs between lanes"):
        compile_text(signature, 8, text, over="B", lanes=2)


def test_nan_differs_from_everything():
    def text(x):
        return 4 * (x[0] != x[0]) + 2 * (x[0] == x[0]) + (x[0] < 1.0)

    given = {"x": np.array([np.nan])}
    assert compiled(text, given)(**given) == text(**given) == 4


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("    while count:\n        count -= 1", 3, "while is not in the language"),
        ("    a = 1\n    a = 0.5", 4, "a is an integer in one place and a real in another"),
        ("    k[0] = x[0]", 3, "a real stands where an integer is needed"),
        ("    x[0] = k", 3, "an array is not a number"),
        ("    a = x\n    if count:\n        a = x[1:]", 3, "a is an array and is assigned twice"),
        ("    x = 1", 2, "x is an array and is assigned twice"),
        ("    a = 1.0\n    a = 2.0\n    for a in range(2):\n        k[a] = 0", 5, "a is assigned"),
        ("    for n in range(2):\n        k[n] = 0\n    k[n] = 1", 5, "n has no value here"),
        ("    count += q", 3, "q has no value here"),
        ("    count += sum(k)", 3, "sum is not a text"),
        ("    a = [1]", 3, "[1] is not in the language"),
        ("    if count:\n        return 1\n    return 2", 4, "return must be the text's last"),
        ("    for n in unrolled(count):\n        k[n] = 0", 3, "over unrolled"),
        ("    for n in k:\n        k[n] = 0", 3, "for is not in the language"),
        ("    a = x[1] % 2", 3, "a real stands where an integer is needed"),
        ("    k[0] = count ** 2", 3, "Pow is not in the language"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_its_line(body, line, message, tmp_path):
    text = text_of(f"def text(k, x, count):\n{body}\n", tmp_path)
    given = {"k": np.zeros(2, np.int64), "x": np.zeros(2), "count": 1}
    with pytest.raises(SyntaxError, match=message.replace("[", r"\[")) as error:
        compiled(text, given)
    assert (error.value.filename, error.value.lineno) == (text.__code__.co_filename, line)
