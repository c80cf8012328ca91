"""Parquet files and mapped arrays, read in pieces: the bits of a fit to the table in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import triegp.estimators.pieces as pieces_module
from triegp import BinaryTreeGPRegressor
from triegp.pieces import parquet_pieces

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 10, "random_state": 0, "max_cells": 200}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_500), ("HELD_ROWS", 900)):
        monkeypatch.setattr(pieces_module, name, value)


def table(n_rows=2_500):
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 2))
    town = rng.choice(["ulm", "bonn", "kiel"], n_rows)
    y = np.sin(6 * X[:, 0]) + X[:, 1] + (town == "ulm") + 0.2 * rng.standard_normal(n_rows)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": town, "w": rng.random(n_rows), "y": y})


@pytest.fixture
def files(tmp_path):
    """Two files with row groups of several sizes, and one without rows."""
    data = pa.Table.from_pandas(table(), preserve_index=False)
    pq.write_table(data[:1_000], tmp_path / "1.parquet", row_group_size=333)
    pq.write_table(data[1_000:1_000], tmp_path / "2.parquet")
    pq.write_table(data[1_000:], tmp_path / "3.parquet", row_group_size=10_000)
    return tmp_path


def assert_same(one, other, X):
    for left, right in zip(
        one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_parquet_gives_the_bits_of_a_table_in_memory(files):
    data = table()
    X = data[["a", "b", "town"]]
    local = BinaryTreeGPRegressor(weights="precision", **QUICK).fit(X, data["y"], data["w"])
    pieces = parquet_pieces(files / "*.parquet", target="y", weight="w")
    assert pieces.n_rows == 2_500
    model = BinaryTreeGPRegressor(weights="precision", **QUICK).fit_pieces(pieces)
    assert_same(model, local, X[:100])
    named = [files / "1.parquet", str(files / "3.parquet")]
    pieces = parquet_pieces(named, target=["y"], columns=["town", "a", "b"], weight="w")
    assert pieces.n_rows == 2_500


def test_few_rows_are_read_as_a_whole(files):
    data = table()
    quick = QUICK | {"max_cells": 10**6}
    pieces = parquet_pieces(files / "*.parquet", target="y", columns=["a", "b"])
    model = BinaryTreeGPRegressor(**quick).fit_pieces(pieces)
    assert_same(
        model, BinaryTreeGPRegressor(**quick).fit(data[["a", "b"]], data["y"]), data[["a", "b"]]
    )


def test_mapped_arrays_are_read_in_pieces(tmp_path):
    data = table()
    X = data[["a", "b"]].to_numpy()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = BinaryTreeGPRegressor(**QUICK).fit(mapped, data["y"])
    assert_same(model, BinaryTreeGPRegressor(**QUICK).fit(X, data["y"]), X[:100])


def test_errors_name_the_place(files):
    with pytest.raises(FileNotFoundError, match="none is there"):
        parquet_pieces(files / "none.parquet", target="y")
    with pytest.raises(ValueError, match="'z' are not in the files"):
        parquet_pieces(files / "*.parquet", target="z")
    with pytest.raises(ValueError, match="files with rows"):
        parquet_pieces(files / "2.parquet", target="y")
