"""Bit orders of single trees, for forests of many rows."""

import numpy as np
import pytest

from triegp import TrieGPRegressor
from triegp.additive import singles as singles_module
from triegp.additive import train as train_module
from triegp.additive.singles import squared_error, take_orders
from triegp.encoding.encoder import BitEncoder
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


@pytest.fixture
def few(monkeypatch):
    """Sizes at which a few thousand rows are many."""
    monkeypatch.setattr(train_module, "AUTO_ROWS", 3_000)
    monkeypatch.setattr(singles_module, "COMPARED_ROWS", 2_000)


def table(n=3_000, seed=0):
    """A level for each of 16 x 16 cells of two features, and six features that say nothing."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 8))
    level = np.random.default_rng(9).standard_normal((16, 16))
    cells = (16 * X[:, :2]).astype(int)
    return X, level[cells[:, 0], cells[:, 1]] + 0.3 * rng.standard_normal(n)


def plane(n=3_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, X @ [3.0, -2.0] + 0.1 * rng.standard_normal(n)


def fit(X, y, **options):
    settings = {"n_trees": 8, "max_iter": 5, "calibrated": False, "random_state": 0, **options}
    return TrieGPRegressor(**settings).fit(X, y)


def first_features(model):
    """Share of the first eight bits of all trees that are bits of the first two features."""
    trees = model.forests_[0].model
    found = []
    for encoder, order in zip(trees.encoders, trees.orders, strict=True):
        feature = np.repeat(np.arange(encoder.n_working), encoder.precision_)
        found.append(feature[order.bits[:8]] < 2)
    return np.mean(found)


def test_orders_of_single_trees_are_taken_if_they_predict_better(few):
    X, y = table()
    new, truth = table(1_000, seed=1)
    auto, even = (fit(X, y, init=init) for init in ("auto", "even"))
    assert first_features(auto) > 0.9
    assert first_features(even) < 0.5
    error = [np.mean((model.predict(new) - truth) ** 2) for model in (auto, even)]
    assert error[0] < 0.7 * error[1]


def test_even_orders_stay_if_they_predict_better(few):
    X, y = plane(seed=1)
    auto, even = (fit(X, y, init=init) for init in ("auto", "even"))
    for one, two in zip(auto.forests_[0].model.orders, even.forests_[0].model.orders, strict=True):
        np.testing.assert_allclose(one.phi, two.phi)
    np.testing.assert_array_equal(auto.predict(X[:9]), even.predict(X[:9]))


def test_few_rows_and_time_budgets_take_even_orders(few, monkeypatch):
    def never(*arguments):
        raise AssertionError

    monkeypatch.setattr(train_module, "better_orders", never)
    X, y = table()
    fit(X[:-1], y[:-1])
    fit(X, y, time_budget=60.0)
    with pytest.raises(AssertionError):
        fit(X, y)


def test_an_interrupt_leaves_even_orders(few, monkeypatch):
    """Ctrl-C while the single trees are trained: the forest is finished as it is."""
    real, calls = singles_module.train_singles, []

    def interrupted(encoders, rows, run, engine, name):
        calls.append(rows.n_rows)
        run.watch.interrupt()
        return real(encoders, rows, run, engine, name)

    monkeypatch.setattr(singles_module, "train_singles", interrupted)
    X, y = table()
    with pytest.warns(UserWarning, match="orders of single trees"):
        model = fit(X, y, on_interrupt="keep")
    assert calls == [2_000]
    assert first_features(model) < 0.5
    with pytest.raises(KeyboardInterrupt):
        fit(X, y, on_interrupt="raise")


def test_an_interrupt_of_the_second_training_keeps_the_first(few, monkeypatch):
    real, calls = train_module.train_stage, []

    def interrupted(data, parameters, seen, held, settings, engine, run):
        calls.append(1)
        if len(calls) == 2:
            run.watch.interrupt()
        return real(data, parameters, seen, held, settings, engine, run)

    monkeypatch.setattr(train_module, "train_stage", interrupted)
    X, y = table()
    with pytest.warns(UserWarning, match="orders of single trees"):
        model = fit(X, y, on_interrupt="keep")
    assert len(calls) == 2
    assert first_features(model) < 0.5
    assert 1 <= model.n_iter_ <= 5
    assert model.n_evaluations_ > 5  # those of the single trees count


def test_progress_has_a_name_for_every_part(few, monkeypatch):
    monkeypatch.setattr(singles_module, "ORDER_ROWS", 2_500)
    told = {}
    monkeypatch.setattr(
        "triegp.estimators.base.progress_bars",
        lambda verbose: lambda stage, done, total: told.setdefault(stage, []).append(done),
    )
    fit(*table())
    assert {"steps", "steps again"} <= told.keys()
    assert {name.split()[0] for name in told} >= {"compared", "initial"}
    for done in told.values():
        assert done == sorted(done)  # no part is told twice


def singles_of(X, y, encoders):
    rows, run = Rows(y[:, None], X=X), Run(np.random.default_rng(0), 1, Stopwatch())
    settings = settings_of("default", {"n_members": 3, "max_iter": 3})
    return train_ensemble(encoders, rows, settings, run)


def test_orders_keep_the_shifts_of_the_grids():
    X, y = table(300)
    encoders = [BitEncoder(precision=4, scaling=scaling).fit(X) for scaling in ("minmax", "ecdf")]
    trained = singles_of(X, y, encoders)
    members = trained.fitted.members
    grids = [encoders[0].with_shift(np.full(8, shift)) for shift in (0.1, 0.2, 0.3, 0.4)]
    found = take_orders(trained, encoders, grids)
    assert found.n_evaluations == trained.n_evaluations > 0
    for t, grid in enumerate(found.grids):
        own = members[t % len(members)]
        np.testing.assert_array_equal(grid.shift_, grids[t].shift_)
        assert grid.scaling == own.encoder.scaling
        np.testing.assert_array_equal(found.phi[t], own.order.phi)


def test_the_squared_error_is_weighted():
    X, y = table(300)
    singles = singles_of(X, y, [BitEncoder(precision=4).fit(X)]).fitted
    weight = np.arange(300.0)
    mean = singles.predict(singles.read(X, var=False), 0, var=False, latent=True).mean()
    expected = np.sum(weight * (y - mean) ** 2) / weight.sum()
    assert squared_error(singles, Rows(y, X=X, weight=weight)) == pytest.approx(expected)
