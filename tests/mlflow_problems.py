"""Tables, quick estimators and a store for the tests of MLflow models."""

import mlflow
import numpy as np
import pandas as pd
import pytest

from triegp import BinaryTreeGPRegressor, TrieGPRegressor

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 5, "random_state": 0}
# MLflow compares names of columns with a range while it writes an example, and prefers a data base
# to files.
WARNED = pytest.mark.filterwarnings(
    "ignore:Operation with range is deprecated", "ignore:The filesystem"
)


def table(n=200, seed=0):
    """Numbers, gaps, strings, integers, booleans and times; `kind` is a category in training."""
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), "D")
    X = pd.DataFrame(
        {
            "a": rng.random(n),
            "gaps": np.where(np.arange(n) % 9 == 0, np.nan, rng.random(n)),
            "town": rng.choice(["ulm", "bonn", "kiel"], n),
            "kind": rng.choice(["x", "y"], n),
            "size": rng.integers(0, 9, n),
            "old": rng.random(n) < 0.5,
            "when": when,
        }
    )
    X.loc[X.index % 11 == 3, "town"] = None
    X.loc[X.index % 13 == 5, "kind"] = None
    y = 2 * X["a"] + (X["town"] == "ulm") + 0.1 * X["size"] + 0.1 * rng.standard_normal(n)
    return X, y


def numbers(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def mixture():
    X, y = table()
    return BinaryTreeGPRegressor(**QUICK).fit(X.astype({"kind": "category"}), y)


def forest():
    return TrieGPRegressor(n_trees=4, max_iter=3, random_state=0).fit(*numbers())


def two_targets():
    X, y = numbers()
    return BinaryTreeGPRegressor(**QUICK).fit(X, np.column_stack([y, X[:, 2] - y]))


def positive():
    """Targets that are transformed."""
    X, y = numbers()
    return BinaryTreeGPRegressor(**QUICK, target_transform="log").fit(X, np.exp(y))


CASES = {
    "mixture": (mixture, table),
    "forest": (forest, numbers),
    "two targets": (two_targets, numbers),
    "positive": (positive, numbers),
}


def use_store(folder):
    """Track runs and models in a folder."""
    mlflow.set_tracking_uri((folder / "runs").as_uri())
    mlflow.set_registry_uri((folder / "runs").as_uri())


def assert_same(one, other, X):
    """The same predictions, to the last bit."""
    assert type(one) is type(other)
    for left, right in zip(
        (*one.predict(X, return_std=True), one.predict_interval(X)),
        (*other.predict(X, return_std=True), other.predict_interval(X)),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)
