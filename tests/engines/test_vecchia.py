"""Kernels of the smooth part against dense algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tolerances
from triegp.engines import vecchia


def make_triangle(n=40, m_v=5):
    """Neighbours among earlier rows, weights, and B as a dense matrix."""
    rng = np.random.default_rng(0)
    neighbours, weights = np.full((n, m_v), -1, dtype=np.int32), np.zeros((n, m_v))
    B = np.eye(n)
    for i in range(n):
        near = rng.permutation(i)[:m_v]
        neighbours[i, : near.size] = near
        weights[i, : near.size] = rng.uniform(-0.5, 0.5, near.size)
        B[i, near] = -weights[i, : near.size]
    return neighbours, weights, B


@pytest.mark.parametrize("n_columns", [1, 3])
def test_triangular_solves(n_columns):
    neighbours, weights, B = make_triangle()
    x = np.random.default_rng(1).normal(size=(40, n_columns))
    lower, upper = x.copy(), x.copy()
    vecchia.solve_lower(neighbours, weights, lower)
    vecchia.solve_upper(neighbours, weights, upper)
    assert_allclose(B @ lower, x, **tolerances.VALUE)
    assert_allclose(B.T @ upper, x, **tolerances.VALUE)


@pytest.mark.parametrize("m", [0, 1, 2, 7, 32])
def test_projections_do_not_depend_on_the_batch(m):
    rng = np.random.default_rng(2)
    U, inducing = rng.normal(size=(70, 3)), rng.normal(size=(m, 3))
    K = np.empty((m, m))
    vecchia.fill_kernel(1, 2.0, inducing, inducing, K)
    root = np.linalg.cholesky(K + 1e-10 * np.eye(m))
    phi, across = np.empty((70, m)), np.empty((70, m))
    vecchia.fill_phi(1, 2.0, inducing, root, U, phi, n_threads=2)
    vecchia.fill_kernel(1, 2.0, U, inducing, across)
    assert_allclose(phi @ root.T, across, **tolerances.VALUE)
    for part in (slice(0, 1), slice(33, 36), slice(5, 60)):
        alone = np.empty_like(phi[part])
        vecchia.fill_phi(1, 2.0, inducing, root, U[part], alone)
        assert_array_equal(alone, phi[part])


def test_a_matrix_that_is_not_positive_gets_more_jitter():
    U = np.random.default_rng(3).normal(size=(6, 2))
    phi = np.full((6, 1), 1.0 + 1e-6)  # more than the variance of the kernel
    neighbours = np.array([[0, 1, 2, 3, 4]], dtype=np.int32)
    weights, variances = np.empty((1, 5)), np.empty(1)
    own = (phi[5:], U[5:])
    vecchia.fill_factor(3, 1.0, phi, U / 1e4, *own, np.arange(1), neighbours, weights, variances)
    assert np.isfinite(weights).all()
    assert variances[0] > 0
