"""The sparse factorisation against dense algebra, and its order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tolerances
from triegp.smooth import factor as factors


def make_factor(n=50, m_v=4):
    """A factorisation given by rows in a random order; B and D as dense matrices, by row."""
    rng = np.random.default_rng(0)
    order = rng.permutation(n)
    neighbours, weights = np.full((n, m_v), -1, np.int32), np.zeros((n, m_v))
    B, variances = np.eye(n), rng.uniform(0.5, 2.0, n)
    for place, row in enumerate(order):
        near = rng.permutation(order[:place])[:m_v]
        neighbours[row, : near.size] = near
        weights[row, : near.size] = rng.uniform(-0.5, 0.5, near.size)
        B[row, near] = -weights[row, : near.size]
    return factors.in_order(order, neighbours, weights, variances), neighbours, B, variances


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_products_are_the_dense_ones(shape):
    factor, _, B, d = make_factor()
    x = np.random.default_rng(1).normal(size=shape)
    R = np.linalg.inv(B) @ np.diag(d) @ np.linalg.inv(B).T
    root = np.diag(np.sqrt(d))
    expected = {
        factors.multiply: R @ x,
        factors.colour: np.linalg.solve(B, root @ x),
        factors.halve: root @ np.linalg.solve(B.T, x),
        factors.whiten: np.linalg.solve(root, B @ x),
        factors.unwhiten: B.T @ np.linalg.solve(root, x),
    }
    kept = x.copy()
    for product, dense in expected.items():
        assert_allclose(product(factor, x), dense, **tolerances.VALUE)
    assert_array_equal(x, kept)


def test_neighbours_come_back_as_rows():
    factor, neighbours, _, _ = make_factor()
    assert_array_equal(factors.neighbour_rows(factor, 4), neighbours)
    assert_array_equal(factors.neighbour_rows(factor, 2), neighbours[:, :2])
    assert_array_equal(factor.order[factor.place], np.arange(50))
    assert (factor.neighbours < np.arange(50)[:, None]).all()


def test_an_order_is_spread_within_its_halves():
    rng = np.random.default_rng(2)
    drawn, scaled = rng.permutation(5_000), rng.random((5_000, 2))
    order = factors.spread_order(drawn, scaled, 0, 1)
    for first, last in ((2_500, 5_000), (1_250, 2_500), (0, 625)):
        assert_array_equal(np.sort(order[first:last]), np.sort(drawn[first:last]))
    assert_array_equal(order[:625], drawn[:625])

    def step(rows):
        return np.linalg.norm(np.diff(scaled[rows], axis=0), axis=1).mean()

    assert step(order[2_500:]) < 0.2 * step(drawn[2_500:])
    assert_array_equal(factors.spread_order(drawn[:900], scaled, 0, 1), drawn[:900])
