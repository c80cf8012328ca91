"""The block factorisation against dense algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tolerances
from triegp.smooth import factor as factors

SIZES = (1, 4, 7, 2, 8, 3)


def random_covariance(n):
    root = np.random.default_rng(3).normal(size=(n, n + 5))
    return root @ root.T / n + 0.5 * np.eye(n)


def make_factor(m_v, sizes=SIZES, first=0, n_threads=1):
    """A factorisation of a random covariance, with random neighbours; and the covariance."""
    rng, starts = np.random.default_rng(0), np.append(0, np.cumsum(sizes))
    n = int(starts[-1])
    order, R = rng.permutation(n), random_covariance(n)
    neighbours = np.full((len(sizes), m_v), -1, np.int32)
    for b, start in enumerate(starts[:-1]):
        near = rng.permutation(start)[:m_v]
        neighbours[b, : near.size] = near

    def covariance(places):
        return np.tril(R[np.ix_(order[places], order[places])])

    made = factors.regress_blocks(starts, neighbours, covariance, 0.0, first, n_threads)
    return factors.Factor(order, starts, neighbours, *made), R


def dense(factor):
    """B and the block diagonal L_D from the stored numbers, by row."""
    n = factor.order.size
    B, roots = np.eye(n), np.zeros((n, n))
    for b, near in enumerate(factor.neighbours):
        places = np.arange(factor.starts[b], factor.starts[b + 1])
        near = near[near >= 0]
        rows = factor.order[places]
        B[np.ix_(rows, factor.order[near])] = -factor.weights[places, : near.size]
        roots[np.ix_(rows, rows)] = factor.roots[places, : places.size]
    return B, roots


@pytest.mark.parametrize("m_v", [0, 4, 11])
@pytest.mark.parametrize("shape", [(25,), (25, 1), (25, 3)])
def test_sweeps_are_those_of_the_stored_numbers(m_v, shape):
    factor, _ = make_factor(m_v)
    B, roots = dense(factor)
    S, x = np.linalg.solve(B, roots), np.random.default_rng(1).normal(size=shape)
    products = {
        factors.multiply: S @ S.T,
        factors.colour: S,
        factors.halve: S.T,
        factors.whiten: np.linalg.inv(S),
        factors.unwhiten: np.linalg.inv(S).T,
    }
    before = x.copy()
    for product, matrix in products.items():
        assert_allclose(product(factor, x), matrix @ x, **tolerances.VALUE)
    assert_array_equal(x, before)
    _, log_det = np.linalg.slogdet(S @ S.T)
    assert_allclose(factor.log_det, log_det, **tolerances.VALUE)


def test_all_earlier_rows_as_neighbours_are_exact():
    factor, R = make_factor(25)
    product = factors.multiply(factor, np.eye(25))
    assert_allclose(product, R, **tolerances.ROUNDED_WEIGHTS)
    assert_allclose(factor.log_det, np.linalg.slogdet(R)[1], **tolerances.ROUNDED_WEIGHTS)


def test_a_block_has_the_covariance_that_neighbours_leave():
    factor, R = make_factor(4)
    product = factors.multiply(factor, np.eye(25))
    for b, near in enumerate(factor.neighbours):
        rows = factor.order[factor.starts[b] : factor.starts[b + 1]]
        near = factor.order[near[near >= 0]]
        here, among = np.ix_(rows, rows), np.ix_(near, near)
        left = R[here] - R[np.ix_(rows, near)] @ np.linalg.solve(R[among], R[np.ix_(near, rows)])
        weights = np.linalg.solve(R[among], R[np.ix_(near, rows)]).T
        across = product[np.ix_(rows, near)]
        found = product[here] - across @ weights.T
        assert_allclose(across, weights @ product[among], **tolerances.ROUNDED_WEIGHTS)
        assert_allclose(found, left, **tolerances.ROUNDED_WEIGHTS)


def test_blocks_of_one_row_without_neighbours_keep_the_variances():
    factor, R = make_factor(0, sizes=(1,) * 150)
    assert factor.weights.shape == (150, 0)
    wanted = np.diag(np.diag(R))
    assert_allclose(factors.multiply(factor, np.eye(150)), wanted, **tolerances.ROUNDED_WEIGHTS)


@pytest.mark.parametrize("m_v", [0, 6])
def test_the_last_blocks_alone_are_those_of_all(m_v):
    whole, _ = make_factor(m_v)
    threads, _ = make_factor(m_v, n_threads=2)
    last, _ = make_factor(m_v, first=3)
    begin = whole.starts[3]
    for name in ("weights", "roots"):
        assert_array_equal(getattr(whole, name), getattr(threads, name))
        assert_array_equal(getattr(whole, name)[begin:], getattr(last, name))
