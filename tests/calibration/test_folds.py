"""Cross-fitting: the variant that predicts held-out rows best, and its predictions of them."""

from dataclasses import dataclass

import numpy as np
import pytest

from tolerances import VALUE
from triegp.calibration import folds
from triegp.calibration.folds import TREND_ROWS, CrossFit, cross_fit, learn_trends
from triegp.calibration.trend import choose_share, fit_line, line_at
from triegp.models.distribution import PredictiveDistribution
from triegp.models.folds import FEW_ROWS
from triegp.models.interface import Residuals, Trained
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


@dataclass(frozen=True)
class Variant:
    """Predicts y + new at held-out rows, with this variance."""

    new: float
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
        return Trained(Fitted(variant), False, 1)


def make_rows(n=22, n_targets=1):
    """Targets that are no line of the features; the model reads the first columns."""
    y = np.random.default_rng(0).standard_normal((n, n_targets))
    return Rows(y, X=np.column_stack([y, np.arange(n)]))


@pytest.fixture
def no_trend(monkeypatch):
    monkeypatch.setattr(folds, "choose_share", lambda *args: 0.0)


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


@pytest.mark.usefixtures("no_trend")
def test_the_best_variant_is_chosen_and_its_predictions_told():
    variants = [Variant(3.0), Variant(1.5), Variant(2.0, var=4.0), Variant(1.6, var=2.25)]
    rows = make_rows(n_targets=2)
    found = cross_fit(Trainer(), variants, rows, run())
    # Twice the nll per row at the best common scale: log(var) + log(mean square / var).
    losses = [2 * np.log(v.new) + 2 * np.log(2 * v.new) for v in variants]
    assert found.best == int(np.argmin(losses)) == 1
    assert found.trends == (None, None)
    for column, left in enumerate(found.residuals):
        np.testing.assert_array_equal(left.rows, np.arange(22))
        np.testing.assert_allclose(left.mean, rows.y[:, column] + 1.5 * (1 + column), **VALUE)
        np.testing.assert_array_equal(left.y, rows.y[:, column])
        np.testing.assert_allclose(left.var, 1.0, **VALUE)
        assert left.weight is None
        assert left.fresh.all()


@pytest.mark.usefixtures("no_trend")
def test_one_outlier_does_not_decide():
    rows = make_rows(20)
    wild = Rows(rows.y + 1e6 * (np.arange(20) == 3)[:, None], X=rows.X)
    variants = [Variant(1.0, var=1.2), Variant(3.0)]
    # Means of squares: 19 and the limit 25 times the variance, against 9 each and the limit.
    assert cross_fit(Trainer(), variants, wild, run()).best == 0
    assert cross_fit(Trainer(), variants[::-1], wild, run()).best == 1


class Level(Fitted):
    """Predicts 0."""

    def predict(self, X, column, *, var, latent):
        return PredictiveDistribution(np.ones(1), np.zeros((1, len(X))), np.ones((1, len(X))))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_line_has_a_trend_of_rows_that_it_has_not_seen(weighted):
    rng = np.random.default_rng(0)
    X, weight = rng.random((40, 2)), rng.integers(1, 4, 40).astype(float)
    y = 3 * X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(40)
    rows = Rows((y - y.mean())[:, None], weight=weight if weighted else None, X=X)
    train = Trainer()

    def level(variant, part, run):
        train(variant, Rows(part.y, X=np.column_stack([part.X, part.y])), run)
        return Trained(Level(variant), False, 1)

    found = cross_fit(level, [Variant(0.0)], rows, run())
    (trend,), (left,) = found.trends, found.residuals
    mean, var, weight = np.zeros(40), np.ones(40), rows.weight
    assert trend.share == choose_share(rows.y[:, 0], mean, trend.left, var) > 0.9
    slope, at = fit_line(X, rows.y[:, 0], weight)
    np.testing.assert_array_equal(trend.slope, slope)
    assert trend.level == at
    np.testing.assert_array_equal((trend.low, trend.high), (X.min(axis=0), X.max(axis=0)))
    np.testing.assert_allclose(line_at(trend, X), X @ slope + at, **VALUE)
    np.testing.assert_allclose(left.mean, trend.share * trend.left, **VALUE)
    # Without a row its target does not matter.
    other = Rows(rows.y + 5.0 * (np.arange(40) == 7)[:, None], weight=weight, X=X)
    (again,) = cross_fit(level, [Variant(0.0)], other, run()).trends
    assert again.left[7] == trend.left[7]
    assert (again.left != trend.left).sum() >= 30


@pytest.mark.parametrize("n", [1, 5, FEW_ROWS])
def test_too_few_and_many_rows_are_not_cross_fitted(n):
    train = Trainer()
    assert cross_fit(train, [Variant(1.0)], make_rows(n), run()) == CrossFit(0, None)
    assert not train.seen


def test_a_clock_that_stops_ends_it():
    stopped = run()
    stopped.watch.halt()
    train = Trainer()
    assert cross_fit(train, [Variant(5.0)] * 3, make_rows(), stopped) == CrossFit(0, None)
    assert len(train.seen) <= 1
    assert stopped.left_out == ["cross-fitting"]


def test_what_follows_draws_the_same_numbers():
    one, two = run(), run()
    cross_fit(Trainer(), [Variant(1.0)], make_rows(), one)
    cross_fit(Trainer(), [Variant(1.0)] * 3, make_rows(), two)
    assert one.rng.random() == two.rng.random() == run().rng.random()
    assert one.rng.spawn(1)[0].random() == two.rng.spawn(1)[0].random()


# Trends of more rows


def held_out(rows, mean, fresh):
    n = rows.n_rows
    return Residuals(np.arange(n), mean, np.ones(n), rows.y[:, 0], None, fresh)


def test_the_share_of_a_trend_is_that_of_held_out_rows():
    rng, n = np.random.default_rng(0), FEW_ROWS
    X, fresh = rng.random((n, 2)), np.arange(n) >= n - 200
    rows = Rows((X @ [2.0, -1.0] - 0.5)[:, None], X=X)
    # Means of the rows in training are right, those of held-out rows are not.
    (trend,) = learn_trends(rows, [held_out(rows, np.where(fresh, 0.0, rows.y[:, 0]), fresh)])
    assert trend.share == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(line_at(trend, X), rows.y[:, 0], atol=1e-3)
    np.testing.assert_allclose(trend.left, rows.y[:, 0], atol=1e-3)
    assert learn_trends(rows, [held_out(rows, rows.y[:, 0], fresh)]) == (None,)
    assert learn_trends(rows, [held_out(rows, np.zeros(n), ~fresh & fresh)]) == (None,)


@pytest.mark.parametrize("n", [FEW_ROWS - 1, TREND_ROWS])
def test_other_numbers_of_rows_have_no_such_trend(n):
    X = np.random.default_rng(0).random((n, 1))
    rows = Rows(X - 0.5, X=X)
    assert learn_trends(rows, [held_out(rows, np.zeros(n), np.ones(n, bool))]) == (None,)
