"""The smooth part, local noise, variances and extrapolation of the flagship."""

import pickle

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.base import clone

import triegp
from tolerances import ROUNDING, USUAL_SOLVE
from triegp import TrieGPRegressor
from triegp.smooth.kernel import KERNELS

QUICK = {"n_trees": 8, "max_iter": 40, "random_state": 0}


def smooth_rows(n, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2
    return X, y + noise * rng.standard_normal(n)


def steps(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.floor(4 * X[:, 0]) + np.floor(2 * X[:, 1]) + 0.05 * rng.standard_normal(n)


def uneven(n, seed=0):
    """Noise that grows with the second feature, and its deviation."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    deviation = 0.03 + 0.6 * X[:, 1] ** 2
    return X, np.sin(4 * X[:, 0]) + deviation * rng.standard_normal(n), deviation


def forest_of(model):
    return model.forests_[0].model


@pytest.fixture(scope="module")
def fitted():
    return TrieGPRegressor(**QUICK).fit(*smooth_rows(400))


# The smooth part


def test_data_decide_whether_there_is_a_smooth_part(fitted):
    assert forest_of(fitted).smooth is not None
    rng = np.random.default_rng(0)
    X = rng.random((1_200, 2))
    squares = np.floor(4 * X).sum(axis=1) % 2 + 0.05 * rng.standard_normal(1_200)
    chequered = TrieGPRegressor(n_trees=32, max_iter=60, random_state=0).fit(X, squares)
    assert forest_of(chequered).smooth is None


@pytest.mark.parametrize("smooth", [True, False])
def test_whoever_asks_for_a_smooth_part_gets_it(smooth):
    for rows in (smooth_rows(60), steps(60)):
        model = TrieGPRegressor(n_trees=4, max_iter=3, smooth=smooth, random_state=0).fit(*rows)
        assert (forest_of(model).smooth is not None) == smooth


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_learns(kernel):
    X, y = smooth_rows(200)
    new, true = smooth_rows(200, seed=1, noise=0.0)
    model = TrieGPRegressor(n_trees=4, max_iter=10, kernel=kernel, smooth=True, random_state=0)
    model.fit(X, y)
    assert forest_of(model).smooth.kernel.name == kernel
    inside = ~model.outside_box(new)
    assert np.sqrt(np.mean((model.predict(new[inside]) - true[inside]) ** 2)) < 0.1


def test_importances_count_the_smooth_part(fitted):
    found = fitted.importances_
    assert found.prior.sum() == pytest.approx(1.0, abs=ROUNDING)
    assert found.explained.sum() == pytest.approx(1.0, abs=ROUNDING)
    for whole, bits, smooth in (
        (found.prior, found.prior_by_bit, found.prior_smooth),
        (found.explained, found.explained_by_bit, found.explained_smooth),
    ):
        np.testing.assert_allclose(bits.sum(axis=1) + smooth, whole, rtol=ROUNDING)
    assert found.explained_smooth.sum() > 0.2
    kernel, trees = forest_of(fitted).smooth.kernel, forest_of(fitted).forest.tree_variance
    share = kernel.scale / (kernel.scale + trees)
    assert found.prior_smooth.sum() == pytest.approx(share, rel=1e-6)
    without = clone(fitted).set_params(smooth=False, max_iter=2).fit(*smooth_rows(60))
    assert not without.importances_.prior_smooth.any()
    assert not without.importances_.explained_smooth.any()


# Variances


def deviations(model, X):
    return model.predict(X, return_std=True, latent=True)[1]


def test_variances_are_chosen_after_the_fit(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 100)  # as with more rows
    model = pickle.loads(pickle.dumps(fitted))
    X, _ = smooth_rows(50, seed=1)
    X = X.clip(*np.array([smooth_rows(400)[0].min(axis=0), smooth_rows(400)[0].max(axis=0)]))
    near = deviations(model, X)
    exact = deviations(model.set_params(variance="exact"), X)
    assert not np.array_equal(near, exact)
    cov = model.predict(X, return_cov=True, latent=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), exact, rtol=USUAL_SOLVE)
    np.testing.assert_array_equal(deviations(model.set_params(variance="nearby"), X), near)
    model.save(tmp_path / "model")
    loaded = triegp.load(tmp_path / "model")
    np.testing.assert_array_equal(deviations(loaded, X), near)
    again = deviations(loaded.set_params(variance="exact"), X)
    np.testing.assert_allclose(again, exact, rtol=USUAL_SOLVE)
    again = deviations(pickle.loads(pickle.dumps(loaded)), X)
    np.testing.assert_allclose(again, exact, rtol=USUAL_SOLVE)
    with pytest.raises(ValueError, match="variance must be"):
        deviations(model.set_params(variance="guess"), X)
    assert "guess" in repr(model)


def test_a_row_is_predicted_alone_as_in_a_batch(fitted):
    X, _ = smooth_rows(40, seed=1)
    X = X.clip(0.02, 0.98)
    mean, std = fitted.predict(X, return_std=True)
    alone = [fitted.predict(X[[i]], return_std=True) for i in range(40)]
    np.testing.assert_allclose([a[0][0] for a in alone], mean, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose([a[1][0] for a in alone], std, rtol=ROUNDING)


def test_one_row_is_added(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    at = np.array([[0.5, 0.5]])
    mean, std = model.predict(at, return_std=True)
    model.partial_fit(at, mean + 0.2)
    again, less = model.predict(at, return_std=True, latent=True)
    assert mean[0] < again[0] < mean[0] + 0.2
    assert less[0] < std[0]


# Local noise


def test_the_deviation_follows_the_noise():
    X, y, _ = uneven(1500)
    new, _, deviation = uneven(400, seed=1)
    model = TrieGPRegressor(**QUICK).fit(X, y)
    inside = ~model.outside_box(new)
    found = model.predict(new[inside], return_std=True)[1]
    assert spearmanr(found, deviation[inside]).statistic > 0.85
    even = TrieGPRegressor(**QUICK, local_noise=False).fit(X, y)
    stage = even._stream.fitted[0].stages[0]
    assert stage.local is None
    assert stage.tails.factor.size > 1  # scale and tails are learned all the same
    _, y_new, _ = uneven(400, seed=1)
    better = model.log_density(new[inside], y_new[inside]).mean()
    assert better > even.log_density(new[inside], y_new[inside]).mean() + 0.1
    # The function is as uncertain with local noise as without.
    one, two = (deviations(m, new[inside]) for m in (model, even))
    raw = model.forests_[0].predict(
        model.forests_[0].read(new[inside], var=True), 0, var=True, latent=True
    )
    np.testing.assert_allclose(two, model.target_scale_[0] * raw.std(), rtol=ROUNDING)
    np.testing.assert_allclose(one, np.minimum(two, found), rtol=ROUNDING)


def test_even_noise_is_not_hurt():
    X, y = smooth_rows(1500, noise=0.3)
    new, y_new = smooth_rows(1000, seed=1, noise=0.3)
    local, even = (
        TrieGPRegressor(**QUICK, local_noise=flag).fit(X, y).log_density(new, y_new).mean()
        for flag in (True, False)
    )
    assert local > even - 0.01


# Outside the box


@pytest.mark.parametrize("variance", ["nearby", "exact"])
@pytest.mark.parametrize("calibrated", [True, False])
def test_deviations_grow_outside_to_that_of_y_at_least(variance, calibrated):
    X, y, _ = uneven(600)
    model = TrieGPRegressor(**QUICK, variance=variance, calibrated=calibrated).fit(X, y)
    assert forest_of(model).smooth is not None
    far = np.r_[0.0, np.geomspace(0.01, 30.0, 12)]
    with pytest.warns(UserWarning, match="smooth part goes on, and intervals widen"):
        model.predict([[9.0, 9.0]])
    for start, way in (([1.0, 0.2], [1, 0]), ([0.3, 1.0], [0, 1]), ([0.0, 0.0], [-1, -1])):
        out = np.array(start) + np.outer(far, way)
        for latent in (True, False):
            mean, std = model.predict(out, return_std=True, latent=latent)
            assert np.diff(std).min() > -1e-9
        assert std[-1] > 0.9 * y.std()
        if not calibrated:  # otherwise the unknown slope beyond the box is added
            assert std[-1] < 1.6 * y.std()
        assert mean[-1] == pytest.approx(y.mean(), abs=y.std())


def test_the_smooth_part_goes_on():
    X = np.linspace(0, 1, 200)[:, None]
    y = 3.0 * X[:, 0] + 0.01 * np.random.default_rng(0).standard_normal(200)
    options = {**QUICK, "n_trees": 1, "smooth": True, "calibrated": False}
    goes_on = TrieGPRegressor(**options).fit(X, y)
    ends = TrieGPRegressor(**options, outside="clip").fit(X, y)
    at = [[1.05]]
    with pytest.warns(UserWarning, match="outside the training box"):
        assert goes_on.predict(at)[0] > 3.06
    assert ends.predict(at)[0] == ends.predict([[1.0]])[0]


def test_without_a_smooth_part_means_stay_those_of_the_border():
    X, y = smooth_rows(200)
    model = TrieGPRegressor(n_trees=4, max_iter=3, smooth=False, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="means stay those of the border, and intervals widen"):
        mean, std = model.predict([[X[:, 0].max(), 0.5], [3.0, 0.5]], return_std=True)
    assert mean[0] == mean[1]
    assert std[1] > std[0]


# Results do not depend on these


def test_threads_and_clones_change_nothing():
    X, y, _ = uneven(450)
    one = TrieGPRegressor(n_trees=4, max_iter=4, n_jobs=1, random_state=0).fit(X, y)
    two = clone(one).set_params(n_jobs=2).fit(X, y)
    for a, b in zip(one.predict(X, return_std=True), two.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    assert two.get_params() | {"n_jobs": 1} == one.get_params()
