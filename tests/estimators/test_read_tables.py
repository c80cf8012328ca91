"""Tables that have been read go into estimators as X; counts of rows and copies."""

import warnings

import numpy as np
import pandas as pd
import pytest

from triegp import BinaryTreeGPRegressor
from triegp.encoding.tables import ReadTable, is_named_frame, read_table

QUICK = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(120) < 0.1, np.nan, rng.random(120)),
            "kind": rng.choice(["b", "a", "c"], 120),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 120), "D"),
        }
    )


@pytest.fixture(scope="module")
def model(frame):
    y = frame["kind"].map({"a": 1.0, "b": 2.0, "c": 3.0}).to_numpy()
    y = y + 0.1 * np.random.default_rng(1).standard_normal(120)
    return BinaryTreeGPRegressor(**QUICK).fit(frame, y)


def test_training_rows_as_they_were_read_predict_as_the_table_does(frame, model):
    table = ReadTable(model.rows_.features, model.columns_)
    np.testing.assert_array_equal(model.predict(table), model.predict(frame))
    np.testing.assert_array_equal(model.outside_box(table), model.outside_box(frame))


def test_new_tables_with_new_categories_are_read_once(frame, model):
    new = frame[:9].assign(kind=["z", *["a"] * 8])
    data, columns = read_table(new, model, model.columns_)
    table = ReadTable(data, columns)
    assert columns.categories[1][-1] == "z"
    np.testing.assert_array_equal(model.predict(table), model.predict(new))


def test_categories_are_coded_again_for_another_model(frame, model):
    data, columns = read_table(frame, model)  # categories as they come: b, a, c
    np.testing.assert_array_equal(model.predict(ReadTable(data, columns)), model.predict(frame))


def test_arrays_without_names(model):
    X = np.random.default_rng(0).random((60, 2))
    plain = BinaryTreeGPRegressor(**QUICK).fit(X, X[:, 0])
    table = ReadTable(*read_table(X[:5], plain, plain.columns_))
    assert table.shape == (5, 2)
    assert not is_named_frame(table)
    np.testing.assert_array_equal(plain.predict(table), plain.predict(X[:5]))


def test_a_table_of_other_columns_is_refused(frame, model):
    other = ReadTable(*read_table(frame.rename(columns={"size": "width"}), model))
    with pytest.raises(ValueError, match="other columns"):
        model.predict(other)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(ReadTable(*read_table(frame[["size", "kind"]], model)))


def test_numbers_of_rows_and_copies(frame, model):
    assert (model.n_rows_, model.n_copies_) == (120, 0)
    rng = np.random.default_rng(2)
    X = rng.random((50, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(50)
    with warnings.catch_warnings(action="ignore"):
        copied = BinaryTreeGPRegressor(**QUICK).fit(np.r_[X, X[:20]], np.r_[y, y[:20]])
    assert (copied.n_rows_, copied.n_copies_) == (70, 20)
    repeated = BinaryTreeGPRegressor(**QUICK).fit(
        np.r_[X, X[:20]], np.r_[y, y[:20] + rng.standard_normal(20)]
    )
    assert (repeated.n_rows_, repeated.n_copies_) == (70, 0)
    copied.partial_fit(X[:3] * 0.99, y[:3])
    assert copied.n_rows_ == 73
