"""Ctrl-C where a fitted model is replaced, and while several targets are trained."""

import signal
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from presses import press_everywhere
from regressor_problems import QUICK, make_data
from triegp import BinaryTreeGPRegressor
from triegp.calibration import train as calibration_training
from triegp.estimators import base
from triegp.mixture import train as ensemble_training

OF_A_FIT = ("training_curve_", "fit_seconds_")  # objects that each fit makes
SET = (*OF_A_FIT, "stopped_early_", "n_evaluations_", "n_features_in_", "one_dimensional_")


def describe(model):
    """What was set by the last fit; the model itself, by identity."""
    if not hasattr(model, "_stream"):
        return sorted(name for name in vars(model) if name.endswith("_") or name[0] == "_")
    named = list(getattr(model, "feature_names_in_", []))
    own = [id(getattr(model, name)) for name in SET]
    return [*own, named, id(model._stream.fitted), model._stream.plan.n_rows]


@pytest.fixture
def stubbed(monkeypatch):
    """A fit that takes no time: training returns what it once found."""
    X, y = make_data(60, n_features=3)
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    Y = np.stack([y, -y], axis=1)
    found = {}

    def fit_rows(self, rows, *args):
        key = rows.n_rows, rows.n_targets
        if key not in found:
            found[key] = real(self, rows, *args)
        return found[key]

    real = base.TreeGPRegressor._fit_rows
    monkeypatch.setattr(base.TreeGPRegressor, "_fit_rows", fit_rows)
    return named, Y


FUNCTIONS = ["_restore", "_adopt", "_make_lock", "_fit_read", "_refit", "_inserted", "__setitem__"]


@pytest.mark.parametrize("fitted", [True, False])
def test_a_fit_replaces_the_whole_model_or_nothing(stubbed, fitted):
    X, Y = stubbed
    old = BinaryTreeGPRegressor(**QUICK)
    if fitted:
        old.fit(*make_data())
    new = BinaryTreeGPRegressor(**QUICK).fit(X, Y)
    seen = []
    model = old

    def work():
        nonlocal model
        model = BinaryTreeGPRegressor(**QUICK)
        model.__dict__.update(old.__dict__)
        model.fit(X, Y)

    for place, found in press_everywhere(work, ["estimators/", "/weakref.py"], FUNCTIONS):
        is_new = describe(model) == describe(new)
        assert is_new or describe(model) == describe(old), place
        assert is_new or found is KeyboardInterrupt, place
        seen.append(is_new)
    assert set(seen) == {True, False}


def is_free(lock):
    """Whether another thread could take the lock."""
    found = []

    def take():
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


def test_a_refit_replaces_the_whole_model_or_nothing(stubbed):
    X, y = make_data(40)
    old = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    old.partial_fit(*make_data(45, seed=3))
    seen, model = [], old

    def work():
        nonlocal model
        model = BinaryTreeGPRegressor(**QUICK)
        model.__dict__.update(old.__dict__)
        model._make_lock()
        return model.predict(X)

    expected = work()
    before, after = ([getattr(one, name) for name in OF_A_FIT] for one in (old, model))
    assert before[0] is not after[0]

    for place, _ in press_everywhere(work, ["estimators/"], FUNCTIONS):
        is_new = model._stream.plan.fit_at == 0
        now = [getattr(model, name) for name in OF_A_FIT]
        assert all(a is b for a, b in zip(now, after if is_new else before, strict=True)), place
        assert is_free(model._lock), place
        seen.append(is_new)
    assert set(seen) == {True, False}
    np.testing.assert_array_equal(model.predict(X), expected)


def test_the_second_ctrl_c_counts_if_it_comes_with_another_target(monkeypatch):
    """The first ends training, the second finishes at once: also if targets lie between them."""
    patience, real = [], ensemble_training._finish

    def press(work, items, run, progress):
        signal.raise_signal(signal.SIGINT)
        patience.append(run.last_watch.stop)
        return real(work, items, run, progress)

    monkeypatch.setattr(ensemble_training, "_finish", press)
    X, y = make_data()
    options = QUICK | {"mixture": "stacking", "on_interrupt": "keep"}
    model = BinaryTreeGPRegressor(**options)
    with pytest.warns(ConvergenceWarning, match="Ctrl-C"):
        model.fit(X, np.stack([y, -y], axis=1))
    assert patience == [False, True]
    assert np.isfinite(model.predict(X)).all()


def test_ctrl_c_between_two_targets_is_kept(monkeypatch):
    real = base.TreeGPRegressor._train_calibrated
    trained = []

    def train(self, *args):
        found = real(self, *args)
        trained.append(True)
        return found

    monkeypatch.setattr(base.TreeGPRegressor, "_train_calibrated", train)
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, on_interrupt="keep")
    Y = np.stack([y, -y], axis=1)

    def work():
        trained.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X, Y).n_rows_

    for place, found in press_everywhere(work, ["estimators/base.py"], ["_train_targets"], 5):
        assert found == 40 or len(trained) != 1, place


def test_repeats_that_are_not_calibrated_are_named(monkeypatch):
    """Ctrl-C after the training, before repeated measurements are calibrated."""
    real = calibration_training.learn_stage

    def press(*args, **options):
        found = real(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(calibration_training, "learn_stage", press)
    X, y = make_data(80)
    X[::2] = X[1::2]
    model = BinaryTreeGPRegressor(**QUICK, on_interrupt="keep")
    with pytest.warns(ConvergenceWarning, match="calibration of repeated measurements"):
        model.fit(X, y)
    assert model.stopped_early_
