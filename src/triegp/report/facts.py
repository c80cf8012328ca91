"""All that a report says about a model, computed before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array
from triegp.encoding.tables import ReadTable, read_table
from triegp.report.effects import (
    Effect,
    Importance,
    PairEffect,
    effects_of,
    rank_importances,
    strongest_pair,
)
from triegp.report.fit import Fit, constant_features, describe_fit
from triegp.report.forecasts import LEAVE_ONE_OUT, TEST_SET, Forecast, make_forecast, share_of
from triegp.report.oddities import OddRow, outlying_rows, worst_rows
from triegp.report.regions import (
    FeatureRegions,
    Region,
    regions_by_feature,
    regions_by_width,
)
from triegp.report.scores import Scores, score_baseline, score_forecast

Floats = npt.NDArray[np.float64]

MOST_TARGETS = 8  # that have a section of their own
FEWEST_EFFECTS = 3  # features whose effects are shown, whatever they explain
LEAST_SHARE = 0.005  # explained variance from which on others are shown
PAIR_FEATURES = 3  # most important features among which the strongest pair is searched


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well one target is predicted, by leave-one-out or of a test set.

    Attributes
    ----------
    forecast : Forecast
        Predictions beside targets.
    scores : Scores
        Scores of the model.
    baseline : Scores or None
        Scores of a Gaussian with mean and deviation of the target; None if the target is constant.
    by_width : tuple of Region
        Rows by the width of their intervals.
    """

    forecast: Forecast
    scores: Scores
    baseline: Scores | None
    by_width: tuple[Region, ...]


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
    worst, outliers : tuple of OddRow
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
    regions: tuple[FeatureRegions, ...] | None
    worst: tuple[OddRow, ...]
    outliers: tuple[OddRow, ...]
    n_outliers: int

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
class Given:
    """What was passed with the model: a test set as it was read, and its targets (m, k)."""

    table: ReadTable
    y: Floats
    distributions: Sequence[Any]


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
    fit = describe_fit(model, names)
    gaps = list[Gap]()
    if len(names) > MOST_TARGETS:
        gaps.append(
            Gap(
                f"Sections for {len(names) - MOST_TARGETS:,} of the {len(names):,} targets",
                f"a report has sections for the first {MOST_TARGETS} targets only",
            )
        )
    held = _kept_table(model, gaps)
    loo = _leave_one_out(model, gaps)
    weight = None if loo is None else model.loo_weights()
    given = None if X is None else _read_test_set(model, X, y)
    table = held if held is not None else None if given is None else given.table
    if held is None and given is not None:
        gaps.append(
            Gap(
                "Effects along training rows",
                "training rows are not kept; rows of the test set are used instead",
            )
        )
    found = []
    optimism = np.atleast_1d(model.loo_optimism_)
    for t, name in enumerate(names[:MOST_TARGETS]):
        left = None if loo is None else _evaluate_loo(*loo[t], weight, float(optimism[t]))
        test = None if given is None else _evaluate_test(given, t, left)
        found.append(_describe(model, t, name, left, test, held, given, table, n_effects, n_rows))
    outside = None if given is None else _count_outside(model, given.table)
    return Facts(fit, tuple(found), tuple(gaps), outside, weight is not None)


def name_targets(names: Sequence[str] | None, n_targets: int) -> tuple[str, ...]:
    """Names of the targets: those given, or "y", or "target 0" and so on."""
    if names is None:
        return ("y",) if n_targets == 1 else tuple(f"target {t}" for t in range(n_targets))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"targets must be a sequence of strings, got {names!r:.80}")
    if len(names) != n_targets:
        raise ValueError(f"targets must name {n_targets} targets, got {len(names)}")
    return tuple(names)


def _describe(
    model: Any,
    t: int,
    name: str,
    loo: Evaluation | None,
    test: Evaluation | None,
    held: ReadTable | None,
    given: Given | None,
    table: ReadTable | None,
    n_effects: int,
    n_rows: int,
) -> TargetFacts:
    constant = set(constant_features(model))
    importances = tuple(one for one in rank_importances(model, t) if one.feature not in constant)
    main = loo or test
    own = held if loo is not None else None if given is None else given.table
    effects: tuple[Effect, ...] = ()
    pair = None
    ranked = [one.feature for one in importances]
    if table is not None:
        strong = [one.feature for one in importances if one.share >= LEAST_SHARE]
        shown = [j for k, j in enumerate(ranked) if k < FEWEST_EFFECTS or j in strong]
        effects = effects_of(model, table, shown[:n_effects], t)
        first = ranked[:PAIR_FEATURES]
        searched = [effect for effect in effects if effect.axis.feature in first]
        pair = strongest_pair(model, table, searched, t)
    outliers, n_outliers = ((), 0) if main is None else outlying_rows(main.forecast, own, n_rows)
    return TargetFacts(
        name=name,
        loo=loo,
        test=test,
        n_distinct=None if main is None else int(np.unique(main.forecast.y).size),
        importances=importances,
        effects=effects,
        pair=pair,
        regions=None if main is None or own is None else regions_by_feature(main.forecast, own),
        worst=() if main is None else worst_rows(main.forecast, own, n_rows),
        outliers=outliers,
        n_outliers=n_outliers,
    )


def _kept_table(model: Any, gaps: list[Gap]) -> ReadTable | None:
    """The training rows as a table."""
    rows = model.rows_
    if rows is None:
        gaps.append(
            Gap(
                "Feature values of training rows, and noise by region",
                "training rows are not kept: fit with keep_rows=True, save with "
                "training_data=True (in a terminal: fit without --no-keep-rows), or pass a test "
                "set",
            )
        )
        return None
    return ReadTable(np.asarray(rows.features), model.columns_)


def _leave_one_out(model: Any, gaps: list[Gap]) -> list[tuple[Floats, Any]] | None:
    """Targets and leave-one-out distributions, one pair per target."""
    try:
        y, found = model.loo_targets(), model.loo_distribution()
    except ValueError as error:
        gaps.append(Gap("Leave-one-out of single rows", str(error)))
        return None
    if isinstance(found, list):
        return [(np.asarray(y)[:, t], one) for t, one in enumerate(found)]
    return [(np.asarray(y), found)]


def _read_test_set(model: Any, X: Any, y: Any) -> Given:
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
    found = model.predict_distribution(X)
    return Given(ReadTable(data, columns), targets, found if isinstance(found, list) else [found])


def _evaluate_loo(
    y: Floats, distribution: Any, weight: Floats | None, optimism: float
) -> Evaluation:
    """Leave-one-out; the nll is that of new rows, without what parameters gained."""
    forecast = make_forecast(LEAVE_ONE_OUT, y, distribution, weight)
    centre = share_of(forecast.y, forecast.weight)
    spread = np.sqrt(share_of((forecast.y - centre) ** 2, forecast.weight))
    found = _evaluate(forecast, centre, float(spread))
    return replace(found, scores=replace(found.scores, nll=found.scores.nll + optimism))


def _evaluate_test(given: Given, t: int, loo: Evaluation | None) -> Evaluation:
    """Beside a baseline that has the mean and deviation of the training targets, if known."""
    forecast = make_forecast(TEST_SET, given.y[:, t], given.distributions[t])
    known = forecast if loo is None else loo.forecast
    centre = share_of(known.y, known.weight)
    spread = np.sqrt(share_of((known.y - centre) ** 2, known.weight))
    return _evaluate(forecast, centre, float(spread))


def _evaluate(forecast: Forecast, centre: float, spread: float) -> Evaluation:
    baseline = score_baseline(forecast, centre, spread) if spread > 0 else None
    return Evaluation(forecast, score_forecast(forecast), baseline, regions_by_width(forecast))


def _count_outside(model: Any, table: ReadTable) -> Outside:
    """Rows outside the box; chance puts one there with probability 2 d / (n + 1) at most."""
    n_rows, n_features = table.shape
    outside = int(np.sum(model.outside_box(table)))
    chance = min(1.0, 2.0 * n_features / (float(model.n_rows_) + 1.0))
    return Outside(n_rows, outside, chance * n_rows)
