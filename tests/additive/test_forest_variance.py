"""Variances, covariances and draws of trees and a smooth part, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    SMOOTH,
    covariance_at,
    dense_posterior,
    draws_at,
    make_problem,
    quiet_problem,
    solve_tightly,
    variance_at,
)
from tolerances import SAMPLED, SOLVED, VALUE, VARIANCE_OF_SOLVES
from triegp.additive import model, variance
from triegp.additive.exact import draw_correlated
from triegp.additive.sampling import draw_prior
from triegp.engines import CpuEngine


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [5, 400])
@pytest.mark.usefixtures("tight")
def test_variances_by_solves_are_the_dense_ones(weighted, rank, smooth, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    problem = make_problem(n=120, d=3, n_trees=5, weighted=weighted, known=weighted, smooth=smooth)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(variance_at(found, problem.new), np.diag(cov), **SOLVED)
    np.testing.assert_allclose(covariance_at(found, problem.new), cov, **SOLVED)


@pytest.mark.usefixtures("tight")
def test_equal_new_rows_covary_as_one():
    problem = make_problem(n=60, smooth="inducing")
    found = problem.condition()
    new = np.vstack([problem.new[:4], problem.new[:2], problem.X[:2]])
    cov = covariance_at(found, new)
    np.testing.assert_allclose(cov, dense_posterior(found, problem.X, new)[1], **SOLVED)
    np.testing.assert_allclose(cov[0, 4], cov[0, 0], **SOLVED)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
def test_variances_by_solves_are_good_enough_as_they_are(noise, smooth, monkeypatch):
    monkeypatch.setattr(model, "RANK", 30)
    problem = quiet_problem(noise, smooth=smooth)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(
        variance_at(found, problem.new), np.diag(cov), rtol=VARIANCE_OF_SOLVES
    )
    np.testing.assert_allclose(
        np.diag(covariance_at(found, problem.new)), np.diag(cov), rtol=VARIANCE_OF_SOLVES
    )


@pytest.mark.parametrize("smooth", [None, "inducing"])
def test_answers_are_the_same_on_any_number_of_threads(smooth):
    problem = make_problem(n=300, n_trees=6, d=3, smooth=smooth)

    def answer(n_threads):
        found = problem.condition(engine=CpuEngine(n_threads))
        draws = draws_at(found, problem.new, 3, np.random.default_rng(1))
        kinds = [variance_at(found, problem.new, kind) for kind in ("nearby", "exact")]
        return np.column_stack([*kinds, draws])

    one = answer(1)
    np.testing.assert_array_equal(one, answer(1))
    np.testing.assert_array_equal(one, answer(3))


def assert_covariance(draws, mean, cov):
    """Draws (m, S) have this mean and covariance, to Monte Carlo error."""
    n_samples = draws.shape[1]
    spread = np.diag(cov)
    off = (draws.mean(axis=1) - mean) / np.sqrt(spread / n_samples)
    assert np.abs(off).max() < 4.5
    centred = draws - mean[:, None]
    bar = np.sqrt((np.outer(spread, spread) + np.square(cov)) / n_samples)
    error = (centred @ centred.T / n_samples - cov) / bar
    assert np.abs(error).max() < SAMPLED["max"]
    assert np.sqrt(np.mean(np.square(error))) < SAMPLED["rms"]


@pytest.mark.parametrize("smooth", SMOOTH)
def test_draws_of_the_prior_have_its_covariance(smooth):
    problem = make_problem(n=40, n_trees=11, smooth=smooth)  # more than are held at once
    forest = problem.forest()
    draws = draw_prior(forest, 4000, np.random.default_rng(0))
    assert_covariance(draws, np.zeros(40), problem.kernel())
    again = draw_prior(forest, 4000, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, again)


def test_draws_of_the_prior_at_equal_rows_are_equal():
    problem = make_problem(n=20)
    twice = replace(problem, X=np.repeat(problem.X, 2, axis=0))
    draws = draw_prior(twice.forest(), 3, np.random.default_rng(0))
    np.testing.assert_allclose(draws[::2], draws[1::2], **VALUE)
    alone = replace(problem, X=problem.X[:1])
    one = draw_prior(alone.forest(), 4000, np.random.default_rng(0))
    assert_covariance(one, np.zeros(1), alone.kernel())


@pytest.mark.parametrize("smooth", [None, "inducing", "neighbours"])
@pytest.mark.usefixtures("tight")
def test_draws_have_the_posteriors_mean_and_covariance(smooth):
    problem = make_problem(n=60, smooth=smooth)
    found = problem.condition()
    new = np.vstack([problem.new[:12], problem.new[:1], problem.X[:3]])
    mean, cov = dense_posterior(found, problem.X, new)
    draws = draws_at(found, new, 1600, np.random.default_rng(0))
    assert draws.shape == (16, 1600)
    np.testing.assert_allclose(draws[0], draws[12], **SOLVED)  # the same row twice
    assert_covariance(draws, mean, cov)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.usefixtures("tight")
def test_fewer_draws_than_rows_have_the_same_distribution(smooth):
    problem = make_problem(n=60, smooth=smooth)
    found = problem.condition()
    new, rng = np.vstack([problem.new[:12], problem.X[:3]]), np.random.default_rng(0)
    mean, cov = dense_posterior(found, problem.X, new)
    draws = np.hstack([draws_at(found, new, 14, rng) for _ in range(100)])
    assert_covariance(draws, mean, cov)


def test_many_draws_take_one_solve_per_row(monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    problem = make_problem(n=60)
    found, solved = problem.condition(), []

    def solve(model, b, tolerance, real=variance.solve_rows):
        solved.append(b.shape[1])
        return real(model, b, tolerance)

    monkeypatch.setattr(variance, "solve_rows", solve)
    assert draws_at(found, problem.new[:5], 3000, np.random.default_rng(0)).shape == (5, 3000)
    assert sum(solved) == 5


def test_draws_of_rows_that_others_determine():
    half = np.random.default_rng(0).standard_normal((6, 3))
    draws = draw_correlated(half @ half.T, 4000, np.random.default_rng(1))
    np.testing.assert_allclose(np.cov(draws), half @ half.T, atol=0.5)
    np.testing.assert_allclose(draw_correlated(np.zeros((2, 2)), 3, np.random.default_rng(1)), 0.0)
