"""Orders that workers elsewhere learn: the same bits as on threads."""

import numpy as np
import pytest

from triegp.encoding.encoder import BitEncoder
from triegp.mixture import parts, selection, train
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


class Backwards:
    """A pool that runs every job twice, the last one first, on one shared record."""

    def __init__(self):
        self.names = []

    def run(self, work, shared, items, progress):
        self.names.append(work.__name__)
        found = {}
        for k in [*reversed(range(len(items)))] * 2:
            found[k] = work(shared, items[k])
            progress(len(found))
        return [found[k] for k in range(len(items))]


def trained(pool, seed=0, **parameters):
    rng = np.random.default_rng(seed)
    X = rng.random((1_600, 3))
    y = np.sin(8 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(1_600)
    encoders = [BitEncoder(scaling=one).fit(X) for one in ("minmax", "ecdf")]
    given = {"n_members": 6, "n_candidates": 3, "max_iter": 8} | parameters
    run = Run(np.random.default_rng(3), 2, Stopwatch(), pool=pool)
    rows = Rows(((y - y.mean()) / y.std())[:, None], X=X)
    return train_ensemble(encoders, rows, settings_of("default", given), run).fitted


@pytest.mark.parametrize("least_rows", [10_000, 80])
def test_a_pool_learns_the_same_orders(monkeypatch, least_rows):
    monkeypatch.setattr(parts, "LEAST_ROWS", least_rows)
    monkeypatch.setattr(selection, "LEAST_MEMBERS", 2)
    monkeypatch.setattr(train, "POOL_ROWS", 0)
    pool = Backwards()
    found, expected = trained(pool), trained(None)
    assert pool.names == ["learn_first"] + ["learn_next"] * (0 if least_rows > 1_600 else 2)
    assert len(found.members) == len(expected.members)
    for one, other in zip(found.members, expected.members, strict=True):
        assert one.order == other.order
        assert one.trained.n_evaluations == other.trained.n_evaluations
        np.testing.assert_array_equal(one.encoder.shift_, other.encoder.shift_)
    np.testing.assert_array_equal(found.calibrations[0].weight, expected.calibrations[0].weight)


def test_few_rows_and_one_grid_are_learned_here(monkeypatch):
    pool = Backwards()
    trained(pool)
    assert pool.names == []
    monkeypatch.setattr(train, "POOL_ROWS", 0)
    trained(pool, shift=False)
    assert pool.names == []
