"""Approximate nearest neighbours against sorted distances."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from triegp.engines.cpu.nearest import build_index, by_leaf, earlier_rows, nearest_rows


def squares(query, U):
    return ((query[:, None] - U) ** 2).sum(axis=2)


def recall(found, square, k):
    """Share of the neighbours found that are no farther than the k-th nearest row."""
    farthest = np.sort(square, axis=1)[:, k - 1]
    at = np.take_along_axis(square, np.maximum(found, 0).astype(int), axis=1)
    return ((at <= farthest[:, None]) & (found >= 0)).mean()


def test_recall_of_queries():
    rng = np.random.default_rng(0)
    U, query = rng.normal(size=(6000, 6)), rng.normal(size=(300, 6))
    found = nearest_rows(build_index(U, seed=1), U, query, 20)
    square = squares(query, U)
    assert recall(found, square, 20) > 0.9
    ordered = np.take_along_axis(square, found.astype(int), axis=1)
    assert (np.diff(ordered, axis=1) >= 0).all()
    assert all(np.unique(row).size == 20 for row in found)


def test_recall_of_earlier_rows():
    rng = np.random.default_rng(0)
    U = rng.normal(size=(6000, 6))
    found = earlier_rows(U, 20, seed=1)
    some = np.arange(100, 6000, 25)
    assert (found < np.arange(6000)[:, None]).all()
    square = squares(U[some], U)
    square[np.arange(6000) >= some[:, None]] = np.inf
    assert recall(found[some], square, 20) > 0.9


def test_few_rows_are_searched_exactly():
    rng = np.random.default_rng(2)
    U, query = rng.normal(size=(500, 3)), rng.normal(size=(40, 3))
    wanted = np.argsort(squares(query, U), axis=1)[:, :7]
    assert_array_equal(nearest_rows(build_index(U), U, query, 7), wanted)
    found = earlier_rows(U, 600)
    square = squares(U, U)
    for i in (0, 1, 2, 250, 499):
        assert_array_equal(found[i, :i], np.argsort(square[i, :i], kind="stable"))
        assert (found[i, i:] == -1).all()


def test_rows_after_those_of_the_index_are_found():
    rng = np.random.default_rng(6)
    U, query = rng.normal(size=(3000, 2)), rng.normal(size=(50, 2))
    index = build_index(U[:2500])
    limits = rng.integers(1200, 3000, 50)
    found = nearest_rows(index, U, query, 5, limits=limits)
    square = squares(query, U)
    square[np.arange(3000) >= limits[:, None]] = np.inf
    assert (found < limits[:, None]).all()
    assert (found >= 2500).any()
    assert recall(found, square, 5) > 0.95


@pytest.mark.parametrize("d", [1, 3])
def test_a_row_finds_itself_first(d):
    U = np.random.default_rng(3).normal(size=(5000, d))
    found = nearest_rows(build_index(U), U, U[::50], 3)
    assert_array_equal(found[:, 0], np.arange(0, 5000, 50))


def test_equal_rows_are_all_neighbours():
    U = np.ones((5000, 2))
    index = build_index(U, seed=5)
    assert np.isfinite(index.directions).all()
    assert (nearest_rows(index, U, U[:3], 4) >= 0).all()
    found = earlier_rows(U, 4)
    assert (found[4:] >= 0).all()
    assert_array_equal(found[4], [0, 1, 2, 3])


def test_results_do_not_depend_on_threads_and_batches():
    U = np.random.default_rng(4).normal(size=(5000, 4))
    one, two = build_index(U, seed=7, n_threads=1), build_index(U, seed=7, n_threads=2)
    assert_array_equal(one.rows, two.rows)
    assert_array_equal(one.directions, two.directions)
    found = nearest_rows(one, U, U, 5)
    assert_array_equal(found, nearest_rows(one, U, U, 5, n_threads=2))
    assert_array_equal(found[17:19], nearest_rows(one, U, U[17:19], 5))
    assert_array_equal(earlier_rows(U, 5), earlier_rows(U, 5, n_threads=2))
    assert (build_index(U, seed=8).rows != one.rows).any()


def test_leaves_hold_every_row_once():
    U = np.random.default_rng(5).normal(size=(3000, 4))
    index = build_index(U, leaf_rows=50)
    assert index.n_leaves == 64
    order, first = by_leaf(index, U), 0
    for number in range(index.n_leaves):
        own = np.sort(index.leaf(number))
        assert_array_equal(order[first : first + own.size], own)
        first += own.size
    assert np.ptp(np.diff(index.starts)) <= 1


@pytest.mark.parametrize("n", [1, 2, 64, 65])
def test_few_rows(n):
    U = np.arange(n, dtype=float)[:, None]
    found = nearest_rows(build_index(U), U, np.array([[-1.0]]), 3)
    assert_array_equal(found[0], [i if i < n else -1 for i in range(3)])
    assert nearest_rows(build_index(U), U, U, 0).shape == (n, 0)
