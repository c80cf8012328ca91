"""Adding rows to a forest that is conditioned on others."""

import numpy as np
import pytest

import oracle
from forest_problems import (
    dense_left_out,
    make_problem,
    mean_at,
    own_kernel,
    solve_tightly,
    variance_at,
)
from tolerances import SOLVED, VALUE
from triegp.additive.conditioning import insert_into_forest
from triegp.additive.variance import leave_out, with_diagonal
from triegp.tree.rows import Rows


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("weighted", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.usefixtures("tight")
def test_adding_rows_is_conditioning_on_all(weighted, known):
    problem = make_problem(n=30, weighted=weighted[0])
    found = with_diagonal(problem.condition())
    rng = np.random.default_rng(7)
    more = Rows(
        rng.standard_normal(30),
        rng.uniform(0.0, 0.3, 30) if known else None,
        rng.integers(0, 3, 30).astype(float) if weighted[1] else None,
        problem.new,
    )
    grown = insert_into_forest(found, more)
    kept = np.ones(30, bool) if more.weight is None else more.weight > 0
    X = np.vstack([problem.X, problem.new[kept]])
    np.testing.assert_array_equal(grown.present, np.append(np.ones(30, bool), kept))
    assert grown.n_rows == 60
    assert grown.orders == found.orders
    assert grown.noise == found.noise
    assert grown.known_diagonal is None
    extra = 0.0 if more.known_noise is None else more.known_noise[kept]
    counts = np.ones(kept.sum()) if more.weight is None else more.weight[kept]
    variance = np.append(found.variance, (found.new_noise + extra) / counts)
    np.testing.assert_allclose(grown.variance, variance, **VALUE)
    y = np.append(problem.rows.y, more.y[kept])
    dense = own_kernel(found, X, X)
    np.testing.assert_allclose(grown.alpha, np.linalg.solve(dense + np.diag(variance), y), **SOLVED)
    other = problem.new + 0.01 * (0.5 - problem.new)
    mean, cov = oracle.posterior(
        dense, variance, own_kernel(found, X, other), own_kernel(found, other, other), y
    )
    np.testing.assert_allclose(mean_at(grown, other), mean, **SOLVED)
    np.testing.assert_allclose(variance_at(grown, other), np.diag(cov), **SOLVED)
    for a, b in zip(leave_out(grown), dense_left_out(grown, X), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)
    again = insert_into_forest(grown, more.select(np.empty(0, int)))
    np.testing.assert_array_equal(again.alpha, grown.alpha)


def test_rows_of_no_weight_add_nothing_but_their_number():
    problem = make_problem(n=60)
    found = problem.condition()
    grown = insert_into_forest(found, Rows(np.ones(30), None, np.zeros(30), problem.new))
    assert grown.n_rows == 90
    assert grown.forest.n_rows == 60
    np.testing.assert_array_equal(grown.alpha, found.alpha)


def test_rows_outside_the_box_are_not_added():
    problem = make_problem(n=60)
    rows = Rows(np.ones(30), None, None, problem.new + 5.0)
    with pytest.raises(ValueError, match="inside the box"):
        insert_into_forest(problem.condition(), rows)
