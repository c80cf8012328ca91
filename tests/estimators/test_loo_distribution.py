"""Leave-one-out distributions: consistent with the other leave-one-out methods and with refits."""

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor, TrieGPRegressor, load


def problem(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, 5 + np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(n)


MODELS = [
    BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=5, random_state=0),
    BinaryTreeGPRegressor(
        n_members=2, n_candidates=2, max_iter=5, target_transform="log", random_state=0
    ),
    TrieGPRegressor(n_trees=4, max_iter=3, random_state=0),
]


@pytest.mark.parametrize("model", MODELS)
def test_moments_and_densities_are_those_of_the_other_methods(model):
    X, y = problem()
    model.fit(X, y)
    found = model.loo_distribution()
    mean, std = model.loo_predict()
    np.testing.assert_allclose(found.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(found.std(), std, rtol=1e-12)
    np.testing.assert_allclose(found.log_prob(y), model.loo_log_density(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.loo_targets(), y, rtol=1e-13)


def test_rows_of_weight_zero_are_nan():
    X, y = problem()
    weight = np.ones(120)
    weight[[3, 7]] = 0
    model = MODELS[0].fit(X, y, sample_weight=weight)
    for values in (model.loo_distribution().mean(), model.loo_targets()):
        assert np.flatnonzero(np.isnan(values)).tolist() == [3, 7]


@pytest.mark.filterwarnings("ignore:.* of the observations are copies of others")
@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]])
def test_weights_are_those_that_were_passed_also_in_files_without_rows(model, tmp_path):
    X, y = problem()
    assert model.fit(X, y).loo_weights() is None
    weight = np.random.default_rng(1).lognormal(size=120)
    weight[[3, 7]] = 0
    for rows in (X, X[np.arange(120) % 90]):  # the latter with copies of inputs
        model.fit(rows, y, sample_weight=weight)
        found = model.loo_weights()
        np.testing.assert_allclose(found / found.sum(), weight / weight.sum(), rtol=1e-12)
        model.save(tmp_path / "m")
        loaded = load(tmp_path / "m")
        assert loaded.rows_ is None
        np.testing.assert_array_equal(loaded.loo_weights(), found)


def test_several_targets_give_one_distribution_each():
    X, y = problem()
    both = np.stack([y, -2 * y], axis=1)
    model = MODELS[0].fit(X, both)
    found = model.loo_distribution()
    means = np.stack([one.mean() for one in found], axis=1)
    np.testing.assert_allclose(means, model.loo_predict()[0], rtol=1e-12)
    np.testing.assert_allclose(model.loo_targets(), both, rtol=1e-13)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]])
def test_the_time_of_the_fit_is_kept_in_files(model, tmp_path):
    model.fit(*problem())
    assert 0 < model.fit_seconds_ < 600
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").fit_seconds_ == model.fit_seconds_
