"""The mean, scale and box of a conditioned model, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    SMOOTH,
    assert_sampled,
    copies_of,
    covariance_at,
    dense_posterior,
    draws_at,
    make_problem,
    mean_at,
    own_kernel,
    solve_tightly,
    solved,
    variance_at,
)
from tolerances import FITTED, SOLVED
from triegp.additive.settings import Settings
from triegp.additive.start import rescale, row_noise
from triegp.additive.variance import leave_out
from triegp.smooth import KERNELS
from triegp.tree.rows import Rows


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize(
    ("weighted", "known"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.usefixtures("tight")
def test_the_mean_is_the_dense_one(weighted, known, smooth):
    close = solved(smooth)
    problem = make_problem(n=120, d=3, n_trees=5, weighted=weighted, known=known, smooth=smooth)
    found = problem.condition()
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).noise
    variance = noise if problem.rows.weight is None else noise / problem.rows.weight
    dense = problem.kernel() + np.diag(variance)
    alpha = np.linalg.solve(dense, problem.rows.y)
    factor = 1.0 if known else problem.rows.y @ alpha / copies_of(problem.rows).sum()
    mean = problem.kernel(problem.new, problem.X) @ alpha
    np.testing.assert_allclose(mean_at(found, problem.new), mean, **close)
    np.testing.assert_allclose(mean_at(found, problem.X), problem.kernel() @ alpha, **close)
    np.testing.assert_allclose(found.alpha, alpha / factor, **close)
    np.testing.assert_allclose(found.variance, factor * variance, **close)
    assert found.noise == pytest.approx(factor * problem.parameters.noise, rel=close["rtol"])
    unknown = replace(problem.rows, known_noise=None)
    shared = row_noise(unknown, problem.orders, problem.parameters.noise).noise[0]
    assert found.new_noise == pytest.approx(factor * shared)
    assert found.residual <= 1e-11


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.usefixtures("tight")
def test_the_mean_of_every_kernel_is_the_dense_one(kernel):
    problem = make_problem(n=60, smooth="inducing", kernel=kernel)
    found = problem.condition()
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, **SOLVED)
    np.testing.assert_allclose(variance_at(found, problem.new), np.diag(cov), **SOLVED)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.usefixtures("tight")
def test_the_scale_is_the_most_likely_one(smooth):
    problem = make_problem(smooth=smooth)
    found = problem.condition()
    factor = found.noise / problem.parameters.noise
    at = [problem.nll(rescale(problem.parameters, factor * s)) for s in (0.99, 1.0, 1.01)]
    assert at[1] == min(at)
    for a, b in zip(found.orders, problem.orders, strict=True):
        assert a.scale == pytest.approx(factor * b.scale)
        np.testing.assert_array_equal(a.bits, b.bits)
    if smooth:
        before, after = problem.parameters.smooth, found.smooth.kernel
        assert after.scale == pytest.approx(factor * before.scale)
        np.testing.assert_array_equal(after.lengthscale, before.lengthscale)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.usefixtures("tight")
def test_an_integer_weight_is_that_many_copies(smooth):
    close = solved(smooth)
    problem = make_problem(n=50, weighted=True, smooth=smooth)
    copies = np.repeat(np.arange(50), copies_of(problem.rows))
    rows = Rows(problem.rows.y[copies], None, None)
    other = replace(problem, X=problem.X[copies], rows=rows)
    one, two = problem.condition(), other.condition()
    np.testing.assert_allclose(mean_at(one, problem.new), mean_at(two, problem.new), **close)
    assert one.noise == pytest.approx(two.noise, rel=FITTED)
    np.testing.assert_allclose(
        variance_at(one, problem.new), variance_at(two, problem.new), **close
    )
    # A row is left out with its copies: of the copies, all that share its X.
    mean, var = leave_out(one)
    for i in (0, int(np.argmax(problem.rows.weight))):
        rest = copies != i
        left = oracle.posterior(
            own_kernel(two, other.X[rest], other.X[rest]),
            two.variance[rest],
            own_kernel(two, other.X[rest], problem.X[[i]]),
            own_kernel(two, problem.X[[i]], problem.X[[i]]),
            rows.y[rest],
        )
        np.testing.assert_allclose(mean[i], left[0][0], **close)
        np.testing.assert_allclose(var[i], left[1][0, 0], **close)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.usefixtures("tight")
def test_rows_outside_the_box_are_unrelated(smooth):
    problem = make_problem(smooth=smooth)
    found = problem.condition()
    # An observation there has the variance of y, 1.
    prior = max(1.0 - found.new_noise, 0.0)
    far = np.vstack([problem.new[:3], problem.new[3:6] + 5.0, problem.new[6:8], [[0.5, -0.1]]])
    out = np.array([3, 4, 5, 8])
    inner = np.setdiff1d(np.arange(9), out)
    mean, cov = dense_posterior(found, problem.X, far[inner])
    np.testing.assert_allclose(mean_at(found, far)[inner], mean, **SOLVED)
    np.testing.assert_array_equal(mean_at(found, far)[out], 0.0)
    for kind in ("exact", "nearby"):
        var = variance_at(found, far, kind)
        np.testing.assert_array_equal(var[out], prior)
        assert (var[inner] < found.forest.prior_variance).all()
    whole = covariance_at(found, far)
    np.testing.assert_allclose(whole[np.ix_(inner, inner)], cov, **SOLVED)
    np.testing.assert_array_equal(whole[out][:, out], prior * np.eye(4))
    assert not whole[np.ix_(inner, out)].any()
    draws = draws_at(found, far, 400, np.random.default_rng(0))
    assert_sampled(np.mean(np.square(draws[out]), axis=1), prior, 400)
    only = far[out]  # nothing left to look up
    np.testing.assert_array_equal(mean_at(found, only), 0.0)
    np.testing.assert_array_equal(variance_at(found, only), prior)
    np.testing.assert_array_equal(covariance_at(found, only), prior * np.eye(4))
    assert draws_at(found, only, 2, np.random.default_rng(0)).shape == (4, 2)


@pytest.mark.parametrize("smooth", [None, "inducing"])
def test_rows_beyond_the_box_are_moved_to_its_border_where_asked(smooth):
    problem = make_problem(outside="clip", smooth=smooth)
    found = problem.condition(Settings(goes_on=False))
    border = np.clip(problem.new + 0.7, problem.X.min(axis=0), problem.X.max(axis=0))
    np.testing.assert_array_equal(mean_at(found, problem.new + 0.7), mean_at(found, border))
