"""The regressor among scikit-learn's tools: its checks, pipelines, searches, tables and copies."""

import copy
import pickle

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from triegp import BinaryTreeGPRegressor

QUICK = {"n_members": 2, "n_candidates": 2, "max_iter": 10, "random_state": 0}
PAPER = {"preset": "paper-bte", "n_members": 2, "n_candidates": 4, "max_iter": 5, "random_state": 0}


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@parametrize_with_checks([BinaryTreeGPRegressor(n_members=4), BinaryTreeGPRegressor(**PAPER)])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def test_a_pipeline_predicts_as_its_parts_do():
    X, y = problem()
    pipe = make_pipeline(StandardScaler(), BinaryTreeGPRegressor(**QUICK)).fit(X, y)
    scaler = StandardScaler().fit(X)
    alone = BinaryTreeGPRegressor(**QUICK).fit(scaler.transform(X), y)
    mean, std = pipe.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, alone.predict(scaler.transform(X)))
    np.testing.assert_array_equal(std, alone.predict(scaler.transform(X), return_std=True)[1])


def test_a_grid_search_finds_the_parameter_with_the_best_score():
    X, y = problem()
    grid = {"precision": [1, 6]}
    search = GridSearchCV(BinaryTreeGPRegressor(**QUICK), grid, cv=3).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]
    assert search.best_params_ == {"precision": grid["precision"][int(np.argmax(scores))]}
    direct = BinaryTreeGPRegressor(**QUICK, **search.best_params_).fit(X, y)
    np.testing.assert_array_equal(search.predict(X), direct.predict(X))


def test_cross_val_predict_is_three_fits():
    X, y = problem()
    model = BinaryTreeGPRegressor(**QUICK)
    folds = [(np.setdiff1d(np.arange(60), part), part) for part in np.split(np.arange(60), 3)]
    got = cross_val_predict(model, X, y, cv=folds)
    for train, test in folds:
        expected = clone(model).fit(X[train], y[train]).predict(X[test])
        np.testing.assert_array_equal(got[test], expected)


def test_a_transformed_target_is_fitted_in_its_own_units():
    X, y = problem()
    model = TransformedTargetRegressor(
        BinaryTreeGPRegressor(**QUICK), func=np.exp, inverse_func=np.log
    )
    alone = BinaryTreeGPRegressor(**QUICK).fit(X, np.exp(y))
    np.testing.assert_array_equal(model.fit(X, y).predict(X), np.log(alone.predict(X)))


def test_multi_output_regressor_is_one_fit_a_target():
    X, y = problem()
    Y = np.stack([y, X[:, 2] ** 2], axis=1)
    model = MultiOutputRegressor(BinaryTreeGPRegressor(**QUICK)).fit(X, Y)
    got = model.predict(X)
    for t in range(2):
        alone = BinaryTreeGPRegressor(**QUICK).fit(X, Y[:, t])
        np.testing.assert_array_equal(got[:, t], alone.predict(X))


def test_clone_and_parameters_go_round():
    model = BinaryTreeGPRegressor(**QUICK, scaling="ecdf", precision=[3, 4, 5], outside="error")
    X, y = problem()
    model.fit(X, y)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "ensembles_")
    other = BinaryTreeGPRegressor().set_params(**model.get_params())
    np.testing.assert_array_equal(other.fit(X, y).predict(X), model.predict(X))
    with pytest.raises(ValueError, match="n_trees"):
        model.set_params(n_trees=3)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_table_gives_names_and_the_same_numbers(frame):
    X, y = problem()
    names = ["length", "width", "height"]
    table = frame(dict(zip(names, X.T, strict=True)))
    target = pd.Series(y) if frame is pd.DataFrame else pl.Series(y)
    model = BinaryTreeGPRegressor(**QUICK).fit(table, target)
    plain = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    assert model.feature_names_in_.tolist() == names
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(table), plain.predict(X))
    for ours, theirs in zip(
        model.predict(table[:5], return_cov=True),
        plain.predict(X[:5], return_cov=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    swapped = frame({name: table[name] for name in names[::-1]})
    for name in ("predict", "sample_y", "predict_interval"):
        call = getattr(model, name)
        np.testing.assert_array_equal(call(swapped), call(table))
    more = frame({"depth": X[:, 0]} | {name: table[name] for name in names})
    np.testing.assert_array_equal(model.predict(more), model.predict(table))
    fewer = swapped[names[:2]]
    with pytest.raises(ValueError, match=r"(?s)feature names.*'height'"):
        model.predict(fewer)
    with pytest.raises(ValueError, match=r"(?s)feature names.*'height'"):
        model.partial_fit(fewer, target)


def test_names_of_a_table_survive_partial_fit_and_refresh():
    X, y = problem()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = BinaryTreeGPRegressor(**QUICK).fit(table[:40], y[:40])
    model.partial_fit(table[40:], y[40:]).refresh()
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(
        model.predict(table), BinaryTreeGPRegressor(**QUICK).fit(table, y).predict(table)
    )


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_several_targets_come_as_a_table(frame):
    X, y = problem()
    Y = np.stack([y, -y], axis=1)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, frame({"up": y, "down": -y}))
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, Y).predict(X)
    )


def by_joblib(model, path):
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


COPIES = {
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "joblib": by_joblib,
    "cloudpickle": lambda model, path: pickle.loads(cloudpickle.dumps(model)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_the_model_and_lives_on_its_own(way, tmp_path):
    X, y = problem()
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:50], y[:50])
    twin = COPIES[way](model, tmp_path)
    before = model.predict(X, return_std=True)
    np.testing.assert_array_equal(twin.predict(X, return_std=True), before)
    np.testing.assert_array_equal(twin.loo_predict(), model.loo_predict())
    np.testing.assert_array_equal(twin.sample_y(X, 3), model.sample_y(X, 3))
    assert twin.log_marginal_likelihood_ == model.log_marginal_likelihood_
    twin.partial_fit(X[50:], y[50:])
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)
    model.partial_fit(X[50:], y[50:])
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    np.testing.assert_array_equal(twin.refresh().predict(X), model.refresh().predict(X))
