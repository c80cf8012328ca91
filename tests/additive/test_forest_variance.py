"""A forest's variances, covariances and draws, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    assert_sampled,
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
from triegp.additive.forest import build_forest
from triegp.additive.sampling import draw_prior
from triegp.additive.settings import Settings
from triegp.additive.variance import with_diagonal
from triegp.engines import CpuEngine


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [5, 400])
@pytest.mark.usefixtures("tight")
def test_variances_by_solves_are_the_dense_ones(weighted, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    problem = make_problem(n=120, d=3, n_trees=5, weighted=weighted, known=weighted)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(variance_at(found, problem.new), np.diag(cov), **SOLVED)
    np.testing.assert_allclose(covariance_at(found, problem.new), cov, **SOLVED)
    auto = replace(found, variance_by="auto")  # 30 rows are fewer than 200 samples
    np.testing.assert_array_equal(variance_at(auto, problem.new), variance_at(found, problem.new))


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
def test_variances_by_solves_are_good_enough_as_they_are(noise, monkeypatch):
    monkeypatch.setattr(model, "RANK", 30)
    problem = quiet_problem(noise)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(
        variance_at(found, problem.new), np.diag(cov), rtol=VARIANCE_OF_SOLVES
    )
    np.testing.assert_allclose(
        np.diag(covariance_at(found, problem.new)), np.diag(cov), rtol=VARIANCE_OF_SOLVES
    )


@pytest.mark.parametrize(("noise", "rank"), [(0.1, 30), (1e-5, 400)])
def test_variances_by_samples_are_within_their_error(noise, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    monkeypatch.setattr(variance, "SAMPLE_TOLERANCE", 1e-6)
    problem = quiet_problem(noise)
    found = problem.condition(Settings(variance="samples", variance_error=0.15), seed=3)
    assert found.n_samples == 89
    _, cov = dense_posterior(found, problem.X, problem.new)
    assert_sampled(variance_at(found, problem.new), np.diag(cov), 89)


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
@pytest.mark.parametrize("what", ["variance", "diagonal"])
def test_loose_solves_add_less_than_the_samples_error(what, noise, monkeypatch):
    monkeypatch.setattr(model, "RANK", 30)
    monkeypatch.setattr(variance, "EXACT_ROWS", 0)
    problem = quiet_problem(noise)
    found = problem.condition(Settings(variance="samples", variance_error=np.sqrt(2.0 / 64)))

    def sample():
        if what == "variance":
            return variance_at(found, problem.new)
        return with_diagonal(found).known_diagonal

    loose = sample()
    monkeypatch.setattr(variance, "SAMPLE_TOLERANCE", 1e-6)
    assert np.abs(loose / sample() - 1.0).max() < np.sqrt(2.0 / 64)  # of the same draws


def test_the_same_seed_gives_the_same_variances_on_any_number_of_threads():
    problem = make_problem(n=300, n_trees=6, d=3)
    settings = Settings(variance="samples", variance_error=0.25)

    def sample(seed, n_threads):
        found = problem.condition(settings, CpuEngine(n_threads), seed)
        draws = draws_at(found, problem.new, 3, np.random.default_rng(1))
        return np.column_stack([variance_at(found, problem.new), draws])

    one = sample(0, 1)
    np.testing.assert_array_equal(one, sample(0, 1))
    np.testing.assert_array_equal(one, sample(0, 3))
    assert not np.isclose(one[:, 0], sample(1, 1)[:, 0]).any()


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


def test_draws_of_the_prior_have_its_covariance():
    problem = make_problem(n=40, n_trees=11)  # more than are held at once
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    draws = draw_prior(forest, 4000, np.random.default_rng(0))
    assert_covariance(draws, np.zeros(40), problem.kernel())
    again = draw_prior(forest, 4000, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, again)


def test_draws_of_the_prior_at_equal_rows_are_equal():
    problem = make_problem(n=20)
    twice = replace(problem, X=np.repeat(problem.X, 2, axis=0))
    forest = build_forest(twice.codes, twice.orders, CpuEngine())
    draws = draw_prior(forest, 3, np.random.default_rng(0))
    np.testing.assert_allclose(draws[::2], draws[1::2], **VALUE)
    alone = replace(problem, X=problem.X[:1])
    one = draw_prior(
        build_forest(alone.codes, alone.orders, CpuEngine()), 4000, np.random.default_rng(0)
    )
    assert_covariance(one, np.zeros(1), alone.kernel())


@pytest.mark.usefixtures("tight")
def test_draws_have_the_posteriors_mean_and_covariance():
    problem = make_problem(n=60)
    found = problem.condition()
    new = np.vstack([problem.new[:12], problem.new[:1], problem.X[:3]])
    mean, cov = dense_posterior(found, problem.X, new)
    draws = draws_at(found, new, 1600, np.random.default_rng(0))
    assert draws.shape == (16, 1600)
    np.testing.assert_allclose(draws[0], draws[12], **SOLVED)  # the same row twice
    assert_covariance(draws, mean, cov)
