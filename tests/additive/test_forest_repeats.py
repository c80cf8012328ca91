"""Repeated rows of a forest: folded observations, and new observations at training rows."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    SMOOTH,
    covariance_at,
    dense_kernel,
    make_problem,
    mean_at,
    own_kernel,
    solve_tightly,
    solved,
    variance_at,
)
from tolerances import FITTED, GRADIENT, SOLVED, SQUARED_DISTANCES, VALUE
from triegp.additive.fitted import FittedForest
from triegp.additive.gradient import exact_gradient
from triegp.additive.model import run_variances
from triegp.additive.points import find_rows, read_points
from triegp.additive.variance import stand_apart
from triegp.engines import CpuEngine
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


def key_bits(found, X):
    """Key bits of rows in every tree."""
    pairs = zip(found.encoders, found.orders, strict=True)
    return [oracle.unpack_bits(encoder.encode(X), order.key_bits) for encoder, order in pairs]


def shared_with_others(found, X):
    """Per tree and row, the covariance with the row that shares most with it, (T, n)."""
    out = []
    for encoder, order in zip(found.encoders, found.orders, strict=True):
        among = dense_kernel((encoder,), (order,), X, X)
        np.fill_diagonal(among, 0.0)
        out.append(among.max(axis=1))
    return np.array(out)


def rows_by_hand(found, X, new):
    """The row that a new row coincides with in all trees, if that has a run; otherwise -1."""
    same = np.ones((len(new), len(X)), bool)
    alone = np.zeros(len(X), bool)
    for a, b in zip(key_bits(found, new), key_bits(found, X), strict=True):
        same &= (a[:, None] == b[None]).all(axis=2)
        alone |= (b[:, None] == b[None]).all(axis=2).sum(axis=1) == 1
    return np.array([next((i for i in np.flatnonzero(s) if alone[i]), -1) for s in same])


@pytest.mark.parametrize("precision", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_points_find_the_row_they_coincide_with(precision, seed):
    problem = make_problem(n=25, n_trees=3, precision=precision, seed=seed)
    found = problem.condition()
    new = np.vstack([problem.X, problem.new, problem.new + 5.0])
    points = read_points(found, new)
    assert points.inner.size == 55
    expected = rows_by_hand(found, problem.X, new[:55])
    np.testing.assert_array_equal(find_rows(found, points), expected)
    if precision == 4:
        assert (expected[:25] >= 0).any()
        assert (expected[25:] < 0).any()
    # Rows of several observations are not found.
    weight = np.where(np.arange(25) % 2, 3.0, 1.0)
    several = replace(found, rows=replace(found.rows, weight=weight))
    odd = (expected >= 0) & (expected % 2 == 1)
    np.testing.assert_array_equal(find_rows(several, points), np.where(odd, -1, expected))
    once = replace(found, rows=replace(found.rows, weight=weight, copies=np.ones(25)))
    np.testing.assert_array_equal(find_rows(once, points), expected)


def test_runs_are_what_a_row_shares_with_no_other():
    problem = make_problem(n=40, n_trees=3, precision=3)
    found = problem.condition()
    prior = np.diag(own_kernel(found, problem.X, problem.X))
    expected = prior - shared_with_others(found, problem.X).sum(axis=0)
    np.testing.assert_allclose(run_variances(found), expected, **VALUE)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_a_new_observation_stands_apart_from_its_row(weighted, smooth):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=weighted, smooth=smooth)
    if weighted:
        problem = replace(problem, rows=replace(problem.rows, copies=np.ones(40)))
    found = problem.condition()
    new = np.vstack([problem.new[:5], problem.X[10:20], problem.new[:2] + 5.0])
    points = read_points(found, new, sort=True)
    apart = stand_apart(found, points, var=True)
    rows = find_rows(found, points)
    near = np.flatnonzero(rows >= 0)
    assert near.size >= 5
    if smooth:  # rows that share all cells but differ do not coincide
        assert near.min() >= 5
    np.testing.assert_array_equal(apart.points, near)
    cross = own_kernel(found, problem.X, new[near])
    shared = shared_with_others(found, problem.X).sum(axis=0)
    cross[rows[near], np.arange(near.size)] = shared[rows[near]] + found.forest.prior_variance
    cross[rows[near], np.arange(near.size)] -= found.forest.tree_variance
    mean, cov = oracle.posterior(
        own_kernel(found, problem.X, problem.X),
        found.variance,
        cross,
        own_kernel(found, new[near], new[near]),
        found.rows.y,
    )
    np.testing.assert_allclose(apart.mean, mean, **SOLVED)
    np.testing.assert_allclose(apart.var, np.diag(cov), **SOLVED)
    np.testing.assert_allclose(apart.var - apart.extra, variance_at(found, new)[near], **SOLVED)
    whole = FittedForest(found, (), 0, False, variance="exact")
    told = whole.predict(points, 0, var=True, latent=True)
    expected_mean, expected_var = mean_at(found, new), variance_at(found, new)
    expected_mean[near], expected_var[near] = mean, np.diag(cov)
    np.testing.assert_allclose(told.mean(), expected_mean, **SOLVED)
    np.testing.assert_allclose(told.var(), expected_var, **SOLVED)
    joint_mean, joint = whole.predict_covariance(points, 0, latent=True)
    np.testing.assert_allclose(joint_mean, expected_mean, **SOLVED)
    off = ~np.eye(len(new), dtype=bool)
    np.testing.assert_allclose(joint[off], covariance_at(found, new)[off], **SOLVED)
    np.testing.assert_allclose(np.diag(joint), expected_var, **SOLVED)
    older = replace(whole, apart=False).predict(points, 0, var=True, latent=True)
    np.testing.assert_array_equal(older.mean(), mean_at(found, new))


def folded_problem(n=30, smooth=None):
    """A problem with repeated measurements: unfolded and folded."""
    problem = make_problem(n=n, n_trees=3, smooth=smooth)
    rng = np.random.default_rng(5)
    source = np.repeat(np.arange(n), 1 + rng.integers(0, 3, n))
    y, total = rng.standard_normal(source.size), np.bincount(source).astype(float)
    mean = np.bincount(source, y) / total
    scatter = np.bincount(source, np.square(y - mean[source]))
    few = replace(problem, rows=Rows(mean, weight=total, copies=total, scatter=scatter))
    return few, replace(problem, X=problem.X[source], rows=Rows(y)), source


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.usefixtures("tight")
def test_folded_rows_are_their_observations(smooth):
    close = solved(smooth)
    few, many, _ = folded_problem(smooth=smooth)
    one, two = few.condition(), many.condition()
    assert one.noise == pytest.approx(two.noise, rel=FITTED)
    np.testing.assert_allclose(mean_at(one, few.new), mean_at(two, few.new), **close)
    np.testing.assert_allclose(variance_at(one, few.new), variance_at(two, few.new), **close)
    evidence = [FittedForest(part, (), 0, False).log_evidence(0) for part in (one, two)]
    assert evidence[0] == pytest.approx(evidence[1], rel=FITTED)
    dense = own_kernel(two, many.X, many.X) + np.diag(two.variance)
    assert evidence[0] == pytest.approx(-oracle.nll(dense, many.rows.y), rel=FITTED)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.usefixtures("tight")
def test_an_observation_is_predicted_from_the_others_at_its_row(smooth):
    few, many, source = folded_problem(smooth=smooth)
    one, two = FittedForest(few.condition(), (), 0, False, False), many.condition()
    seen = Observations(source, many.rows.y[:, None], None, False)
    found = one.leave_one_out(0, seen)
    dense = own_kernel(two, many.X, many.X)
    mean, var = oracle.leave_one_out(dense, two.variance, many.rows.y)
    np.testing.assert_allclose(found.mean(), mean, **SOLVED)
    np.testing.assert_allclose(found.var(), var + two.new_noise, **SOLVED)


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_the_gradient_of_folded_rows_is_that_of_their_observations(smooth):
    few, many, _ = folded_problem(smooth=smooth)
    (nll, one), (other_nll, two) = (
        exact_gradient(problem.data, problem.parameters, CpuEngine()) for problem in (few, many)
    )
    assert nll == pytest.approx(other_nll, rel=SQUARED_DISTANCES)
    np.testing.assert_allclose(one.noise, two.noise, **GRADIENT)
    np.testing.assert_allclose(one.log_scale, two.log_scale, **GRADIENT)
    for a, b in zip(one.phi, two.phi, strict=True):
        np.testing.assert_allclose(a, b, **GRADIENT)
    if smooth:
        np.testing.assert_allclose(one.log_lengthscale, two.log_lengthscale, **GRADIENT)
        np.testing.assert_allclose(one.log_smooth, two.log_smooth, **GRADIENT)
