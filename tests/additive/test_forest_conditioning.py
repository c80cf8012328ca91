"""Adding rows to a model that is conditioned on others."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    SMOOTH,
    dense_left_out,
    make_problem,
    mean_at,
    own_kernel,
    quiet_problem,
    solve_tightly,
    solved,
    variance_at,
)
from tolerances import CORRECTED, SOLVED, VALUE
from triegp.additive import insertion
from triegp.additive.insertion import insert_into_forest
from triegp.additive.model import tolerance_for
from triegp.additive.variance import leave_out
from triegp.tree.rows import Rows


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.usefixtures("tight")
def test_adding_rows_is_conditioning_on_all(weighted, known, smooth):
    close = solved(smooth)
    problem = make_problem(n=30, weighted=weighted[0], smooth=smooth)
    found = problem.condition()
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
    extra = 0.0 if more.known_noise is None else more.known_noise[kept]
    counts = np.ones(kept.sum()) if more.weight is None else more.weight[kept]
    variance = np.append(found.variance, (found.new_noise + extra) / counts)
    np.testing.assert_allclose(grown.variance, variance, **VALUE)
    y = np.append(problem.rows.y, more.y[kept])
    dense = own_kernel(found, X, X)
    np.testing.assert_allclose(grown.alpha, np.linalg.solve(dense + np.diag(variance), y), **close)
    other = problem.new + 0.01 * (0.5 - problem.new)
    mean, cov = oracle.posterior(
        dense, variance, own_kernel(found, X, other), own_kernel(found, other, other), y
    )
    np.testing.assert_allclose(mean_at(grown, other), mean, **close)
    np.testing.assert_allclose(variance_at(grown, other), np.diag(cov), **close)
    for a, b in zip(leave_out(grown), dense_left_out(grown, X), strict=True):
        np.testing.assert_allclose(a, b, **close)
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


# One row at a time


@pytest.fixture
def streamed(monkeypatch):
    """Few rows take the route of many: a correction where the new row is felt."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)


def one_more(problem, i, y=1.0):
    return Rows(np.array([y]), None, None, problem.new[[i]])


@pytest.mark.parametrize("smooth", ["inducing", None, "dense"])
@pytest.mark.usefixtures("streamed", "tight")
def test_a_correction_is_the_full_solve_if_all_rows_are_near(smooth, monkeypatch):
    monkeypatch.setattr("triegp.additive.nearby.SINGLE_NOISE", np.inf)
    problem = make_problem(n=120, smooth=smooth)  # fewer than 256 members
    found = problem.condition()
    fast = insert_into_forest(found, one_more(problem, 3))
    fast = insert_into_forest(fast, one_more(problem, 4, -0.5))
    assert fast.n_pending == 2
    X = np.vstack([problem.X, problem.new[3:5]])
    dense = own_kernel(fast, X, X) + np.diag(fast.variance)
    y = np.append(problem.rows.y, [1.0, -0.5])
    np.testing.assert_allclose(fast.alpha, np.linalg.solve(dense, y), **SOLVED)
    # The rows in cells have been extended, too.
    assert fast.known_nearby.n_rows == 122
    left = replace(fast, known_nearby=None)
    for kind in ("nearby", "exact"):
        one, two = (variance_at(part, problem.new, kind) for part in (fast, left))
        np.testing.assert_allclose(one, two, **SOLVED)


@pytest.mark.parametrize("smooth", ["inducing", None])
@pytest.mark.usefixtures("streamed")
def test_a_correction_by_some_rows_is_close_to_the_full_solve(smooth, monkeypatch):
    members = {"n_members": 64, "n_threads": None}
    monkeypatch.setattr("triegp.additive.nearby.make_nearby.__kwdefaults__", members)
    problem = make_problem(n=600, smooth=smooth, precision=6)
    found = problem.condition()
    before = mean_at(found, problem.new)
    fast = found
    for i in range(5):
        fast = insert_into_forest(fast, one_more(problem, i, 2.0))
    assert fast.n_pending == 5
    monkeypatch.setattr(insertion, "FEW_NEW", 0)
    more = Rows(np.full(5, 2.0), None, None, problem.new[:5])
    slow = insert_into_forest(found, more)
    assert slow.n_pending == 0
    change = np.abs(mean_at(slow, problem.new) - before).max()
    error = np.abs(mean_at(fast, problem.new) - mean_at(slow, problem.new)).max()
    assert change > 0.1
    assert error < CORRECTED * change
    # A solve on all rows follows when there are many of them, and takes the error away.
    monkeypatch.setattr(insertion, "PENDING_SHARE", 0.0)
    again = insert_into_forest(fast, one_more(problem, 9))
    assert again.n_pending == 0
    both = insert_into_forest(slow, one_more(problem, 9))
    np.testing.assert_allclose(mean_at(again, problem.new), mean_at(both, problem.new), atol=1e-3)


@pytest.mark.usefixtures("streamed")
def test_one_call_with_few_rows_is_as_many_calls_with_one():
    problem = make_problem(n=200, smooth="inducing")
    found = problem.condition()
    rows = Rows(np.array([1.0, -1.0, 0.5]), np.array([0.0, 0.3, 0.1]), None, problem.new[:3])
    whole = insert_into_forest(found, rows)
    turn = found
    for i in range(3):
        turn = insert_into_forest(turn, rows.select(np.array([i])))
    np.testing.assert_array_equal(whole.alpha, turn.alpha)
    np.testing.assert_array_equal(whole.variance, turn.variance)
    np.testing.assert_array_equal(whole.present, turn.present)
    for kind in ("nearby", "exact"):
        one, two = (variance_at(part, problem.new, kind) for part in (whole, turn))
        np.testing.assert_array_equal(one, two)


@pytest.mark.usefixtures("streamed")
def test_a_row_of_large_weight_pulls_the_mean_to_its_target():
    problem = make_problem(n=200, smooth="inducing")
    found = problem.condition()
    rows = Rows(np.array([3.0]), None, np.array([1e6]), problem.new[:1])
    grown = insert_into_forest(found, rows)
    assert mean_at(grown, problem.new[:1])[0] == pytest.approx(3.0, abs=1e-3)


@pytest.mark.parametrize("n_new", [1, 30])
def test_rows_added_to_many_are_solved_for(n_new, monkeypatch):
    """A tolerance for all rows together must not pass over the few that are new."""
    monkeypatch.setattr(insertion, "FEW_NEW", 0)
    problem = make_problem(n=600, precision=6)
    found = problem.condition()
    more = Rows(np.full(n_new, 2.0), None, None, problem.new[:n_new])
    exact = insert_into_forest(found, more).alpha
    monkeypatch.setattr("triegp.additive.model.ACCURATE_ROWS", 100)
    assert tolerance_for(found.rows) > 1e-3
    near = insert_into_forest(found, more).alpha
    np.testing.assert_allclose(near[600:], exact[600:], rtol=0.1)


# Little noise


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_few_rows_without_noise_are_solved_exactly(smooth):
    problem = quiet_problem(1e-9, n=300, smooth=smooth)
    found = problem.condition()
    assert found.residual < 1e-8
    solved = mean_at(found, problem.X) + found.variance * found.alpha
    np.testing.assert_allclose(solved, problem.rows.y, atol=1e-8)


def test_many_rows_without_noise_are_given_what_a_solve_needs(monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    found = quiet_problem(1e-9, n=600, smooth="inducing").condition()
    assert found.residual <= tolerance_for(found.rows)
    assert found.noise >= 0.99e-6 * found.forest.prior_variance


@pytest.mark.usefixtures("tight")
def test_rows_that_become_too_many_for_dense_algebra(monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 100)
    monkeypatch.setattr("triegp.additive.nearby.SINGLE_NOISE", np.inf)
    problem = make_problem(n=80, smooth="dense", noise=1e-9)
    found = replace(problem.condition(), factor=1.0)
    grown = insert_into_forest(found, Rows(np.ones(30), None, None, problem.new))
    assert grown.noise >= 0.99e-6 * grown.forest.prior_variance > found.noise
    X = np.vstack([problem.X, problem.new])
    y = np.append(problem.rows.y, np.ones(30))
    dense = own_kernel(grown, X, X) + np.diag(grown.variance)
    np.testing.assert_allclose(dense @ grown.alpha, y, atol=1e-6)
    mean, var = leave_out(replace(grown, factor=1.0))
    wanted = dense_left_out(grown, X)
    np.testing.assert_allclose(var, wanted[1], atol=1e-6)
    np.testing.assert_allclose(mean, wanted[0], atol=1e-4)
