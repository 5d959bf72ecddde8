"""Whether what is drawn is as frequent as it is likely, by chi squared."""

import numpy as np
from scipy import stats


def assert_frequent(seen, expected, draws, *, least):
    """Outcomes `seen` as often as `expected`; rare ones, and those not listed, count as one.

    At least so many must not be rare.
    """
    likely = np.array(expected) > 3
    assert likely.sum() >= least
    both = (np.array(counts, float)[likely] for counts in (seen, expected))
    seen, expected = (np.append(counts, draws - counts.sum()) for counts in both)
    assert expected[-1] > -1e-6
    some = expected > 1e-3
    assert (seen[~some] == 0).all()
    statistic = ((seen - expected)[some] ** 2 / expected[some]).sum()
    assert stats.chi2.sf(statistic, some.sum() - 1) > 1e-3
