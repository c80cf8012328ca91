"""Bit orders of single trees, for forests of many rows."""

import numpy as np

from triegp import TrieGPRegressor
from triegp.additive.singles import take_orders
from triegp.encoding.encoder import BitEncoder
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


def table(n=3_000, seed=0):
    """A level for each of 16 x 16 cells of two features, and six features that say nothing."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 8))
    level = np.random.default_rng(9).standard_normal((16, 16))
    cells = (16 * X[:, :2]).astype(int)
    return X, level[cells[:, 0], cells[:, 1]] + 0.3 * rng.standard_normal(n)


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


def test_orders_of_single_trees_find_cells_that_parts_do_not_show():
    X, y = table()
    new, truth = table(1_000, seed=1)
    trained, even = (fit(X, y, init=init) for init in ("trained", "even"))
    assert first_features(trained) > 0.9
    assert first_features(even) < 0.5
    error = [np.mean((model.predict(new) - truth) ** 2) for model in (trained, even)]
    assert error[0] < 0.7 * error[1]


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
    for t, grid in enumerate(found.grids):
        own = members[t % len(members)]
        np.testing.assert_array_equal(grid.shift_, grids[t].shift_)
        assert grid.scaling == own.encoder.scaling
        np.testing.assert_array_equal(found.phi[t], own.order.phi)
