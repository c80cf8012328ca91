"""What does not matter, and what is odd: order, copies, little noise, features of all kinds."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    covariance_at,
    dense_kernel,
    dense_smooth,
    draws_at,
    make_problem,
    mean_at,
    solve_tightly,
    variance_at,
)
from tolerances import FITTED, SAMPLED, SOLVED, USUAL_SOLVE
from triegp import BitEncoder, TrieGPRegressor
from triegp.additive.start import Parameters, features_of
from triegp.smooth import Kernel
from triegp.smooth.coordinates import fit_coordinates

NOISE = 0.1
KINDS = [True, False]


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)
    monkeypatch.setattr("triegp.additive.nearby.SINGLE_NOISE", np.inf)  # factors in float64


def small(**options):
    given = {"n_trees": 6, "max_iter": 12, "calibrated": False, "random_state": 0, "n_jobs": 1}
    return TrieGPRegressor(**(given | options))


def surface(X):
    return np.sin(5.0 * X[:, 0]) + X[:, -1]


def sample(n=150, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, surface(X) + NOISE * rng.standard_normal(n), rng.random((40, d))


# Order


@pytest.mark.parametrize("smooth", KINDS)
def test_the_order_of_the_rows_does_not_matter(smooth):
    X, y, new = sample()
    turn = np.random.default_rng(1).permutation(150)
    for variance in ("nearby", "exact"):
        one = small(smooth=smooth, variance=variance).fit(X, y)
        two = small(smooth=smooth, variance=variance).fit(X[turn], y[turn])
        pairs = zip(one.predict(new, True), two.predict(new, True), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, atol=USUAL_SOLVE)


def by_value(X):
    """Coordinates without ranks."""
    empty = np.empty((0, 257))
    return replace(fit_coordinates(X), ranked=np.empty(0, np.int64), knots=empty, ranks=empty)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("tight")
def test_the_order_of_the_features_does_not_matter(smooth):
    """With grids, orders and lengthscales that move along."""
    problem = make_problem(n=80, d=3, smooth="inducing" if smooth else None)
    turn = np.array([2, 0, 1])
    X = problem.X[:, turn]
    box = BitEncoder(precision=4, outside="unrelated").fit(X)
    encoders = tuple(box.with_shift(own.shift_[turn]) for own in problem.encoders)
    start, kernel = problem.parameters, problem.parameters.smooth
    phi = tuple(
        np.concatenate([own[features == j] for j in turn])
        for own, features in zip(start.phi, problem.features, strict=True)
    )
    plain = replace(problem, coordinates=by_value(problem.X))
    if kernel is not None:
        length = kernel.lengthscale[:3]
        plain = replace(
            plain, parameters=replace(start, smooth=Kernel(kernel.name, length, kernel.scale))
        )
        kernel = Kernel(kernel.name, length[turn], kernel.scale)
    other = replace(
        plain,
        X=X,
        encoders=encoders,
        parameters=Parameters(phi, start.log_scale, start.log_noise, kernel),
        coordinates=by_value(X),
        new=problem.new[:, turn],
    )
    np.testing.assert_array_equal(features_of(encoders[0]), problem.features[0])
    one, two = plain.condition(), other.condition()
    np.testing.assert_allclose(mean_at(one, plain.new), mean_at(two, other.new), **SOLVED)
    for kind in ("nearby", "exact"):
        a, b = (variance_at(*given, kind) for given in ((one, plain.new), (two, other.new)))
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.parametrize("smooth", KINDS)
def test_fits_to_features_in_another_order_agree(smooth):
    """Their random grids differ."""
    X, y, new = sample(300)
    turn = np.array([2, 0, 1])
    model = small(smooth=smooth, n_trees=16, max_iter=40)
    one, one_std = model.fit(X, y).predict(new, True)
    two, two_std = model.fit(X[:, turn], y).predict(new[:, turn], True)
    assert np.sqrt(np.mean(np.square(one - two))) < (0.5 if smooth else 2.0) * NOISE
    assert np.abs(np.log(one_std / two_std)).mean() < 0.3


# Copies


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("smooth", KINDS)
def test_rows_with_two_targets_are_rows_with_their_mean(smooth):
    """Folded by the estimator: twins that differ enter as one row of weight 2."""
    X, y, new = sample(80)
    twice = np.vstack([X, X])
    both = np.append(y + 0.1, y - 0.1)
    model = small(smooth=smooth).fit(twice, both)
    assert model.forests_[0].model.forest.n_rows == 80
    mean, std = model.predict(new, True)
    assert np.isfinite([mean, std]).all()
    assert (std > 0).all()
    rest = np.abs(model.predict(X) - y)
    assert np.median(rest) < 3.0 * NOISE


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("smooth", KINDS)
def test_almost_equal_rows(smooth):
    X, y, new = sample(80)
    model = small(smooth=smooth).fit(np.vstack([X, X + 1e-9]), np.append(y, y))
    for variance in ("nearby", "exact"):
        model.set_params(variance=variance)
        mean, std = model.predict(np.vstack([new, X]), True)
        assert np.isfinite([mean, std]).all()
        assert (std > 0).all()


# Noise


@pytest.mark.parametrize("smooth", KINDS)
def test_noise_near_zero(smooth):
    rng = np.random.default_rng(0)
    X, new = rng.random((200, 2)), 0.1 + 0.8 * rng.random((50, 2))
    model = small(smooth=smooth, max_iter=60, n_trees=8).fit(X, np.sin(3.0 * X[:, 0]))
    mean, std = model.predict(new, True)
    error = np.abs(mean - np.sin(3.0 * new[:, 0]))
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.sqrt(np.mean(np.square(error))) < (0.01 if smooth else 0.1)
    assert np.mean(error < 3.0 * std) > 0.9


# Features


@pytest.mark.parametrize("smooth", KINDS)
def test_constant_features_do_not_matter(smooth):
    X, y, new = sample(120, 2)
    wide, wide_new = (np.column_stack([part, np.full(len(part), 7.0)]) for part in (X, new))
    model = small(smooth=smooth).fit(wide, y)
    assert np.isfinite(model.predict(wide_new, True)).all()
    found = model.forests_[0].model
    assert found.coordinates.feature_of.max() == 1
    assert np.corrcoef(model.predict(wide), y)[0, 1] > 0.9


def test_only_constant_features():
    y = np.random.default_rng(0).standard_normal(50)
    model = small(smooth=True).fit(np.ones((50, 3)), y)
    mean, std = model.predict(np.ones((2, 3)), True)
    np.testing.assert_allclose(mean, y.mean(), atol=0.3)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("smooth", KINDS)
def test_one_feature(smooth):
    rng = np.random.default_rng(0)
    X = rng.random((150, 1))
    model = small(smooth=smooth, n_trees=16, max_iter=40).fit(X, np.sin(6.0 * X[:, 0]))
    new = np.linspace(0.05, 0.95, 40)[:, None]
    mean, std = model.predict(new, True)
    assert np.abs(mean - np.sin(6.0 * new[:, 0])).max() < 0.3
    assert (std > 0).all()


@pytest.mark.parametrize("smooth", KINDS)
def test_more_features_than_rows(smooth):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 60))
    y = X[:, 0] + 0.1 * rng.standard_normal(30)
    model = small(smooth=smooth, precision=3).fit(X, y)
    for variance in ("nearby", "exact"):
        mean, std = model.set_params(variance=variance).predict(rng.random((10, 60)), True)
        assert np.isfinite([mean, std]).all()
        assert (std > 0).all()
        assert (std < 2.0 * y.std()).all()


@pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning")
def test_few_rows():
    for n in (1, 2, 3):
        X, y, new = sample(n)
        mean, std = small().fit(X, y).predict(new, True)
        assert np.isfinite([mean, std]).all()


# Outside the box


def ray(problem, n=40, length=8.0):
    """From inside the box to far outside, away from all rows."""
    return 0.5 + np.linspace(0.0, length, n)[:, None] * np.ones(problem.X.shape[1])


def beyond_problem(smooth="inducing"):
    """Known noise, so that the scale stays: the prior variance of f is more than 1."""
    return make_problem(n=120, known=True, outside="clip", smooth=smooth)


def dense_beyond(problem, found, new):
    """Mean and variance: the smooth part goes on, trees are read at the border and fade."""
    X, kernel, places = problem.X, found.smooth.kernel, found.coordinates
    near = np.clip(new, X.min(axis=0), X.max(axis=0))
    fade = np.array(
        [
            dense_smooth(kernel, places, a[None], b[None])[0, 0]
            for a, b in zip(new, near, strict=True)
        ]
    )
    fade /= kernel.scale
    trees = [dense_kernel(found.encoders, found.orders, A, B) for A, B in ((X, X), (X, near))]
    cross = fade * trees[1] + dense_smooth(kernel, places, X, new)
    among = trees[0] + dense_smooth(kernel, places, X, X)
    own = found.forest.prior_variance * np.eye(len(new))
    mean, cov = oracle.posterior(among, found.rows.variance, cross, own, found.rows.y)
    return mean, np.diag(cov), fade


@pytest.mark.parametrize("smooth", ["inducing", "dense"])
@pytest.mark.usefixtures("tight")
def test_beyond_the_box_trees_fade_and_the_smooth_part_goes_on(smooth):
    problem = beyond_problem(smooth)
    found = problem.condition()
    assert found.forest.prior_variance > 1.0
    new = np.vstack([ray(problem), [[0.5, 1.4], [-0.3, 0.2], [2.0, -1.0]]])
    mean, var, fade = dense_beyond(problem, found, new)
    assert fade[0] == 1.0
    np.testing.assert_allclose(mean_at(found, new), mean, **SOLVED)
    for kind in ("nearby", "exact"):
        np.testing.assert_allclose(variance_at(found, new, kind), var, **SOLVED)
    np.testing.assert_allclose(np.diag(covariance_at(found, new)), var, **SOLVED)
    draws = draws_at(found, new, 400, np.random.default_rng(0)) - mean[:, None]
    error = (np.mean(np.square(draws), axis=1) / var - 1.0) / np.sqrt(2.0 / 400)
    assert np.abs(error).max() < SAMPLED["max"]


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52", "rbf"])
def test_far_away_there_is_the_prior(kernel):
    problem = make_problem(n=120, known=True, outside="clip", smooth="inducing", kernel=kernel)
    found = problem.condition()
    new = ray(problem, length=60.0)
    mean = mean_at(found, new)
    assert abs(mean[-1]) < FITTED
    for kind in ("nearby", "exact"):
        var = variance_at(found, new, kind)
        outside = (new > problem.X.max(axis=0)).all(axis=1)
        assert (np.diff(var[outside]) > -FITTED).all()
        assert var[-1] == pytest.approx(found.forest.prior_variance, rel=1e-4)
        assert var[0] < 0.5 * var[-1]


@pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning")
@pytest.mark.parametrize("smooth", KINDS)
def test_deviations_of_a_fit_grow_along_a_ray(smooth):
    X, y, _ = sample(200, 2)
    model = small(smooth=smooth, max_iter=30, calibrated=True).fit(X, y)
    steps = 0.5 + np.linspace(0.6, 20.0, 60)[:, None] * np.ones(2)
    inside = model.predict(np.full((1, 2), 0.5), return_std=True)[1][0]
    for variance in ("nearby", "exact"):
        model.set_params(variance=variance)
        mean, std = model.predict(steps, return_std=True)
        assert np.isfinite(mean).all()
        assert (np.diff(std) > -USUAL_SOLVE * std[:-1]).all()
        assert std[-1] > 1.5 * inside
    if smooth:  # far away the mean is that of the targets
        assert mean[-1] == pytest.approx(y.mean(), abs=0.2 * y.std())
