"""One tree, many trees, the same tree again; few rows and almost no noise."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    SMOOTH,
    covariance_at,
    dense_posterior,
    make_problem,
    mean_at,
    solve_tightly,
    variance_at,
)
from tolerances import CHAINED, HARD_SOLVE, HARD_VARIANCE, SOLVED, VALUE
from triegp.additive import NotConverged, model
from triegp.additive.model import run_variances
from triegp.additive.start import Parameters
from triegp.additive.variance import leave_out
from triegp.tree import build_trie, condition, leave_one_out, predict
from triegp.tree.posterior import run_variance
from triegp.tree.rows import Rows


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_one_tree_is_that_tree(weighted):
    problem = make_problem(n=100, n_trees=1, weighted=weighted, known=weighted)
    found = problem.condition()
    codes, order = problem.codes[0], found.orders[0]
    alone = condition(
        build_trie(codes, order),
        codes,
        order,
        problem.rows.y,
        found.noise,
        known_noise=problem.rows.known_noise,
        sample_weight=problem.rows.weight,
    )
    far = np.vstack([problem.new, problem.new[:1] + 5.0])
    there = predict(alone, problem.encoders[0].encode(far))
    np.testing.assert_allclose(mean_at(found, far), there.mean, **SOLVED)
    np.testing.assert_allclose(variance_at(found, problem.new), there.var[:-1], **SOLVED)
    # Outside the box an observation has the variance of y, 1, whatever the prior of the tree.
    assert variance_at(found, far)[-1] == pytest.approx(max(1.0 - found.new_noise, 0.0))
    left = leave_one_out(alone, whole=True)
    mean, var = leave_out(found)
    np.testing.assert_allclose(mean, left.mean, **SOLVED)
    np.testing.assert_allclose(var, left.var, **SOLVED)
    np.testing.assert_allclose(run_variances(found), run_variance(alone), **VALUE)
    assert found.new_noise == pytest.approx(alone.new_noise)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.usefixtures("tight")
def test_the_order_of_the_trees_changes_nothing(smooth):
    problem = make_problem(n_trees=5, smooth=smooth)
    turn = np.array([3, 1, 4, 0, 2])
    start = problem.parameters
    other = replace(
        problem,
        encoders=tuple(problem.encoders[t] for t in turn),
        parameters=Parameters(
            tuple(start.phi[t] for t in turn),
            start.log_scale[turn],
            start.log_noise,
            start.smooth,
        ),
    )
    one, two = problem.condition(), other.condition()
    assert_same(one, two, problem.new)


def nearby_at(found, new):
    return variance_at(found, new, "nearby")


def assert_same(one, two, new):
    """The same predictions, to rounding."""
    np.testing.assert_allclose(one.alpha, two.alpha, **SOLVED)
    for work in (mean_at, variance_at, covariance_at, nearby_at):
        np.testing.assert_allclose(work(one, new), work(two, new), **SOLVED)
    for a, b in zip(leave_out(one), leave_out(two), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.usefixtures("tight")
def test_a_tree_twice_at_half_its_scale_is_that_tree():
    problem = make_problem()
    start = problem.parameters
    twice = Parameters(start.phi * 2, np.tile(start.log_scale - np.log(2.0), 2), start.log_noise)
    other = replace(problem, encoders=problem.encoders * 2, parameters=twice)
    assert_same(problem.condition(), other.condition(), problem.new)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9, 1e-13])
@pytest.mark.parametrize("rank", [20, 400])
def test_almost_no_noise_and_equal_rows_give_the_answer_or_a_warning(
    noise, rank, smooth, monkeypatch
):
    monkeypatch.setattr(model, "RANK", rank)
    problem = make_problem(n=60, n_trees=3, smooth=smooth)
    twice = np.repeat(np.arange(60), 2)
    start = problem.parameters
    steep = tuple(8.0 * phi for phi in start.phi)  # next to no nuggets either
    problem = replace(
        problem,
        X=problem.X[twice],
        rows=Rows(problem.rows.y[twice], None, None),
        parameters=replace(start, phi=steep, log_noise=float(np.log(noise))),
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NotConverged)
        found = problem.condition()
        mean, var = mean_at(found, problem.new), variance_at(found, problem.new)
        left_mean, left_var = leave_out(found)
    assert np.isfinite([mean, var]).all()
    assert (var >= 0).all()
    assert np.isfinite([left_mean, left_var]).all()
    assert (left_var >= 0).all()
    if found.residual > model.tolerance_for(found.rows):
        assert any(issubclass(w.category, NotConverged) for w in told)
        return
    dense, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean, dense, atol=HARD_SOLVE * problem.rows.y.std())
    if not told:
        bar = HARD_SOLVE * found.forest.prior_variance
        np.testing.assert_allclose(var, np.diag(cov), rtol=HARD_VARIANCE, atol=bar)


@pytest.mark.parametrize("smooth", SMOOTH)
def test_one_row(smooth):
    problem = make_problem(smooth=smooth)
    one = replace(problem, X=problem.X[:1], rows=Rows(problem.rows.y[:1], None, None))
    found = one.condition()
    _, cov = dense_posterior(found, one.X, problem.new)
    for kind in ("exact", "nearby"):
        var = variance_at(found, problem.new, kind)
        np.testing.assert_allclose(var, np.diag(cov), **SOLVED)
    mean, var = leave_out(found)
    np.testing.assert_allclose(mean, 0.0, atol=CHAINED)
    np.testing.assert_allclose(var, found.forest.prior_variance, rtol=CHAINED)
