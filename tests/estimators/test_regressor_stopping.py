"""Training that is cut short or watched: time budgets, Ctrl-C, progress."""

import _thread
import threading
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from regressor_problems import QUICK, make_data
from triegp import BinaryTreeGPRegressor
from triegp.estimators import base
from triegp.mixture import learning
from triegp.mixture import optimise as training
from triegp.mixture import train as ensemble_training
from triegp.models.jobs import Stopwatch

# Training that is cut short, watched, or told to be the paper's.


def test_a_time_budget_gives_a_model_and_says_so():
    X, y = make_data(400)
    model = BinaryTreeGPRegressor(time_budget=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning, match="time_budget of 1e-06 s") as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    assert model.stopped_early_
    assert np.isfinite(model.predict(X, return_std=True)).all()
    Y = np.stack([y, y], axis=1)
    with pytest.warns(ConvergenceWarning, match="best found so far"):
        model.fit(X, Y)
    assert model.predict(X).shape == (400, 2)


def test_a_budget_that_is_not_used_changes_nothing():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, time_budget=1e6).fit(X, y)
    assert not model.stopped_early_
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )


class Presser(threading.Thread):
    """Presses Ctrl-C once training is under way: when so many likelihoods were evaluated."""

    def __init__(self, monkeypatch, after):
        super().__init__(daemon=True)
        self.begun = threading.Event()
        calls, real = [], training.rows_likelihood

        def counted(*args, **kwargs):
            calls.append(1)
            if len(calls) == after:
                self.begun.set()
            return real(*args, **kwargs)

        monkeypatch.setattr(training, "rows_likelihood", counted)

    def run(self):
        if self.begun.wait(60):
            _thread.interrupt_main()


LONG = {"n_members": 4, "n_candidates": 2, "max_iter": 100_000, "tol": 1e-12}


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_ctrl_c_can_keep_what_was_found(monkeypatch, multi_target):
    X, y = make_data(3000)
    Y = np.stack([y, X[:, 1]], axis=1)
    model = BinaryTreeGPRegressor(
        **LONG, on_interrupt="keep", multi_target=multi_target, random_state=0
    )
    presser = Presser(monkeypatch, after=20)
    presser.start()
    with pytest.warns(ConvergenceWarning, match="Ctrl-C"):
        model.fit(X, Y)
    presser.join()
    assert model.stopped_early_
    assert model.score(X, Y) > 0


def test_ctrl_c_ends_a_fit_and_leaves_the_old_one(monkeypatch):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    before = model.predict(X)
    model.set_params(**LONG)
    presser = Presser(monkeypatch, after=20)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*make_data(3000, n_features=3))
    presser.join()
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_members_that_were_not_begun_are_missed(monkeypatch, multi_target):
    real = learning.train_order

    def train_one_and_stop(start, n_terms, settings, watch, ask):
        trained = real(start, n_terms, settings, Stopwatch(), ask)
        watch.halt()
        return replace(trained, converged=True)

    monkeypatch.setattr(learning, "train_order", train_one_and_stop)
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, n_jobs=1, time_budget=1e6, multi_target=multi_target)
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model.fit(X, np.stack([y, -y], axis=1))
    assert model.stopped_early_
    assert {len(part.members) for part in model.ensembles_} == {1}


@pytest.mark.parametrize("on_interrupt", ["keep", "raise"])
def test_ctrl_c_after_the_last_fit_loses_nothing(monkeypatch, on_interrupt):
    heard, real = threading.Event(), ensemble_training._member

    class Noted(Stopwatch):
        def interrupt(self):
            super().interrupt()
            heard.set()

    def press(*args):
        if not heard.is_set():
            _thread.interrupt_main()
            assert heard.wait(60)
        return real(*args)

    monkeypatch.setattr(base, "Stopwatch", Noted)
    monkeypatch.setattr(ensemble_training, "_member", press)
    X, y = make_data()
    options = QUICK | {"mixture": "softmax", "n_jobs": 1}
    model = BinaryTreeGPRegressor(**options, on_interrupt=on_interrupt)
    if on_interrupt == "raise":
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert not hasattr(model, "ensembles_")
        return
    model.fit(X, y)
    monkeypatch.undo()
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**options).fit(X, y).predict(X)
    )


def test_all_evaluations_are_counted(monkeypatch):
    X, y = make_data()
    n_calls, real = [0], training.rows_likelihood

    def counted(*args, **kwargs):
        n_calls[0] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "rows_likelihood", counted)
    model = BinaryTreeGPRegressor(**QUICK, mixture="best", n_jobs=1).fit(X, y)
    assert len(model.ensembles_[0].members) == 1
    assert model.n_evaluations_ == n_calls[0]
    assert 1 <= model.n_iter_ < model.n_evaluations_


def test_verbose_shows_progress_on_stderr(capsys):
    X, y = make_data()
    BinaryTreeGPRegressor(**QUICK, verbose=1).fit(X, y)
    shown = capsys.readouterr()
    assert shown.out == ""
    for stage in ("candidates", "fits on", "posteriors"):
        assert stage in shown.err
    BinaryTreeGPRegressor(**QUICK).fit(X, y)
    assert capsys.readouterr().err == ""
