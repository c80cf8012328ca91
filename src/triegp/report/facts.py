"""All that a report says about a model, computed before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array
from triegp.encoding.tables import ReadTable, read_table
from triegp.metrics.forecasts import Forecast, make_forecast, weighted_mean
from triegp.metrics.summary import Scores, Tally
from triegp.models.distribution import PredictiveDistribution
from triegp.report.effects import (
    Effect,
    Importance,
    PairEffect,
    effects_of,
    rank_importances,
    strongest_pair,
)
from triegp.report.fit import Fit, constant_features, describe_fit
from triegp.report.outliers import RowFacts, outlying_rows, worst_rows
from triegp.report.regions import (
    FeatureRegions,
    Region,
    regions_by_feature,
    regions_by_width,
)

Floats = npt.NDArray[np.float64]

LEAVE_ONE_OUT, TEST_SET = "leave-one-out", "test set"  # sources of evaluations
MOST_SAMPLED = 10_000  # rows of which quantiles and CRPS are computed
MOST_TARGETS = 8  # that have a section of their own
FEWEST_EFFECTS = 3  # features whose effects are shown, whatever they explain
LEAST_SHARE = 0.005  # explained variance from which on others are shown
PAIR_FEATURES = 3  # most important features among which the strongest pair is searched


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well one target is predicted, by leave-one-out or of a test set.

    Attributes
    ----------
    source : str
        "leave-one-out" or "test set".
    forecast : Forecast
        Predictions beside targets.
    scores : Scores
        Scores of the model.
    baseline : Scores or None
        Scores of a Gaussian with mean and deviation of the target; None if the target is constant.
    by_width : tuple of Region
        Rows by the width of their intervals.
    """

    source: str
    forecast: Forecast
    scores: Scores
    baseline: Scores | None
    by_width: tuple[Region, ...]

    @property
    def is_new(self) -> bool:
        """Whether nothing was learned from these rows: those of a test set."""
        return self.source == TEST_SET


@dataclass(frozen=True, eq=False)
class TargetFacts:
    """What there is to say about one target.

    Attributes
    ----------
    loo, test : Evaluation or None
        By leave-one-out, and of the test set; None if there is none.
    n_distinct : int or None
        Distinct values of the training target, or of the test set's; None if not known.
    importances : tuple of Importance
        Of all features that are not constant, largest first.
    effects : tuple of Effect
        Of the most important features; empty if no rows are known.
    pair : PairEffect or None
        The strongest pair of the three most important features.
    regions : tuple of FeatureRegions or None
        Widths and coverage by bins of features; of leave-one-out if possible. None if features of
        the rows are not known.
    worst, outliers : tuple of RowFacts
        Rows of largest error, and rows that Gaussian noise does not explain; of leave-one-out if
        possible.
    n_outliers : int
        How many rows Gaussian noise does not explain.
    """

    name: str
    loo: Evaluation | None
    test: Evaluation | None
    n_distinct: int | None
    importances: tuple[Importance, ...]
    effects: tuple[Effect, ...]
    pair: PairEffect | None
    regions: tuple[FeatureRegions, ...] | None = None
    worst: tuple[RowFacts, ...] = ()
    outliers: tuple[RowFacts, ...] = ()
    n_outliers: int = 0

    @property
    def main(self) -> Evaluation | None:
        """The evaluation that tables of rows and regions are about."""
        return self.loo or self.test


@dataclass(frozen=True)
class Gap:
    """Something that the report cannot show: what, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Outside:
    """Rows of the test set outside the training box.

    n_rows: of the test set. n_outside: of them outside. expected: how many chance puts there, at
    most, if test rows are like training rows.
    """

    n_rows: int
    n_outside: int
    expected: float


@dataclass(frozen=True, eq=False)
class Facts:
    """All that a report says about a model.

    Attributes
    ----------
    fit : Fit
        What was fitted.
    targets : tuple of TargetFacts
        At most the first eight targets.
    gaps : tuple of Gap
        What the report cannot show.
    outside : Outside or None
        Rows of the test set outside the training box.
    weighted : bool
        Whether leave-one-out counts rows by their sample weights.
    """

    fit: Fit
    targets: tuple[TargetFacts, ...]
    gaps: tuple[Gap, ...]
    outside: Outside | None
    weighted: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one kind, by leave-one-out or of a test set, before they are compared.

    Attributes
    ----------
    table : ReadTable or None
        Their features; None if they are not known.
    y : float64 (m, k)
        Their targets.
    distributions : list of distributions of m rows
        What was predicted, one per target.
    weight : float64 (m,) or None
        Sample weights.
    """

    table: ReadTable | None
    y: Floats
    distributions: Sequence[Any]
    weight: Floats | None = None

    def forecast(self, t: int) -> Forecast:
        """Target t beside its predictions."""
        return make_forecast(
            self.y[:, t], self.distributions[t], weight=self.weight, most_sampled=MOST_SAMPLED
        )


def gather(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    targets: Sequence[str] | None = None,
    n_effects: int = 6,
    n_rows: int = 10,
) -> Facts:
    """Compute all that a report says.

    Parameters
    ----------
    model : estimator
        A fitted TrieGPRegressor or BinaryTreeGPRegressor.
    X, y : array-like (m, n_features), (m,) or (m, n_targets), optional
        A test set; both or none.
    targets : sequence of str, optional
        Names of the targets.
    n_effects : int
        Number of features whose effects are computed.
    n_rows : int
        Number of rows in the tables of rows.
    """
    names = name_targets(targets, model.target_mean_.size)
    fit, gaps = describe_fit(model, names), list[Gap]()
    if len(names) > MOST_TARGETS:
        gaps.append(
            Gap(
                f"Sections for {len(names) - MOST_TARGETS:,} of the {len(names):,} targets",
                f"a report has sections for the first {MOST_TARGETS} targets only",
            )
        )
    kept = _kept_table(model, gaps)
    training = _leave_one_out(model, kept, gaps)
    test = None if X is None else _read_test_set(model, X, y)
    table = kept
    if kept is None and test is not None:
        table = test.table
        gaps.append(
            Gap(
                "Effects along training rows",
                "training rows are not kept; rows of the test set are used instead",
            )
        )
    constant = constant_features(model)
    facts = []
    for t, name in enumerate(names[:MOST_TARGETS]):
        loo, new = _evaluate(model, t, training, test)
        ranked = [part for part in rank_importances(model, t) if part.feature not in constant]
        effects, pair = _find_effects(model, table, ranked, t, n_effects)
        target = TargetFacts(name, loo, new, None, tuple(ranked), effects, pair)
        rows = test if loo is None else training
        facts.append(target if rows is None else _describe_rows(target, rows.table, n_rows))
    outside = _count_outside(model, None if test is None else test.table)
    weighted = training is not None and training.weight is not None
    return Facts(fit, tuple(facts), tuple(gaps), outside, weighted)


def name_targets(names: Sequence[str] | None, n_targets: int) -> tuple[str, ...]:
    """Names of the targets: those given, or "y", or "target 0" and so on."""
    if names is None:
        return ("y",) if n_targets == 1 else tuple(f"target {t}" for t in range(n_targets))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"targets must be a sequence of strings, got {names!r:.80}")
    if len(names) != n_targets:
        raise ValueError(f"targets must name {n_targets} targets, got {len(names)}")
    return tuple(names)


def _find_effects(
    model: Any, table: ReadTable | None, ranked: Sequence[Importance], t: int, n_effects: int
) -> tuple[tuple[Effect, ...], PairEffect | None]:
    """Effects of the most important features, and the strongest pair of the first three."""
    if table is None:
        return (), None
    shown = [
        part.feature
        for k, part in enumerate(ranked)
        if k < FEWEST_EFFECTS or part.share >= LEAST_SHARE
    ]
    effects = effects_of(model, table, shown[:n_effects], t)
    first = [part.feature for part in ranked[:PAIR_FEATURES]]
    searched = [effect for effect in effects if effect.axis.feature in first]
    return effects, strongest_pair(model, table, searched, t)


def _describe_rows(target: TargetFacts, table: ReadTable | None, n_rows: int) -> TargetFacts:
    """With what there is to say about the rows of its main evaluation."""
    assert target.main is not None
    forecast = target.main.forecast
    outliers, n_outliers = outlying_rows(forecast, table, n_rows)
    return replace(
        target,
        n_distinct=int(np.unique(forecast.y).size),
        regions=None if table is None else regions_by_feature(forecast, table),
        worst=worst_rows(forecast, table, n_rows),
        outliers=outliers,
        n_outliers=n_outliers,
    )


def _kept_table(model: Any, gaps: list[Gap]) -> ReadTable | None:
    """The training rows as a table."""
    if model.rows_ is None:
        gaps.append(
            Gap(
                "Feature values of training rows, and noise by region",
                "training rows are not kept: fit with keep_rows=True, save with "
                "training_data=True (in a terminal: fit without --no-keep-rows), or pass a test "
                "set",
            )
        )
        return None
    return ReadTable(np.asarray(model.rows_.features), model.columns_)


def _leave_one_out(model: Any, table: ReadTable | None, gaps: list[Gap]) -> Rows | None:
    try:
        y, distributions = np.asarray(model.loo_targets()), model.loo_distribution()
    except ValueError as error:
        gaps.append(Gap("Leave-one-out of single rows", str(error)))
        return None
    return Rows(table, y.reshape(len(y), -1), _listed(distributions), model.loo_weights())


def _listed(distributions: Any) -> list[Any]:
    return distributions if isinstance(distributions, list) else [distributions]


def _read_test_set(model: Any, X: Any, y: Any) -> Rows:
    data, columns = read_table(X, model, model.columns_)
    targets = float_array("y", y)
    targets = targets[:, None] if targets.ndim == 1 else targets
    n_targets = model.target_mean_.size
    if targets.shape != (data.shape[0], n_targets):
        raise ValueError(
            f"y must have {data.shape[0]} rows and {n_targets} targets, got shape {np.shape(y)}"
        )
    if not np.isfinite(targets).all():
        row = int(np.argmin(np.isfinite(targets).all(axis=1)))
        raise ValueError(f"y must be finite, got {targets[row].tolist()} at row {row}")
    return Rows(ReadTable(data, columns), targets, _listed(model.predict_distribution(X)))


def _evaluate(
    model: Any, t: int, training: Rows | None, test: Rows | None
) -> tuple[Evaluation | None, Evaluation | None]:
    """By leave-one-out and of the test set.

    The nll of leave-one-out is that of new rows, without what parameters gained. Baselines have
    mean and deviation of the training targets, or of the test set's if those are not known.
    """
    known, loo = None, None
    if training is not None:
        known = training.forecast(t)
        loo = compare_forecasts(LEAVE_ONE_OUT, known, known)
        optimism = float(np.atleast_1d(model.loo_optimism_)[t])
        loo = replace(loo, scores=replace(loo.scores, nll=loo.scores.nll + optimism))
    if test is None:
        return loo, None
    forecast = test.forecast(t)
    return loo, compare_forecasts(TEST_SET, forecast, known or forecast)


def compare_forecasts(source: str, forecast: Forecast, known: Forecast) -> Evaluation:
    """Scores beside those of a Gaussian with mean and deviation of known targets."""
    centre = weighted_mean(known.y, known.weight)
    variance = weighted_mean((known.y - centre) ** 2, known.weight)
    baseline = None
    if variance > 0:
        means, variances = (np.full((1, forecast.n_rows), value) for value in (centre, variance))
        same = PredictiveDistribution(np.ones(1), means, variances)
        baseline = Tally().add(replace(forecast, distribution=same)).scores()
    by_width = regions_by_width(forecast)
    return Evaluation(source, forecast, Tally().add(forecast).scores(), baseline, by_width)


def _count_outside(model: Any, table: ReadTable | None) -> Outside | None:
    """Rows outside the box; chance puts one there with probability 2 d / (n + 1) at most."""
    if table is None:
        return None
    n_rows, n_features = table.shape
    outside = int(np.sum(model.outside_box(table)))
    chance = min(1.0, 2.0 * n_features / (float(model.n_rows_) + 1.0))
    return Outside(n_rows, outside, chance * n_rows)
