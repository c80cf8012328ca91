"""Leaving rows out, against refits without them."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import SMOOTH, dense_left_out, make_problem, own_kernel, solve_tightly
from tolerances import SOLVED
from triegp.additive.conditioning import residuals_of
from triegp.additive.variance import leave_out, left_out


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_leaving_a_row_out_is_a_refit_without_it(weighted, smooth):
    problem = make_problem(n=40, weighted=weighted, known=weighted, smooth=smooth)
    found = problem.condition()
    dense = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    np.testing.assert_allclose(found.exact_diagonal, np.diag(np.linalg.inv(dense)), **SOLVED)
    mean, var = dense_left_out(found, problem.X)
    for a, b in zip(leave_out(found), (mean, var), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)
    some = np.array([7, 0, 31])
    for a, b in zip(leave_out(found, some), (mean, var), strict=True):
        np.testing.assert_allclose(a, b[some], **SOLVED)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_leaving_out_by_nearby_rows_is_exact_if_all_rows_are_near(weighted, smooth, monkeypatch):
    problem = make_problem(n=40, weighted=weighted, noise=1e-3, smooth=smooth)
    found = problem.condition()
    mean, var = dense_left_out(found, problem.X)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    for a, b in zip(leave_out(found), (mean, var), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)
    np.testing.assert_allclose(left_out(found, np.array([3, 1])), var[[3, 1]], **SOLVED)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.usefixtures("tight")
def test_residuals_are_those_of_the_rows_that_are_asked_for(smooth):
    problem = make_problem(n=40, weighted=True, smooth=smooth)
    found = problem.condition()
    mean, var = dense_left_out(found, problem.X)
    fresh = np.arange(40) % 3 == 0
    some_rows = np.array([2, 9, 30])
    (every,) = residuals_of(found, leave_out(found), fresh)
    (some,) = residuals_of(found, leave_out(found, some_rows), fresh, some_rows)
    np.testing.assert_allclose(every.mean, mean, **SOLVED)
    np.testing.assert_allclose(every.var, var + found.rows.noise, **SOLVED)
    np.testing.assert_array_equal(every.rows, np.arange(40))
    np.testing.assert_array_equal(every.fresh, fresh)
    for name in ("rows", "mean", "var", "y", "weight", "fresh"):
        np.testing.assert_array_equal(getattr(some, name), getattr(every, name)[[2, 9, 30]])


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_a_solve_that_did_not_converge_shows_in_leave_one_out(smooth):
    """Predictions are those of the targets that alpha solves for, and so is leave-one-out."""
    problem = make_problem(n=40, smooth=smooth)
    found = problem.condition()
    short = replace(found, alpha=found.alpha * np.linspace(0.2, 1.0, 40))
    kernel = own_kernel(short, problem.X, problem.X)
    solved = (kernel + np.diag(short.variance)) @ short.alpha
    wanted = oracle.leave_one_out(kernel, short.variance, solved)
    for a, b in zip(leave_out(short), wanted, strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_rows_of_which_nearby_rows_say_little_are_left_out_by_solves(smooth, monkeypatch):
    problem = make_problem(n=60, smooth=smooth)
    found = problem.condition()
    mean, var = dense_left_out(found, problem.X)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    monkeypatch.setattr("triegp.additive.model.SOLVED_ROWS", 20)
    monkeypatch.setattr("triegp.additive.model.SOLVED_TOLERANCE", 1e-9)
    short = replace(found, factor=4.0)  # all variances are too large
    rows, _ = short.left_out_solved
    assert rows.size == 20
    for a, b in zip(leave_out(short, solve=True), (mean, var), strict=True):
        np.testing.assert_allclose(a[rows], b[rows], **SOLVED)
    two = replace(short, alpha=np.stack([short.alpha, -short.alpha], axis=1))
    np.testing.assert_array_equal(two.left_out_solved[0], rows)
    rest = np.setdiff1d(np.arange(60), rows)
    np.testing.assert_array_equal(leave_out(short, solve=True)[1][rest], left_out(short)[rest])


def test_of_few_and_of_very_many_rows_none_is_left_out_by_a_solve(monkeypatch):
    found = make_problem(n=40).condition()
    assert found.left_out_solved[0].size == 0
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    monkeypatch.setattr("triegp.additive.model.SOLVED_FLOATS", 39)
    assert make_problem(n=40).condition().left_out_solved[0].size == 0
