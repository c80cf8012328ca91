"""Routines of LAPACK and BLAS by their addresses, against numpy."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tolerances
from triegp.engines import lapack

SIZES = [1, 2, 7, 40]


def problem(n, dtype=np.float64):
    """A positive definite matrix, and its factor as part of a larger array."""
    root = np.random.default_rng(n).normal(size=(n, n + 3))
    matrix = (root @ root.T + np.eye(n)).astype(dtype)
    factor = np.full((n, n + 2), np.nan, dtype)[:, :n]
    factor[:] = np.tril(np.linalg.cholesky(matrix))
    return matrix, factor


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solves_with_the_factor(n, dtype):
    _, factor = problem(n, dtype)
    exact = factor.astype(np.float64)
    x = np.random.default_rng(1).normal(size=(n, 3)).astype(dtype)
    near = tolerances.VALUE if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for solve, wanted in (
        (lapack.divide, np.linalg.solve(exact, x)),
        (lapack.divide_transposed, np.linalg.solve(exact.T, x)),
    ):
        solve(factor, solved := x.copy())
        assert_allclose(solved, wanted, **near)
    for solve, wanted in (
        (lapack.divide_right, np.linalg.solve(exact.T, x).T),
        (lapack.divide_right_transposed, np.linalg.solve(exact, x).T),
    ):
        solve(factor, solved := x.T.copy())
        assert_allclose(solved, wanted, **near)


@pytest.mark.parametrize("n", SIZES)
def test_factors_and_inverses(n):
    matrix, factor = problem(n)
    found = np.tril(matrix)
    assert lapack.cholesky(found)
    assert_allclose(np.tril(found), factor, **tolerances.VALUE)
    inverse = found.copy()
    assert lapack.invert(inverse)
    assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(matrix)), **tolerances.VALUE)
    assert lapack.invert_factor(found)
    assert_allclose(np.tril(found), np.linalg.inv(factor), **tolerances.VALUE)


@pytest.mark.parametrize("n", SIZES)
def test_squares_of_rows(n):
    rows = np.random.default_rng(2).normal(size=(n, 5))
    matrix = np.zeros((n, n))
    lapack.subtract_squares(rows, matrix)
    assert_allclose(matrix, -np.tril(rows @ rows.T), **tolerances.VALUE)


def test_a_matrix_that_is_not_positive_definite():
    assert not lapack.cholesky(np.array([[1.0, 0.0], [2.0, 1.0]]))
    assert not lapack.invert_factor(np.array([[1.0, 0.0], [2.0, 0.0]]))


def test_a_matrix_that_is_not_positive_gets_more_jitter():
    singular = np.ones((4, 4)) - 1e-9 * np.eye(4)
    lower = np.tril(lapack.factorise(singular, 1e-12))
    assert_allclose(lower @ lower.T, singular, atol=1e-7)
    assert (np.diag(lower) > 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite(value):
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        lapack.factorise(np.full((2, 2), value), 1e-12)


@pytest.mark.parametrize("wrong", [np.ones((3, 3)).T[::2], np.ones((3, 3), np.float32)])
def test_matrices_of_another_layout_are_refused(wrong):
    with pytest.raises(ValueError, match="contiguous rows"):
        lapack.divide(np.eye(len(wrong)), wrong)


def test_threads_work_side_by_side():
    """Another thread counts while a large matrix is factorised: the interpreter is free."""
    matrix = np.eye(3_000) + 1.0
    ended = threading.Event()
    worker = threading.Thread(target=lambda: (lapack.cholesky(matrix), ended.set()))
    worker.start()
    count = 0
    while not ended.is_set():
        count += 1
    worker.join()
    assert count > 100
