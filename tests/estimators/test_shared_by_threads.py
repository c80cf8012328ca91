"""Models that threads change while others use them: every answer is of one state."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pandas as pd
import pytest

import triegp
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.estimators import base

QUICK = {"n_members": 2, "n_candidates": 2, "max_iter": 2, "random_state": 0}


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    X[:2] = [[0.0, 0.0], [1.0, 1.0]]
    return X, np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n)


@pytest.fixture
def model():
    return BinaryTreeGPRegressor(**QUICK).fit(*draw(50))


class Between:
    """The lock of a model; work is done when it is released, as if by another thread."""

    def __init__(self, lock, work):
        self.lock, self.work = lock, work

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        work, self.work = self.work, None
        if work is not None:
            work()


def interrupt(model, batch):
    """Add rows as soon as somebody has used the lock of the model."""
    model._lock = Between(model._lock, lambda: model.partial_fit(*batch))


def saved(model, folder):
    model.save(folder / "model", training_data=True)
    return triegp.load(folder / "model")


@pytest.mark.parametrize("keep", ["file", "pickle", "copy"])
@pytest.mark.parametrize("n_rows", [8, 60])
def test_what_is_kept_of_a_model_is_one_state(model, tmp_path, keep, n_rows):
    """With 60 rows, the model is fitted anew before it predicts."""
    ways = {
        "file": lambda: saved(model, tmp_path),
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "copy": lambda: copy.copy(model),
    }
    model.partial_fit(*draw(5, seed=1))
    before = copy.copy(model)
    interrupt(model, draw(n_rows, seed=2))
    found = ways[keep]()
    assert found._stream.plan.n_rows == found.n_rows_ == 55
    assert model.n_rows_ == 55 + n_rows
    for one in (found, before):
        one.partial_fit(*draw(n_rows, seed=2))
    np.testing.assert_array_equal(found.predict(draw(9, 3)[0]), before.predict(draw(9, 3)[0]))


def test_a_state_has_the_facts_of_its_own_fit(model, monkeypatch):
    """A fit that ends while a model is saved."""
    other = BinaryTreeGPRegressor(**QUICK | {"n_members": 1}).fit(*draw(50))
    evaluations, real = model.n_evaluations_, base.CpuEngine
    assert evaluations != other.n_evaluations_

    def interrupted():
        monkeypatch.undo()
        model.set_params(n_members=1).fit(*draw(50))
        return real()

    monkeypatch.setattr(base, "CpuEngine", interrupted)
    state = model._state()
    assert len(state.stream.fitted[0].base.members) == 2
    assert state.n_evaluations == evaluations
    assert model.n_evaluations_ == other.n_evaluations_


def test_importances_are_of_the_columns_of_their_model(monkeypatch):
    """A fit that changes the layout ends while importances are computed."""
    X, y = draw(60)
    table = pd.DataFrame(X, columns=["a", "b"])
    gaps = table.assign(b=np.where(np.arange(60) % 5 == 2, np.nan, X[:, 1]))
    model = BinaryTreeGPRegressor(**QUICK).fit(gaps, y)
    expected, real = model.feature_importances_, BinaryTreeGPRegressor._shares

    def interrupted(self, fitted, column):
        found = real(self, fitted, column)
        monkeypatch.undo()
        model.fit(table, y)
        return found

    monkeypatch.setattr(BinaryTreeGPRegressor, "_shares", interrupted)
    np.testing.assert_array_equal(model.feature_importances_, expected)


def adding_while_it_trains(model, monkeypatch, batch):
    """A thread that adds rows from the moment at which training begins."""
    adding, real = threading.Thread(target=model.partial_fit, args=batch), type(model)._train

    def train(self, *arguments, **options):
        if not adding.ident:
            adding.start()
        return real(self, *arguments, **options)

    monkeypatch.setattr(type(model), "_train", train)
    return adding


@pytest.mark.parametrize("kind", ["mixture", "forest"])
def test_rows_that_are_added_during_a_refresh_stay(monkeypatch, kind):
    X, y = draw(300)
    if kind == "mixture":
        model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    else:
        model = TrieGPRegressor(n_trees=4, max_iter=5, random_state=0).fit(X, y)
    adding = adding_while_it_trains(model, monkeypatch, draw(20, seed=1))
    model.refresh()
    adding.join()
    assert model.n_rows_ == 320
    np.testing.assert_array_equal(model.rows_.y[300:, 0], draw(20, seed=1)[1])


def test_a_fit_leaves_the_lock_to_those_who_wait_for_it(model):
    lock = model._lock
    assert model.fit(*draw(60))._lock is lock
    assert model.refresh()._lock is lock
    assert copy.copy(model)._lock is not lock


def test_a_warning_may_use_the_model_that_warns(model, monkeypatch):
    """A handler of warnings asks the model, which is being fitted anew and has rows that wait."""
    X, y = draw(60, seed=1)
    X[30:], y[30:] = X[:30], y[:30]  # copies, of which a fit warns
    asked = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *_: asked.append(model.n_rows_))
        model.partial_fit(X, y, sample_weight=np.full(60, 2.0))
        model.partial_fit(X[:3], y[:3]).predict(X)
    assert asked == [113]
    assert model.n_rows_ == 113


class Growing(dict):
    """Attributes to which another thread adds one while they are iterated over."""

    def __iter__(self):
        for name in super().__iter__():
            yield name
            self["added"] = 0

    def items(self):
        return ((name, self[name]) for name in self)


@pytest.mark.parametrize(
    "act",
    [
        lambda model: model.predict([[0.5, 0.5]]),
        lambda model: model.partial_fit([[0.5, 0.5]], [0.0]),
        lambda model: model.refresh(),
        lambda model: model.fit(*draw(40)),
    ],
)
def test_another_thread_may_add_attributes(model, act):
    model.__dict__ = Growing(model.__dict__)
    act(model)
