"""The estimators on Dask collections: the same bits as local fits, lazy predictions, errors."""

import pickle
import time

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.base import clone

import triegp.estimators.pieces as pieces_module
from dask_problems import N_ROWS, QUICK, assert_same, frame, problem
from tolerances import ROUNDING
from triegp import BinaryTreeGPRegressor, TrieGPRegressor, load
from triegp.dask import DaskBinaryTreeGPRegressor, DaskTrieGPRegressor, estimators
from triegp.mixture import train

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:Port .* is already in use:UserWarning"
)


@pytest.fixture(scope="module")
def client():
    settings = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(params=["rows", "cells"])
def mode(request, monkeypatch):
    """Parameters of a fit that holds all rows, or of one that sums them up."""
    monkeypatch.setattr(train, "POOL_ROWS", 100)
    if request.param == "rows":
        return QUICK
    for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_500), ("HELD_ROWS", 900)):
        monkeypatch.setattr(pieces_module, name, value)
    return QUICK | {"max_cells": 200}


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_any_number_of_workers_gives_the_bits_of_a_local_fit(n_workers, mode):
    X, y = problem()
    local = BinaryTreeGPRegressor(**mode).fit(X, y)
    settings = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=n_workers, **settings) as cluster, Client(cluster) as client:
        model = DaskBinaryTreeGPRegressor(client=client, **mode)
        model.fit(da.from_array(X, chunks=(700, 2)), da.from_array(y, chunks=900))
        assert_same(model.to_local(), local, X[:200])
        assert type(model.to_local()) is BinaryTreeGPRegressor
        assert model.loo_score_ == local.loo_score_


@pytest.mark.parametrize("rows", [97, 1_300, N_ROWS, (0, 1, 2_599, 0)])
def test_any_chunks_give_the_bits_of_a_local_fit(client, mode, rows):
    X, y = problem()
    weight = np.linspace(0.5, 1.5, N_ROWS)
    local = BinaryTreeGPRegressor(weights="precision", **mode).fit(X, y, sample_weight=weight)
    model = DaskBinaryTreeGPRegressor(weights="precision", client=client, **mode)
    chunked = da.from_array(X, chunks=(rows, 3))
    model.fit(chunked, da.from_array(y, chunks=511), sample_weight=weight)
    assert_same(model, local, X[:100])


def test_chunks_of_unknown_size(client, mode):
    X, y = problem()
    keep = X[:, 2] > 0.3
    lazy, target = da.from_array(X, chunks=(900, 3)), da.from_array(y, chunks=900)
    mask = lazy[:, 2] > 0.3
    unknown = lazy[mask]
    assert np.isnan(unknown.shape[0])
    model = DaskBinaryTreeGPRegressor(client=client, **mode).fit(unknown, target[mask])
    assert_same(model, BinaryTreeGPRegressor(**mode).fit(X[keep], y[keep]), X[keep][:100])
    found = model.predict(unknown)
    assert np.isnan(found.shape[0])
    np.testing.assert_allclose(found.compute(), model.to_local().predict(X[keep]), rtol=ROUNDING)


def test_data_frames_with_categories_gaps_and_empty_partitions(client, mode):
    X, y = frame()
    whole = dd.from_pandas(X.assign(y=y), npartitions=4)
    some = whole[whole["a"] > 0.2]  # lengths are not known
    some = dd.concat([some, whole[whole["a"] < 0.0]])  # with empty partitions
    keep = X["a"] > 0.2
    local = BinaryTreeGPRegressor(**mode).fit(X[keep], y[keep])
    model = DaskBinaryTreeGPRegressor(client=client, **mode).fit(some[list(X)], some["y"])
    assert_same(model, local, X[keep][:100])
    assert list(model.feature_names_in_) == ["a", "b", "town"]
    mean, std = model.predict(some[list(X)], return_std=True)
    np.testing.assert_allclose(mean.compute(), local.predict(X[keep]), rtol=ROUNDING)
    assert (std.compute() > 0).all()


def test_predictions_are_lazy_and_equal_local_ones(client):
    X, y = problem(600)
    y = np.stack([y, X[:, 2]], axis=1)
    lazy = da.from_array(X, chunks=(250, 2))
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK).fit(lazy, y)
    local = model.to_local()
    for name, asked in (
        ("predict", {}),
        ("predict", {"latent": True}),
        ("predict_quantiles", {"quantiles": [0.1, 0.9]}),
        ("predict_interval", {"coverage": 0.5}),
    ):
        found, expected = getattr(model, name)(lazy, **asked), getattr(local, name)(X, **asked)
        assert isinstance(found, da.Array)
        assert found.shape == expected.shape
        assert found.chunks[0] == (250, 250, 100)
        np.testing.assert_allclose(found.compute(), expected, rtol=ROUNDING)
        np.testing.assert_array_equal(getattr(model, name)(X, **asked), expected)


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning")
@pytest.mark.parametrize("graph_rows", [0, 10**6])
def test_predictions_survive_restarts_and_need_no_cluster(monkeypatch, graph_rows):
    monkeypatch.setattr(estimators, "GRAPH_ROWS", graph_rows)
    X, y = problem(300)
    lazy = da.from_array(X, chunks=100)
    settings = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=1, **settings) as cluster, Client(cluster) as client:
        model = DaskBinaryTreeGPRegressor(client=client, **QUICK).fit(lazy, y)
        expected = model.predict(X)
        np.testing.assert_array_equal(model.predict(lazy).compute(), expected)
        cluster.scale(0)
        while client.nthreads():
            time.sleep(0.01)
        cluster.scale(1)
        np.testing.assert_array_equal(model.predict(lazy).compute(), expected)
    np.testing.assert_array_equal(model.predict(lazy).compute(scheduler="threads"), expected)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.client is None
    monkeypatch.setattr(estimators, "GRAPH_ROWS", 10**6)  # other tests have a current client
    np.testing.assert_array_equal(copy.predict(lazy).compute(scheduler="threads"), expected)


def test_targets_go_by_position(client):
    X, y = frame(600)
    table = dd.from_pandas(X.assign(y=y), npartitions=3)
    turned = table["y"].map_partitions(lambda one: one.set_axis(one.index[::-1]), meta=("y", float))
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK).fit(table[list(X)], turned)
    assert_same(model, BinaryTreeGPRegressor(**QUICK).fit(X, y.to_numpy()), X[:50])


def test_models_are_pickled_cloned_and_saved_without_their_client(client, tmp_path):
    X, y = problem(300)
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK)
    assert model.get_params()["client"] is client
    assert clone(model).client is client
    assert clone(model).get_params() == model.get_params()
    names = set(BinaryTreeGPRegressor().get_params()) | {"client"}
    assert set(model.get_params()) == names
    model.fit(da.from_array(X, chunks=100), y)
    model.predict(da.from_array(X, chunks=100)).compute()
    assert_same(pickle.loads(pickle.dumps(model)), model, X)
    model.save(tmp_path / "model.tgp")
    assert_same(load(tmp_path / "model.tgp"), model, X)
    assert type(load(tmp_path / "model.tgp")) is BinaryTreeGPRegressor


@pytest.mark.filterwarnings("ignore:.*lie outside the training box")
@pytest.mark.parametrize("forgetting", [{}, {"window": 450}, {"half_life": 100}], ids=str)
def test_rows_are_added(client, forgetting):
    X, y = problem(600)
    options = QUICK | {"refit": False} | forgetting
    model = DaskBinaryTreeGPRegressor(client=client, **options)
    local = BinaryTreeGPRegressor(**options)
    for some in (slice(0, 400), slice(400, 500)):
        lazy = da.from_array(X[some], chunks=150)
        model.partial_fit(lazy, da.from_array(y[some], chunks=150))
        local.partial_fit(X[some], y[some])
    model.partial_fit(X[500:], y[500:])
    local.partial_fit(X[500:], y[500:])
    assert_same(model, local, X[:50])
    assert (model.n_rows_ < 600) == ("window" in forgetting)


def test_rows_that_are_summed_up_cannot_be_forgotten(client, monkeypatch):
    monkeypatch.setattr(pieces_module, "FEWEST_ROWS", 500)
    X, y = problem(600)
    model = DaskBinaryTreeGPRegressor(client=client, window=100, max_cells=200, **QUICK)
    with pytest.raises(ValueError, match="window and half_life need rows in memory, got 600 rows"):
        model.fit(da.from_array(X, chunks=150), y)


def test_few_rows_of_trees_and_a_smooth_part(client):
    X, y = problem(150)
    parameters = {"n_trees": 4, "max_iter": 4, "random_state": 0}
    local = TrieGPRegressor(**parameters).fit(X, y)
    model = DaskTrieGPRegressor(client=client, **parameters)
    model.fit(da.from_array(X, chunks=70), da.from_array(y, chunks=70))
    assert_same(model.to_local(), local, X)
    found = model.predict(da.from_array(X, chunks=50), return_std=True)
    np.testing.assert_allclose(found[1].compute(), local.predict(X, return_std=True)[1])


def test_layers_that_workers_sum_up_have_the_bits_of_a_local_fit(client, monkeypatch):
    for name, value in (("SAMPLE_ROWS", 1_500), ("HELD_ROWS", 300)):
        monkeypatch.setattr(pieces_module, name, value)
    monkeypatch.setattr("triegp.estimators.trie_regressor.HELD_ROWS", 300)
    monkeypatch.setattr("triegp.layers.train.BASE_ROWS", 500)
    monkeypatch.setattr("triegp.layers.train.COMPARED_ROWS", 200)
    X, y = problem()
    parameters = {"n_trees": 4, "max_iter": 4, "max_cells": 600, "random_state": 0}
    local = TrieGPRegressor(**parameters).fit(X, y)
    assert not local.holds_rows_
    model = DaskTrieGPRegressor(client=client, **parameters)
    model.fit(da.from_array(X, chunks=(700, 2)), da.from_array(y, chunks=900))
    assert_same(model.to_local(), local, X[:200])


def test_known_noise_and_budgets(client, mode):
    X, y = problem()
    noise = np.full(N_ROWS, 0.01)
    lazy = da.from_array(X, chunks=800)
    model = DaskBinaryTreeGPRegressor(client=client, **mode).fit(lazy, y, known_noise=noise)
    assert_same(model, BinaryTreeGPRegressor(**mode).fit(X, y, known_noise=noise), X[:50])
    quick = DaskBinaryTreeGPRegressor(client=client, time_budget=60.0, **mode).fit(lazy, y)
    assert np.isfinite(quick.predict(X[:5])).all()


def test_errors_say_what_is_wrong(client):
    X, y = problem(300)
    lazy = da.from_array(X, chunks=100)
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK)
    with pytest.raises(ValueError, match="the same number of rows, got 300 and 299"):
        model.fit(lazy, da.from_array(y[:-1], chunks=100))
    with pytest.raises(ValueError, match="the same number of rows, got 300 and 299"):
        model.fit(lazy, y[:-1])
    with pytest.raises(ValueError, match="got no rows"):
        model.partial_fit(lazy[:0], y[:0])
    with pytest.raises(ValueError, match="requires y"):
        model.fit(lazy, None)
    with pytest.raises(ValueError, match="got no rows"):
        model.fit(lazy[:0], y[:0])
    with pytest.raises(ValueError, match="X must be finite"):
        model.fit(da.where(lazy > 0.999, np.inf, lazy), y)
    assert not hasattr(model, "_stream")
    model.fit(lazy, y)
    with pytest.raises(ValueError, match="return_cov=True requires X in memory"):
        model.predict(lazy, return_cov=True)
    with pytest.raises(TypeError, match="takes rows in memory"):
        model.predict_distribution(lazy)
    assert model.predict_distribution(X).n_rows == 300
    with pytest.raises(ValueError, match="features"):
        model.predict(lazy[:, :2]).compute()


def test_series_must_be_divided_as_the_frame(client):
    X, y = frame(400)
    table, target = dd.from_pandas(X, npartitions=2), dd.from_pandas(y, npartitions=3)
    with pytest.raises(ValueError, match="y must be divided into partitions as X is"):
        DaskBinaryTreeGPRegressor(client=client, **QUICK).fit(table, target)


def test_parquet_columns_that_dask_fuses_in_another_way(client, tmp_path, mode):
    X, y = frame()
    wide = X.assign(y=y, **{f"unused{k}": 0.0 for k in range(20)})
    for k in range(0, N_ROWS, 200):
        wide[k : k + 200].to_parquet(tmp_path / f"{k:05d}.parquet")
    table = dd.read_parquet(tmp_path)
    model = DaskBinaryTreeGPRegressor(client=client, **mode).fit(table[list(X)], table["y"])
    assert_same(model, BinaryTreeGPRegressor(**mode).fit(X, y), X[:100])


def test_several_targets_of_a_frame(client):
    X, y = problem(600)
    data = pd.DataFrame(X, columns=["a", "b", "c"])
    table = dd.from_pandas(data.assign(y=y, z=-y), npartitions=3)
    model = DaskBinaryTreeGPRegressor(client=client, **QUICK)
    model.fit(table[["a", "b", "c"]], table[["y", "z"]], sample_weight=np.ones(600))
    local = BinaryTreeGPRegressor(**QUICK).fit(data, np.stack([y, -y], axis=1))
    new = table[["a", "b", "c"]]
    np.testing.assert_allclose(model.predict(new).compute(), local.predict(new.compute()))
    assert model.predict_interval(new).compute().shape == (600, 2, 2)
