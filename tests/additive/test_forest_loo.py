"""Leaving rows out of a forest, against refits without them."""

import numpy as np
import pytest

from forest_problems import (
    assert_sampled,
    dense_left_out,
    make_problem,
    own_kernel,
    quiet_problem,
    solve_tightly,
)
from tolerances import SOLVED
from triegp.additive import model, variance
from triegp.additive.variance import diagonal_samples, leave_out, with_diagonal


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_leaving_a_row_out_is_a_refit_without_it(weighted):
    problem = make_problem(n=40, weighted=weighted, known=weighted)
    found = problem.condition()
    known = with_diagonal(found)
    dense = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    np.testing.assert_allclose(known.known_diagonal, np.diag(np.linalg.inv(dense)), **SOLVED)
    assert with_diagonal(known) is known
    for a, b in zip(leave_out(known), dense_left_out(found, problem.X), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.parametrize(("noise", "rank"), [(0.1, 30), (1e-5, 400)])
def test_the_diagonal_by_samples_is_within_its_error(noise, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    monkeypatch.setattr(variance, "SAMPLE_TOLERANCE", 1e-6)
    problem = quiet_problem(noise)
    found = problem.condition()
    exact = with_diagonal(found).known_diagonal
    monkeypatch.setattr(variance, "EXACT_ROWS", 0)
    monkeypatch.setattr(variance, "DIAGONAL_SAMPLES", 128)
    assert diagonal_samples(120) == 128
    sampled = with_diagonal(found).known_diagonal
    assert_sampled(126 / 128 * sampled, exact, 128)
    # 1 / diagonal is unbiased: its mean over rows is off by no more than rows that are correlated
    # may be.
    assert abs(np.mean(exact / sampled) - 1.0) < 3.0 * np.sqrt(2.0 / 128) / np.sqrt(20)


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_out_by_samples_is_nearly_exact(weighted, monkeypatch):
    problem = make_problem(n=40, weighted=weighted)
    found = problem.condition()
    mean, var = dense_left_out(found, problem.X)
    monkeypatch.setattr(variance, "EXACT_ROWS", 0)
    monkeypatch.setattr(variance, "DIAGONAL_SAMPLES", 256)
    sampled_mean, sampled_var = leave_out(found)
    # y - mean and the variance of y are off by at most the diagonal's relative error
    bar = np.sqrt(2.0 / 256)
    assert np.abs((sampled_mean - mean) / (found.rows.y - mean)).max() < 5 * bar
    ratio = (sampled_var + found.variance) / (var + found.variance)
    assert np.abs(ratio - 1.0).max() < 5 * bar
    assert (sampled_var >= 0).all()
    assert (sampled_var <= found.forest.prior_variance * (1 + 1e-12)).all()
