"""Cross-fitting: which variant predicts held-out rows best, and how optimistic leave-one-out is."""

from dataclasses import dataclass

import numpy as np
import pytest

from triegp.calibration.folds import MOST_OPTIMISM, MOST_ROWS, cross_fit
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Residuals, Trained
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


@dataclass(frozen=True)
class Variant:
    """Predicts y + new at held-out rows and y + old at rows left out, with this variance."""

    new: float
    old: float = 1.0
    var: float = 1.0


class Fitted:
    def __init__(self, variant):
        self.variant = variant

    def read(self, X, *, var):
        assert var
        return X

    def predict(self, X, column, *, var, latent):
        assert var
        assert not latent
        mean = X[:, column] + self.variant.new * (1 + column)
        return PredictiveDistribution(
            np.ones(1), mean[None], np.full((1, len(X)), self.variant.var)
        )


class Trainer:
    def __init__(self):
        self.seen = []

    def __call__(self, variant, rows, run):
        assert run.engine == "cpu"
        self.seen.append((variant, rows.X[:, -1].astype(int)))
        every, var = np.arange(rows.n_rows), np.full(rows.n_rows, variant.var)
        left = tuple(
            Residuals(every, y + variant.old, var, y, None, np.zeros(every.size, bool))
            for y in rows.y.T
        )
        return Trained(Fitted(variant), False, 1, left)


def make_rows(n=22, n_targets=1):
    y = np.random.default_rng(0).standard_normal((n, n_targets))
    return Rows(y, X=np.column_stack([y, np.arange(n)]))


def run():
    return Run(np.random.default_rng(0), 1, Stopwatch(), engine="auto")


def test_every_variant_is_trained_on_all_but_one_part():
    train, rows = Trainer(), make_rows()
    variants = [Variant(1.0), Variant(2.0)]
    cross_fit(train, variants, rows, run())
    assert [variant for variant, _ in train.seen] == [v for v in variants for _ in range(4)]
    for first in (0, 4):
        held = [np.setdiff1d(np.arange(22), seen) for _, seen in train.seen[first : first + 4]]
        assert sorted(np.concatenate(held).tolist()) == list(range(22))
        assert {part.size for part in held} == {5, 6}
    one, two = ([seen.tolist() for _, seen in train.seen[k : k + 4]] for k in (0, 4))
    assert one == two


def test_the_best_variant_is_chosen_and_its_optimism_told():
    variants = [Variant(3.0), Variant(1.5), Variant(2.0, var=4.0), Variant(1.6, var=2.25)]
    found = cross_fit(Trainer(), variants, make_rows(n_targets=2), run())
    # Twice the nll per row at the best common scale: log(var) + log(mean square / var).
    losses = [2 * np.log(v.new) + 2 * np.log(2 * v.new) for v in variants]
    assert found.best == int(np.argmin(losses)) == 1
    assert found.optimism == pytest.approx((1.5**2, 3.0**2))


@pytest.mark.parametrize(("new", "expected"), [(0.5, 1.0), (4.9, MOST_OPTIMISM), (100.0, 9.0)])
def test_optimism_is_bounded(new, expected):
    assert cross_fit(Trainer(), [Variant(new)], make_rows(), run()).optimism == (expected,)


def test_one_outlier_does_not_decide():
    rows = make_rows(20)
    train = Trainer()
    wild = Rows(rows.y + 1e6 * (np.arange(20) == 3)[:, None], X=rows.X)
    found = cross_fit(train, [Variant(1.0)], wild, run())
    assert found.optimism == pytest.approx(((19 + 25) / 20,))


@pytest.mark.parametrize("n", [1, 5, MOST_ROWS])
def test_too_few_and_many_rows_are_not_cross_fitted(n):
    train = Trainer()
    assert cross_fit(train, [Variant(1.0)], make_rows(n), run()) == (0, (1.0,))
    assert not train.seen


def test_a_clock_that_stops_ends_it():
    stopped = run()
    stopped.watch.halt()
    train = Trainer()
    assert cross_fit(train, [Variant(5.0)], make_rows(), stopped) == (0, (1.0,))
    assert not train.seen


def test_what_follows_draws_the_same_numbers():
    one, two = run(), run()
    cross_fit(Trainer(), [Variant(1.0)], make_rows(), one)
    cross_fit(Trainer(), [Variant(1.0)] * 3, make_rows(), two)
    assert one.rng.random() == two.rng.random() == run().rng.random()
    assert one.rng.spawn(1)[0].random() == two.rng.spawn(1)[0].random()
