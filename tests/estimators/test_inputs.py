"""Rows as users pass them: standardised targets, weighted and repeated rows."""

import numpy as np
import pytest
from sklearn.base import clone

import triegp
from tolerances import FITS
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")

MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=4, random_state=0),
    "forest": TrieGPRegressor(n_trees=8, max_iter=8, random_state=0),
}


def problem(n=24, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n), rng.integers(0, 3, n)


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_weights_are_copies_in_any_order(model, differ):
    model = clone(model)
    X, y, weight = problem()
    if differ:  # some repeats differ: all are observations
        X, y = np.vstack([X, X[:8]]), np.append(y, y[:8] + 0.2)
        weight = np.append(weight, np.ones(8, int))
    mixed = np.random.default_rng(1).permutation(len(y))
    model.fit(X[mixed], y[mixed], sample_weight=weight[mixed])
    weighted, loo = model.predict(X, return_std=True), model.loo_predict()
    evidence, score = model.log_marginal_likelihood_, model.loo_score_
    model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(model.predict(X, return_std=True), weighted, **FITS)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=FITS["rtol"])
    if differ:
        return  # an observation of weight 2 is left out whole, of two copies one stays
    assert model.loo_score_ == pytest.approx(score, rel=FITS["rtol"])
    expected = np.full((2, len(y)), np.nan)  # rows of weight 0 have no leave-one-out prediction
    expected[:, np.repeat(np.arange(len(y)), weight)] = model.loo_predict()
    np.testing.assert_allclose(loo, expected[:, mixed], **FITS)


def test_rows_that_share_features_may_come_in_any_order():
    """What is learned of local noise turns rounding of the targets' mean into some per mille."""
    rng = np.random.default_rng(9)
    X = np.round(4 * rng.random((600, 3))) / 4
    y = np.exp(2 * X[:, 0] + 0.5 * rng.standard_normal(600))
    new, mixed = rng.random((200, 3)), rng.permutation(600)
    model = BinaryTreeGPRegressor(random_state=0)
    expected = model.fit(X, y).predict(new, return_std=True)
    found = model.fit(X[mixed], y[mixed]).predict(new, return_std=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_of_weighted_rows_keep_rows_and_files_as_they_came(model, tmp_path):
    model = clone(model)
    X, y, weight = problem()
    model.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.rows_.X, X)
    np.testing.assert_array_equal(model.rows_.weight, weight)
    model.partial_fit(X[:2], y[:2])
    model.save(tmp_path / "model", training_data=True)
    loaded = triegp.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.loo_predict(), model.loo_predict())
    assert loaded.loo_predict()[0].shape == (len(y) + 2,)
    assert f"{len(y) + 2} rows" in repr(loaded)
    np.testing.assert_array_equal(loaded.refresh().predict(X), model.refresh().predict(X))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_precisions_are_relative_and_divide_the_noise(model):
    X, y, _ = problem()
    weight = np.random.default_rng(2).uniform(0.5, 4.0, len(y))
    plain = clone(model).fit(X, y).predict(X, return_std=True)
    model = clone(model).set_params(weights="precision")
    np.testing.assert_array_equal(
        model.fit(X, y, np.full(len(y), 4.0)).predict(X, return_std=True), plain
    )
    one = model.fit(X, y, weight).predict(X, return_std=True)
    two = model.fit(X, y, 8.0 * weight).predict(X, return_std=True)  # a power of 2: the same bits
    np.testing.assert_array_equal(one, two)
    (fitted,) = model._stream.fitted
    assert fitted.n_observations == len(y)
    np.testing.assert_allclose(
        fitted.observed(0)[1][model._stream.observations.index], weight / weight.mean()
    )
