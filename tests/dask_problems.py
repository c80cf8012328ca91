"""Data and quick estimators for the tests on Dask collections."""

import numpy as np
import pandas as pd

N_ROWS = 2_600
QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 10, "random_state": 0}


def problem(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.standard_normal(n_rows)


def frame(n_rows=N_ROWS):
    X, y = problem(n_rows)
    town = np.random.default_rng(1).choice(["ulm", "bonn", "kiel"], n_rows)
    gap = np.where(np.arange(n_rows) % 9 == 0, np.nan, X[:, 1])
    table = pd.DataFrame({"a": X[:, 0], "b": gap, "town": town})
    return table, pd.Series(y + (town == "ulm"), name="y")


def assert_same(one, other, X):
    """The same predictions, to the last bit."""
    for left, right in zip(
        one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
