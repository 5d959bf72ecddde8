"""How far apart two distributions are."""

from collections import Counter

import pytest

from seqmodel.media.samples import total_variation


def test_total_variation_by_hand():
    """Half of the mass moves from 1 to 2 and 3; disjoint distributions are 1 apart."""
    one, other = Counter({1: 6, 2: 2}), Counter({1: 1, 2: 2, 3: 1})
    assert total_variation(one, other) == pytest.approx((0.5 + 0.25 + 0.25) / 2)
    assert total_variation(other, one) == total_variation(one, other)
    assert total_variation(one, one) == 0
    assert total_variation(Counter({1: 3}), Counter({2: 5})) == 1
    assert total_variation(one, Counter()) == total_variation(Counter(), one) == 1
    assert total_variation(Counter(), Counter()) == 0


def test_the_order_of_values_does_not_matter():
    """Names are in another order with each hash seed: the last bit must not differ with it."""
    counts = [(7 * k % 11, 5 * k % 13) for k in range(1, 10)]
    found = set()
    for step in range(1, 10):  # 1 to 9 times step modulo 11 are other places in a set
        one, other = Counter(), Counter()
        for k, (a, b) in enumerate(counts, 1):
            one[k * step % 11], other[k * step % 11] = a, b
        found.add(total_variation(one, other))
    assert len(found) == 1
