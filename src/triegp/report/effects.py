"""What features do: importances, and predictions along a feature or a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from triegp.encoding.tables import ReadTable
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transformed import TransformedDistribution
from triegp.report.features import BY_CODE, label_column, show_value
from triegp.report.forecasts import draw_rows

Floats = npt.NDArray[np.float64]

N_ROWS = 60  # that predictions along a feature are averaged over
N_PAIR_ROWS = 30
N_POINTS = 20  # along a number
MOST_LEVELS = 8  # of a category
N_PAIR_POINTS = 10
ENDS = (0.01, 0.99)  # quantiles of a number between which effects are shown
COVERAGE = 0.9  # of bands
BAND = float(ndtri(0.5 + 0.5 * COVERAGE))  # deviations on each side of a band
N_RUG = 21  # quantiles that show where the rows are


@dataclass(frozen=True)
class Importance:
    """One feature: shares of explained variance, in all, of the smooth part, and by bit."""

    feature: int
    label: str
    share: float
    smooth: float
    by_bit: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Axis:
    """Values of one feature at which predictions are made.

    Attributes
    ----------
    feature : int
        Its column.
    label : str
        Its name.
    values : float64 (k,)
        Numbers or codes; NaN is a gap.
    ticks : tuple of str
        The values as text.
    kind : str
        Kind of the column, as in `Columns`.
    ordered : bool
        Whether the values are numbers, to be joined by a line.
    rug : float64 (21,)
        Quantiles of the feature in the rows; empty if it is not ordered.
    """

    feature: int
    label: str
    values: Floats
    ticks: tuple[str, ...]
    kind: str
    ordered: bool
    rug: Floats


@dataclass(frozen=True, eq=False)
class Effect:
    """Prediction along one feature, averaged over rows of the data, with a 90 % band.

    mean, low, high: float64 (k,). The band is that of the function at a row, on average: the error
    of the averaged curve is at most that. For a transformed target, it is that of the mean of y
    given the function, so it stays in the range of y.
    """

    axis: Axis
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class PairEffect:
    """Prediction along two features, averaged over rows of the data.

    mean: float64 (k0, k1). interplay: share of its variance that is not a sum of two effects.
    """

    axes: tuple[Axis, Axis]
    mean: Floats
    interplay: float


def rank_importances(model: Any, target: int) -> tuple[Importance, ...]:
    """Importances of all features for one target, largest first."""
    found = model.importances_
    part = found[target] if isinstance(found, list) else found
    return tuple(
        Importance(
            feature=j,
            label=label_column(model.columns_, j),
            share=float(part.explained[j]),
            smooth=float(part.explained_smooth[j]),
            by_bit=tuple(part.explained_by_bit[j].tolist()),
        )
        for j in np.argsort(-part.explained, kind="stable").tolist()
    )


def effects_of(
    model: Any, table: ReadTable, features: Sequence[int], target: int
) -> tuple[Effect, ...]:
    """Effect of each feature. 1,200 predictions with deviations per number."""
    return tuple(_effect(model, table, axis_of(table, j), target) for j in features)


def strongest_pair(
    model: Any, table: ReadTable, features: Sequence[int], target: int
) -> PairEffect | None:
    """The pair of features whose joint effect is least a sum of two; None without two features.

    3,000 predictions per pair.
    """
    found = [_pair(model, table, pair, target) for pair in combinations(features, 2)]
    return max(found, key=lambda one: one.interplay, default=None)


def axis_of(table: ReadTable, j: int, n_points: int = N_POINTS) -> Axis:
    """Values of feature j: evenly spaced numbers, or its most frequent categories."""
    columns = table.columns
    values = np.asarray(table.data[:, j], np.float64)
    there = values[~np.isnan(values)]
    ordered = columns.kinds[j] not in BY_CODE and there.size > 0
    if ordered:
        distinct = np.unique(there)
        points = distinct
        if distinct.size > n_points:
            low, high = (float(np.quantile(there, end)) for end in ENDS)
            points = np.unique(np.linspace(low, high, n_points))
        rug = np.quantile(there, np.linspace(*ENDS, N_RUG))
    else:
        codes, count = np.unique(there, return_counts=True)
        points = codes[np.argsort(-count, kind="stable")][: min(MOST_LEVELS, n_points)]
        if columns.kinds[j] == "ordered":
            points = np.sort(points)
        if there.size < values.size:
            points = np.append(points, np.nan)
        rug = np.empty(0)
    ticks = tuple(show_value(columns, j, value) for value in points.tolist())
    return Axis(j, label_column(columns, j), points, ticks, columns.kinds[j], ordered, rug)


def _effect(model: Any, table: ReadTable, axis: Axis, target: int) -> Effect:
    rows = table.data[draw_rows(table.shape[0], N_ROWS)]
    grid = np.repeat(np.asarray(rows, np.float64), axis.values.size, axis=0)
    grid[:, axis.feature] = np.tile(axis.values, rows.shape[0])
    found = _with_band(model, ReadTable(grid, table.columns), target)
    return Effect(axis, *(part.reshape(rows.shape[0], -1).mean(axis=0) for part in found))


def _with_band(model: Any, table: ReadTable, target: int) -> tuple[Floats, Floats, Floats]:
    """Mean of y at each row, and the ends of a 90 % interval of the mean of y given f, (m,) each.

    A transformed y is T^-1(z) with z the function f plus noise. So the mean of y given f is that of
    the distribution of z moved to f and without the variance of f.
    """
    function = _one(model.predict_distribution(table, latent=True), target)
    if not isinstance(function, TransformedDistribution):
        mean, half = function.mean(), BAND * function.std()
        return mean, mean - half, mean + half
    new = _one(model.predict_distribution(table), target)
    z, centre = new.base, function.base.mean()
    noise = np.maximum(z.variances - function.base.var(), 0.0)
    ends = [
        TransformedDistribution(
            PredictiveDistribution(z.weights, z.means + (end - centre), noise), new.transform
        ).mean()
        for end in function.base.interval(COVERAGE).T
    ]
    return new.mean(), ends[0], ends[1]


def _pair(model: Any, table: ReadTable, pair: tuple[int, int], target: int) -> PairEffect:
    rows = table.data[draw_rows(table.shape[0], N_PAIR_ROWS)]
    axes = axis_of(table, pair[0], N_PAIR_POINTS), axis_of(table, pair[1], N_PAIR_POINTS)
    one, other = (part.ravel() for part in np.meshgrid(*(a.values for a in axes), indexing="ij"))
    grid = np.repeat(np.asarray(rows, np.float64), one.size, axis=0)
    grid[:, pair[0]], grid[:, pair[1]] = np.tile(one, rows.shape[0]), np.tile(other, rows.shape[0])
    mean = _column(model.predict(ReadTable(grid, table.columns)), target)
    mean = mean.reshape(rows.shape[0], axes[0].values.size, -1).mean(axis=0)
    centred = mean - mean.mean()
    sums = centred.mean(axis=1, keepdims=True) + centred.mean(axis=0, keepdims=True)
    total = float(np.square(centred).sum())
    interplay = float(np.square(centred - sums).sum()) / total if total > 0 else 0.0
    return PairEffect(axes, mean, interplay)


def _one(found: Any, target: int) -> Any:
    """The distribution of one target, of what `predict_distribution` returned."""
    return found[target] if isinstance(found, list) else found


def _column(values: Any, target: int) -> Floats:
    """One target of what `predict` returned, (m,)."""
    found = np.asarray(values)
    return found if found.ndim == 1 else found[:, target]
