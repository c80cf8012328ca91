"""Long streams: what they hold in memory, and that models do not wait for each other."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor
from triegp.calibration.model import CalibratedModel
from triegp.estimators import fitted, streaming
from triegp.imports import LOADING
from triegp.mixture import members
from triegp.mixture.growing import GrowingEnsemble
from triegp.tree.posterior import Posterior
from triegp.tree.rows import Rows

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 3, "random_state": 0, "refit": False}
RECORDS = (streaming.Stream, CalibratedModel, GrowingEnsemble, members.Ensemble, Posterior, Rows)
N_FIRST = 600


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    X[:2] = [[0.0, 0.0], [1.0, 1.0]]
    return X, np.sin(5 * X[:, 0]) + 0.3 * rng.standard_normal(n)


def add_singly(model, X, y):
    for i in range(len(X)):
        model.partial_fit(X[i : i + 1], y[i : i + 1]).predict(X[i : i + 1], return_std=True)


def count_records():
    """Live records of each kind that are reachable from anywhere."""
    kinds = [type(one) for one in gc.get_objects()]
    return {kind.__name__: kinds.count(kind) for kind in RECORDS}


@pytest.fixture
def no_collection():
    """No collector of cycles: what calls leave behind in cycles stays, and is counted."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("forgetting", [{}, {"window": N_FIRST}, {"half_life": 60}], ids=str)
def test_calls_leave_nothing_behind(no_collection, forgetting):
    """After 150 single rows with predictions there are as many records as after one."""
    X, y = draw(N_FIRST + 151)
    model = BinaryTreeGPRegressor(**QUICK, **forgetting).fit(X[:N_FIRST], y[:N_FIRST])
    add_singly(model, X[N_FIRST : N_FIRST + 1], y[N_FIRST : N_FIRST + 1])
    assert model.n_rows_ in (N_FIRST, N_FIRST + 1)
    gc.collect()  # what training leaves
    before = count_records()
    add_singly(model, X[N_FIRST + 1 :], y[N_FIRST + 1 :])
    _ = model.n_rows_
    assert count_records() == before


def test_overlays_are_freed_when_their_rows_are_inserted(no_collection):
    X, y = draw(N_FIRST + 50)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:N_FIRST], y[:N_FIRST])
    add_singly(model, X[N_FIRST:], y[N_FIRST:])
    growing = model._stream.ahead[0].base
    assert isinstance(growing, GrowingEnsemble)
    overlays = weakref.ref(growing), weakref.ref(growing.over.nodes.m)
    del growing
    assert all(one() is not None for one in overlays)
    assert model.n_rows_ == N_FIRST + 50
    assert all(one() is None for one in overlays)


def test_memory_grows_with_the_rows_only():
    """Three times 100 single rows take the memory of the rows, and no more in the last third."""
    X, y = draw(N_FIRST + 340)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:N_FIRST], y[:N_FIRST])
    add_singly(model, X[N_FIRST : N_FIRST + 40], y[N_FIRST : N_FIRST + 40])
    _ = model.n_rows_
    gc.collect()
    held = []
    tracemalloc.start()
    try:
        model.partial_fit(X[:1], y[:1])  # all arrays of the trees are new, and traced from here on
        for first in range(N_FIRST + 40, N_FIRST + 341, 100):
            _ = model.n_rows_
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
            add_singly(model, X[first : first + 100], y[first : first + 100])
    finally:
        tracemalloc.stop()
    one, two, three = np.diff(held)
    assert one > 0
    assert max(one, two, three) < 1.25 * min(one, two, three)
    assert three / 100 < 1.25 * held[0] / (N_FIRST + 41)  # a row takes what it did before


class Held:
    """One model whose next step of some kind waits until it may go on."""

    def __init__(self, monkeypatch, module, name):
        self.begun, self.go_on, self.first = threading.Event(), threading.Event(), []
        real = getattr(module, name)

        def slow(*args, **options):
            if not self.first:
                self.first.append(threading.get_ident())
                self.begun.set()
                assert self.go_on.wait(60)
            return real(*args, **options)

        monkeypatch.setattr(module, name, slow)


STEPS = {
    "inserts": (fitted, "insert_waiting", {}, lambda model: model.n_rows_),
    "looks ahead": (fitted, "look_ahead", {}, lambda model: model.predict([[0.5, 0.5]])),
    "forgets": (members.Ensemble, "insert", {"window": 590}, lambda model: model.n_rows_),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_model_does_not_wait_while_another_changes(monkeypatch, step):
    """One holds its lock for as long as the other takes for everything that needs one."""
    module, name, options, work = STEPS[step]
    X, y = draw(N_FIRST + 50)
    models = [
        BinaryTreeGPRegressor(**QUICK, **options).fit(X[:N_FIRST], y[:N_FIRST]) for _ in range(2)
    ]
    held, done = Held(monkeypatch, module, name), threading.Event()

    def change(model):
        work(model.partial_fit(X[N_FIRST:], y[N_FIRST:]))

    def change_all():
        change(models[1])
        models[1].predict(X[:20], return_std=True)
        models[1].forget(factor=0.5).partial_fit(X[:1], y[:1]).loo_predict()
        done.set()

    one = threading.Thread(target=change, args=(models[0],))
    one.start()
    assert held.begun.wait(60)
    assert not models[0]._lock.acquire(blocking=False)
    other = threading.Thread(target=change_all, daemon=True)
    other.start()
    try:
        assert done.wait(60)
        assert one.is_alive()
    finally:
        held.go_on.set()
        one.join()
    np.testing.assert_array_equal(models[0].rows_.X, models[1].rows_.X[:-1])


def test_a_model_does_not_wait_while_a_library_is_imported():
    """No lock of all models lies on the way of rows and predictions."""
    X, y = draw(N_FIRST + 4)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:N_FIRST], y[:N_FIRST])
    model.partial_fit(X[N_FIRST : N_FIRST + 1], y[N_FIRST : N_FIRST + 1]).predict(X[:2])
    held, go_on = threading.Event(), threading.Event()

    def import_slowly():
        with LOADING:
            held.set()
            assert go_on.wait(120)

    def ask():
        model.partial_fit(X[-1:], y[-1:]).predict(X[:2], return_std=True)
        model.predict_interval(X[:2].tolist())

    threads = [threading.Thread(target=work, daemon=True) for work in (import_slowly, ask)]
    threads[0].start()
    assert held.wait(60)
    threads[1].start()
    threads[1].join(60)
    assert not threads[1].is_alive()
    go_on.set()
    threads[0].join()
