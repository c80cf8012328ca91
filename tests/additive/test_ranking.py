"""Bit orders of all trees at once, against those of one tree."""

import numpy as np
import pytest

from tolerances import GRADIENT, VALUE
from triegp.additive.ranking import chain_rule, rank_bits
from triegp.tree import BitOrder

SIZES = [[1], [5, 5, 5], [4, 1, 7]]


def draw(sizes):
    rng = np.random.default_rng(len(sizes))
    return tuple(rng.normal(0.0, 2.0, q) for q in sizes), rng.normal(0.0, 1.0, len(sizes)), rng


def order_alone(phi, log_scale):
    pairs = zip(phi, np.exp(log_scale), strict=True)
    return [BitOrder.from_phi(part, scale=float(scale)) for part, scale in pairs]


@pytest.mark.parametrize("sizes", SIZES)
def test_each_tree_has_its_order(sizes):
    phi, log_scale, _ = draw(sizes)
    found, alone = rank_bits(phi, log_scale), order_alone(phi, log_scale)
    assert list(found.split()) == alone
    assert found.nugget == pytest.approx(sum(order.nugget_variance for order in alone))
    for bits, order in zip(found.key_bits(), alone, strict=True):
        np.testing.assert_array_equal(bits, order.key_bits)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_chain_rule_is_that_of_each_tree(sizes):
    phi, log_scale, rng = draw(sizes)
    found, by_noise = rank_bits(phi, log_scale), 0.3
    by_depth = rng.normal(size=sum(sizes))
    parts = np.split(by_depth.copy(), found.first[1:-1])
    by_phi, by_scale = chain_rule(found, by_depth, by_noise)
    for t, order in enumerate(order_alone(phi, log_scale)):
        by_level = np.append(-parts[t][1:].sum(), parts[t][1:])
        np.testing.assert_allclose(by_phi[t], order.phi_gradient(by_level, by_noise), **GRADIENT)
        expected = order.log_scale_gradient(by_level, by_noise)
        np.testing.assert_allclose(by_scale[t], expected, **VALUE)


def test_a_range_of_phi_that_overflows_has_no_variance_at_its_end():
    levels = rank_bits([np.array([-1e308, 1e308, 0.0])], np.zeros(1)).levels
    np.testing.assert_array_equal(levels, [1.0, 0.0, 0.0])
