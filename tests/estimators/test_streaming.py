"""Rows that come later wait until someone asks, and nothing else changes."""

import copy
import gc
import multiprocessing
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tolerances import SHARDS
from triegp import BinaryTreeGPRegressor
from triegp.estimators import streaming, units
from triegp.mixture import members

QUICK = {"n_members": 3, "n_candidates": 4, "max_iter": 5, "random_state": 0}


def make_data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.fixture
def model():
    X, y = make_data(50)
    return BinaryTreeGPRegressor(**QUICK).fit(X, y)


def test_rows_one_by_one_are_added_together(model, monkeypatch):
    X, y = make_data(20, seed=1)
    whole = copy.deepcopy(model).partial_fit(X, y)
    calls, real = [], members.Ensemble.insert

    def counted(ensemble, rows):
        calls.append(rows.n_rows)
        return real(ensemble, rows)

    monkeypatch.setattr(members.Ensemble, "insert", counted)
    for k in range(20):
        model.partial_fit(X[k : k + 1], y[k : k + 1])
    assert calls == []
    first = model.predict(X, return_std=True)
    model.predict(X)
    assert calls == [20]
    np.testing.assert_array_equal(first, whole.predict(X, return_std=True))
    assert model.loo_score_ == whole.loo_score_
    assert model.log_marginal_likelihood_ == whole.log_marginal_likelihood_


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X, y: m.predict(X, return_cov=True)[1],
        lambda m, X, y: m.loo_predict()[0],
        lambda m, X, y: m.loo_log_density(),
        lambda m, X, y: m.log_density(X, y),
        lambda m, X, y: m.sample_y(X, 2),
        lambda m, X, y: m.predict_quantiles(X),
        lambda m, X, y: m.feature_importances_,
        lambda m, X, y: m.log_marginal_likelihood_,
        lambda m, X, y: m.loo_score_,
        lambda m, X, y: m.rows_.y,
        lambda m, X, y: m.refresh().predict(X),
        lambda m, X, y: pickle.loads(pickle.dumps(m)).predict(X),
        lambda m, X, y: copy.deepcopy(m).predict(X),
    ],
)
def test_every_question_sees_the_rows_that_wait(model, ask):
    X, y = make_data(8, seed=1)
    waits, added = copy.deepcopy(model).partial_fit(X, y), copy.deepcopy(model).partial_fit(X, y)
    added.predict(X)
    np.testing.assert_array_equal(ask(waits, X, y), ask(added, X, y))
    before = ask(model, X, y)
    assert np.shape(before) != np.shape(ask(added, X, y)) or not np.array_equal(
        before, ask(added, X, y)
    )


def test_repr_leaves_rows_that_wait_where_they_are(model, monkeypatch):
    X, y = make_data(8, seed=1)
    model.partial_fit(X, y)

    def never(*args, **kwargs):
        raise AssertionError("repr must not compute anything")

    with monkeypatch.context() as patched:
        patched.setattr(members.Ensemble, "insert", never)
        patched.setattr(members.Ensemble, "leave_one_out", never)
        assert "50 rows and 8 waiting" in repr(model)
    model.predict(X)
    assert "58 rows," in repr(model)


def test_displaying_a_model_computes_nothing(model, monkeypatch):
    X, y = make_data(8, seed=1)
    model.partial_fit(X, y)

    def never(*args, **kwargs):
        raise AssertionError("a display must not compute anything")

    monkeypatch.setattr(members.Ensemble, "insert", never)
    monkeypatch.setattr(members.Ensemble, "leave_one_out", never)
    assert "50 rows and 8 waiting" in model._repr_mimebundle_()["text/plain"]
    assert "random_state" in model._repr_mimebundle_()["text/html"]
    assert "text/html" in make_pipeline(StandardScaler(), model)._repr_mimebundle_()
    assert {"loo_score_", "predict", "n_features_in_"} <= set(dir(model))


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_rows_added_between_two_looks_do_not_mix(model, monkeypatch):
    """What another thread adds while leave-one-out is computed is not seen."""
    X, y = make_data(8, seed=1)
    weighted = BinaryTreeGPRegressor(**QUICK).fit(*make_data(50), sample_weight=np.full(50, 2.0))
    real = units.loo_moments

    def interrupted(target):
        found = real(target)
        weighted.partial_fit(X, y)
        return found

    monkeypatch.setattr(units, "loo_moments", interrupted)
    assert weighted.loo_predict()[0].shape == (50,)
    monkeypatch.undo()
    assert weighted.loo_predict()[0].shape == (58,)


def test_a_refit_lets_go_of_the_old_model(model):
    old = weakref.ref(model.ensembles_[0])
    assert np.isfinite(model.loo_score_)
    model.fit(*make_data(20, seed=2))
    gc.collect()
    assert old() is None


def test_targets_that_share_members_are_encoded_once(monkeypatch):
    X, y = make_data(40)
    many = BinaryTreeGPRegressor(**QUICK, multi_target="shared").fit(X, np.stack([y, -y, 2 * y], 1))
    calls, real = [], members.encode_grids

    def counted(*args):
        calls.append(1)
        return real(*args)

    monkeypatch.setattr(members, "encode_grids", counted)
    many.predict(X, return_std=True)
    assert len(calls) == 1


def test_models_do_not_share_a_lock(model):
    twin = copy.deepcopy(model)
    assert twin._lock is not model._lock


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
def test_a_child_forked_while_rows_are_inserted_can_use_every_model(model, monkeypatch):
    X, y = make_data(8, seed=1)
    other, expected = copy.deepcopy(model), copy.deepcopy(model).partial_fit(X, y).predict(X)
    begun, go_on, real = threading.Event(), threading.Event(), members.Ensemble.insert

    def slow(ensemble, rows):
        begun.set()
        assert go_on.wait(60)
        return real(ensemble, rows)

    def in_child():
        go_on.set()
        for one in (other.partial_fit(X, y), model):
            np.testing.assert_array_equal(one.predict(X), expected)

    monkeypatch.setattr(members.Ensemble, "insert", slow)
    thread = threading.Thread(target=model.partial_fit(X, y).predict, args=(X,))
    thread.start()
    assert begun.wait(60)
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(60)
    child.kill()  # if it waits for ever
    assert child.exitcode == 0
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(model.predict(X), expected)


def test_renewing_locks_at_a_fork_does_not_keep_models_alive(model):
    gone = weakref.ref(copy.deepcopy(model))
    gc.collect()
    assert gone() is None


def test_shallow_copies_go_their_own_ways(model):
    X, y = make_data(8, seed=1)
    twin = copy.copy(model)
    model.partial_fit(X, y)
    assert twin.loo_predict()[0].shape == (50,)
    twin = copy.copy(model)
    assert model.loo_predict()[0].shape == (58,)
    assert twin.loo_predict()[0].shape == (58,)
    assert twin.rows_.y.shape == (58, 1)


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_many_threads_may_ask_at_once(model):
    X, y = make_data(8, seed=1)
    for k in range(10):
        model.partial_fit(X, y)
        together = threading.Barrier(4)

        def ask(together=together):
            together.wait()
            return model.predict(X)

        with ThreadPoolExecutor(4) as pool:
            answers = [job.result() for job in [pool.submit(ask) for _ in range(4)]]
        for answer in answers:
            np.testing.assert_array_equal(answer, answers[0])
        assert model.rows_.y.shape == (50 + 8 * (k + 1), 1)
        assert model.loo_predict()[0].shape == (50 + 8 * (k + 1),)


def test_very_many_batches_become_one(model, monkeypatch):
    monkeypatch.setattr(streaming, "MAX_BATCHES", 3)
    X, y = make_data(20, seed=1)
    whole = copy.copy(model).partial_fit(X, y).predict(X)
    for k in range(20):
        model.partial_fit(X[k : k + 1], y[k : k + 1])
    np.testing.assert_array_equal(model.predict(X), whole)


def test_a_refit_forgets_the_rows_that_wait(model):
    X, y = make_data(8, seed=1)
    model.partial_fit(X, y).fit(X, y)
    assert model.loo_predict()[0].shape == (8,)


@pytest.mark.parametrize(
    "name", ["ensembles_", "rows_", "loo_score_", "log_marginal_likelihood_", "n_iter_"]
)
def test_nothing_is_told_before_a_fit(name):
    with pytest.raises(NotFittedError):
        getattr(BinaryTreeGPRegressor(), name)
    assert not hasattr(BinaryTreeGPRegressor(), name)


def test_a_saved_model_has_the_rows_that_wait(model, tmp_path):
    import triegp

    X, y = make_data(8, seed=1)
    model.partial_fit(X, y).save(tmp_path / "m", training_data=True)
    loaded = triegp.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.rows_.y.shape == (58, 1)
    loaded.partial_fit(X, y)
    assert loaded.loo_predict()[0].shape == (66,)


def test_the_batch_is_the_models_own(model):
    X, y = make_data(8, seed=1)
    twin = copy.deepcopy(model).partial_fit(X.copy(), y.copy())
    model.partial_fit(X, y)
    X[:], y[:] = 0.5, 9.0
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X": np.full((2, 3), np.inf)}, "finite"),
        ({"X": np.ones((2, 2))}, "features"),
        ({"y": np.array([0.0, np.inf])}, "finite"),
        ({"y": np.array([0.0, 1e200])}, "y must be at most"),
        ({"y": np.zeros(3)}, "2 rows"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight"),
        ({"sample_weight": [1.0, 1e-304]}, "noise / weight"),
        ({"known_noise": [1.0, np.nan]}, "known_noise"),
        ({"known_noise": [1.0, 1e305]}, "known_noise must be at most"),
    ],
)
def test_bad_rows_are_refused_at_once_and_lose_nothing(model, change, said):
    X, y = make_data(2, seed=1)
    before = model.partial_fit(X, y).predict(X)
    with pytest.raises(ValueError, match=said):
        model.partial_fit(**({"X": X, "y": y} | change))
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.loo_predict()[0].shape == (52,)


def test_weights_are_checked_in_the_units_of_the_model():
    """Otherwise the rows would wait, and every prediction would fail."""
    X, y = make_data(50)
    options = QUICK | {"weights": "precision", "refit": False}
    model = BinaryTreeGPRegressor(**options).fit(X, y, sample_weight=np.full(50, 3.0))
    before = model.predict(X)
    stream = model._stream
    model._stream = replace(stream, observations=replace(stream.observations, unit=1e-300))
    with pytest.raises(ValueError, match="noise / weight"):
        model.partial_fit(X[:1], y[:1])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("outside", ["error", "unrelated"])
def test_rows_outside_the_box_are_refused_at_once(outside):
    X, y = make_data(50)
    model = BinaryTreeGPRegressor(**QUICK, outside=outside).fit(X, y)
    with pytest.raises(ValueError, match="box"):
        model.partial_fit(np.full((1, 3), 2.0), [0.0])
    assert model.loo_predict()[0].shape == (50,)


def test_prediction_by_blocks_is_prediction(model, monkeypatch):
    X, y = make_data(70, seed=2)

    def all_of_it():
        return [
            model.predict(X),
            *model.predict(X, return_std=True),
            model.predict_quantiles(X),
            model.log_density(X, y),
        ]

    whole = all_of_it()
    monkeypatch.setattr(units, "BLOCK_ROWS", 32)
    for a, b in zip(all_of_it(), whole, strict=True):
        np.testing.assert_allclose(a, b, **SHARDS)
