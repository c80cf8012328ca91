"""Layers together: each route to a number agrees with the parts that it is made of."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from triegp import TrieGPRegressor, load
from triegp.calibration.model import base_of
from triegp.layers.layered import Layered

N = 1_200


@pytest.fixture(autouse=True, scope="module")
def few_rows():
    """Layers from 600 rows on, of which 450 at most are for the base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triegp.estimators.trie_regressor.MOST_ROWS", 600)
        patch.setattr("triegp.layers.train.BASE_ROWS", 450)
        patch.setattr("triegp.layers.train.COMPARED_ROWS", 300)
        yield


def draw(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, 5 + np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def make(**given):
    return TrieGPRegressor(**{"n_trees": 8, "max_iter": 8, "random_state": 0} | given)


@pytest.fixture(scope="module")
def model(few_rows):
    return make().fit(*draw())


def layered(model):
    return base_of(model._stream.fitted[0])


def test_rows_are_divided_between_base_and_rest(model):
    found = layered(model)
    assert isinstance(found, Layered)
    assert (found.n_base, found.base.n_rows, found.rest.n_rows) == (450, 450, N - 450)
    assert model.n_rows_ == N
    assert model.forests_[0].n_rows == 450
    y = found.observed(0)[0] * model.target_scale_ + model.target_mean_
    np.testing.assert_allclose(np.sort(y), np.sort(draw()[1]), rtol=1e-12)


def test_calibration_learns_from_rows_that_the_base_has_not_seen(model):
    assert (layered(model).residuals(0).rows >= 450).all()


def test_mean_is_the_sum_of_the_layers(model):
    X, _ = draw(50, 1)
    found = layered(model)
    base, rest = found.base, found.rest
    effects = found.below.effects.at(X)[:, 0]
    trees = base.predict(base.read(X, var=False), 0, var=False, latent=True).mean()
    above = rest.predict(rest.read(X, var=False), 0, var=False, latent=True).mean()
    total = effects + found.below.gain[0] * trees + found.scale[0] * above
    expected = model.target_mean_[0] + model.target_scale_[0] * total
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12)


def test_a_row_does_not_depend_on_the_others(model):
    X = draw(70, 1)[0].clip(0.01, 0.99)  # inside the box
    together = np.stack(model.predict(X, return_std=True))
    alone = np.concatenate([np.stack(model.predict(row[None], return_std=True)) for row in X], 1)
    np.testing.assert_array_equal(alone, together)


def test_it_is_accurate_and_calibrated(model):
    X, y = draw(2_000, 1)
    truth = 5 + np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2]
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.06
    low, high = model.predict_interval(X, coverage=0.9).T
    assert 0.84 < np.mean((low <= y) & (y <= high)) < 0.95


def test_order_of_rows_and_rows_of_weight_0_change_nothing(model):
    X, y = draw()
    some, _ = draw(50, 1)
    mixed = np.random.default_rng(0).permutation(N)
    other = make().fit(X[mixed], y[mixed])
    np.testing.assert_allclose(other.predict(some), model.predict(some), rtol=1e-9)
    X2, y2 = draw(40, 9)
    weight = np.append(np.ones(N), np.zeros(40))
    third = make().fit(np.concatenate([X, X2]), np.append(y, y2), sample_weight=weight)
    np.testing.assert_allclose(third.predict(some), model.predict(some), rtol=1e-9)


def test_units_of_the_targets_do_not_matter(model):
    X, y = draw()
    some, _ = draw(50, 1)
    other = make().fit(X, 1e3 * y - 7)
    mean, std = model.predict(some, return_std=True)
    scaled, wide = other.predict(some, return_std=True)
    np.testing.assert_allclose(scaled, 1e3 * mean - 7, rtol=1e-6)
    np.testing.assert_allclose(wide, 1e3 * std, rtol=1e-4)


def test_leave_one_out_is_that_of_the_layer_of_each_row(model):
    found = layered(model)
    left = found.leave_one_out(0)
    base, rest = found.base.leave_one_out(0), found.rest.leave_one_out(0)
    np.testing.assert_allclose(left.mean()[:450], base.mean() + found.known[:450, 0], rtol=1e-12)
    above = found.scale[0] * rest.mean() + found.known[450:, 0]
    np.testing.assert_allclose(left.mean()[450:], above, rtol=1e-12)
    np.testing.assert_allclose(left.var()[450:], found.scale[0] ** 2 * rest.var(), rtol=1e-12)
    mean, std = model.loo_predict()
    y = draw()[1]
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert 0.08 < np.sqrt(np.mean((mean - y) ** 2)) < 0.2


def test_added_rows_are_those_of_the_rest(model):
    X, y = draw()
    more, targets = draw(30, 3)
    grown = make(refit=False).fit(X, y).partial_fit(more, targets)
    found = layered(grown)  # they wait
    grown.predict(more)
    found = layered(grown)
    assert (found.n_rows, found.base.n_rows) == (N + 30, 450)
    before = model.predict(more)
    after = grown.predict(more)
    assert np.mean((after - targets) ** 2) < np.mean((before - targets) ** 2)


def test_files_and_pickles_keep_all_bits(model, tmp_path):
    X, _ = draw(60, 1)
    expected = np.stack(model.predict(X, return_std=True))
    model.save(tmp_path / "model.triegp", training_data=True)
    loaded = load(tmp_path / "model.triegp")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(np.stack(other.predict(X, return_std=True)), expected)
        assert other.loo_score_ == model.loo_score_
    assert layered(loaded).n_base == 450


def test_draws_have_the_moments_of_predictions(model):
    X = np.concatenate([draw(12, 1)[0], [[1.6, 0.5, 0.5]]])  # the last is outside the box
    with pytest.warns(UserWarning, match="outside the training box"):
        mean, std = model.predict(X, return_std=True, latent=True)
    draws = model.sample_y(X, 4_000, random_state=0, latent=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * std.max() / 4_000**0.5)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.15)
    cov = model.predict(X, return_cov=True, latent=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), draws.std(axis=1), rtol=0.15)


def test_intervals_are_wide_where_there_are_no_rows():
    rng = np.random.default_rng(0)
    X = rng.random((4_000, 2))
    X = X[np.abs(X - 0.5).max(axis=1) > 0.25][:2_400]  # a hole in the middle
    y = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1])  # no noise
    model = make(n_trees=16, max_iter=20).fit(X, y)
    inside = 0.5 + 0.15 * (2 * rng.random((400, 2)) - 1)
    truth = np.sin(5 * inside[:, 0]) * np.cos(4 * inside[:, 1])
    low, high = model.predict_interval(inside, coverage=0.9).T
    assert np.mean((low <= truth) & (truth <= high)) > 0.8


def test_several_targets():
    X, y = draw()
    Y = np.column_stack([y, -y + X[:, 2]])
    for multi_target in ("own", "shared"):
        model = make(multi_target=multi_target).fit(X, Y)
        mean, std = model.predict(X[:20], return_std=True)
        assert mean.shape == std.shape == (20, 2)
        assert np.sqrt(np.mean((model.predict(X) - Y) ** 2)) < 0.15
        assert model.loo_predict()[0].shape == (N, 2)


def test_repeated_observations_and_weights():
    X, y = draw()
    rng = np.random.default_rng(5)
    X, y = np.concatenate([X, X[:300]]), np.append(y, y[:300] + 0.1 * rng.normal(size=300))
    model = make().fit(X, y, sample_weight=rng.integers(1, 3, y.size))
    mean, std = model.loo_predict()
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_importances_sum_to_one_and_find_what_matters(model):
    shares = model.feature_importances_
    assert shares.sum() == pytest.approx(1.0, abs=1e-6)
    assert shares[0] > 0.6


def test_not_calibrated_and_without_smooth_part():
    X, y = draw()
    model = make(calibrated=False, smooth=False).fit(X, y)
    mean, std = model.predict(X[:20], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_time_budget_and_repr():
    X, y = draw()
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model = make(time_budget=0.2).fit(X, y)
    assert model.stopped_early_
    assert "8 trees" in repr(model)
