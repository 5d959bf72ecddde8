"""Compiled scores are the plain ones for every output: in values and every gradient."""

import math

import made
import pytest
import torch
from scores import assert_compiled_is_plain, both

STRUCK, END = {"onsets": True}, {"end": True}
# For each output how near float32 comes, and sizes, of which the first is for a nan.
CASES = {
    made.case_of_bernoulli: (2e-6, [
        ((2, 2, 5, 6), {}), ((1, 1, 1, 1), STRUCK | END), ((7, 5, 33, 88), STRUCK),
        ((200, 1, 195, 17), END), ((33, 4, 3, 31), {}),
    ]),
    made.case_of_nade: (5e-6, [
        ((2, 2, 7, 5), {}), ((0, 2, 7, 5), {}), ((1, 1, 1, 1), {}), ((11, 3, 88, 1), {}),
        ((11, 3, 89, 5), END), ((1, 1, 1, 1), STRUCK), ((11, 3, 88, 64), STRUCK),
        ((40, 2, 89, 5), STRUCK | END), ((37, 5, 19, 21), {}),
    ]),
    made.case_of_gaussian: (1e-4, [
        ((2, 2, 7, 4, 5), {}),
        ((0, 2, 7, 3, 4), {}),  # a sum over no rows would leave memory uninitialised
        ((1, 2, 1, 1, 1), {}), ((64, 2, 195, 10, 20), {}), ((131, 2, 3, 3, 33), {}),
        ((17, 2, 16, 2, 16), {}), ((2500, 2, 2, 2, 7), {}),  # several threads at once
    ]),
    made.case_of_sample_logistic: (2e-4, [
        ((2, 2, 9, 3, 4), {}), ((0, 2, 9, 3, 4), {}), ((1, 1, 4, 1, 1), {}),
        ((35, 2, 33, 4, 5), {}), ((7, 2, 195, 10, 10), {}), ((13, 1, 5, 1, 33), {}),
    ]),
}  # fmt: skip
EACH = [(make, bound, *of) for make, (bound, sizes) in CASES.items() for of in sizes]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("make", "bound", "sizes", "options"), EACH)
def test_scores_and_gradients(make, bound, sizes, options, dtype):
    torch.set_num_threads(1 + sum(sizes) % 3)
    torch.manual_seed(0)
    output, h, frames, past = make(*sizes, **options)
    past = None if past is None else past.to(dtype)
    bound = 1e-11 if dtype == torch.float64 else bound
    given = output.to(dtype), h.to(dtype), frames.to(dtype), past
    assert_compiled_is_plain(*given, bound=bound)


@both
@pytest.mark.parametrize("make", CASES)
def test_nan_is_not_hidden(score, make):
    """A diverged model must not be scored as a sound one, nor the pieces beside it as diverged.

    Nor without an axis of pieces, where a frame has one row.
    """
    sizes, _ = CASES[make][1][0]
    output, h, frames, past = make(*sizes)
    h[0, 0, 0] = math.nan
    assert score(output, h, frames, past).isnan().tolist() == [[True, False], [False, False]]
    if len(h) == len(frames):
        assert score(output, h[:, 0], frames[:, 0], past).isnan().tolist() == [True, False]
