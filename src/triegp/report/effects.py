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
from triegp.metrics.forecasts import sample_rows
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transformed import TransformedDistribution
from triegp.plots.features import column_of, label_column
from triegp.plots.text import show_value
from triegp.report.calendar import Calendar, move_part, read_calendar, read_part

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
PART_NAMES = {"weekday": "day of the week", "hour": "hour of the day"}  # others are as they are
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HOURS = 24  # values of the hour of the day at most, so that whole hours are all there


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
    """Values of one feature, or of a part of its times, at which predictions are made.

    Attributes
    ----------
    feature : int
        Its column.
    label : str
        Its name, with that of the part.
    values : float64 (k,)
        Numbers or codes; NaN is a gap.
    ticks : tuple of str
        The values as text.
    kind : str
        Kind of the column, as in `Columns`; "season", "weekday" or "hour" if the axis is that part
        of times.
    ordered : bool
        Whether the values are more than two numbers, to be joined by a line.
    rug : float64 (21,)
        Quantiles of the feature in the rows; empty if it is not ordered.
    calendar : Calendar or None
        What else there is in the times; None if they are set as a whole, as other features are.
    """

    feature: int
    label: str
    values: Floats
    ticks: tuple[str, ...]
    kind: str
    ordered: bool
    rug: Floats
    calendar: Calendar | None = None

    def place(self, column: Floats, values: Floats) -> Floats:
        """The feature's column of rows (n,), with the axis at values (n,)."""
        if self.calendar is None:
            return values
        part = "trend" if self.kind == "time" else self.kind
        return move_part(column, part, values, self.calendar)


@dataclass(frozen=True, eq=False)
class Effect:
    """Prediction along one feature, averaged over rows of the data, with a 90 % band.

    mean, low, high: float64 (k,). The band is that of the function at a row, on average: the error
    of the averaged curve is at most that. For a transformed target, it is that of the mean of y
    given the function, so it stays in the range of y.

    variance: along the curves of single rows, on average.
    """

    axis: Axis
    mean: Floats
    low: Floats
    high: Floats
    variance: float

    @property
    def common(self) -> float:
        """Share of that variance that the averaged curve has; the rest depends on other features.

        1 if the feature has the same effect in all rows, or none.
        """
        return float(self.mean.var()) / self.variance if self.variance > 0 else 1.0


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
    part = _of_target(model.importances_, target)
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
    """Effect of each feature, of times by part. 1,200 predictions with deviations per number."""
    axes = [axis for j in features for axis in axes_of(model, table, j)]
    return tuple(_effect(model, table, axis, target) for axis in axes)


def strongest_pair(
    model: Any, table: ReadTable, effects: Sequence[Effect], target: int
) -> PairEffect | None:
    """The pair of features whose joint effect is least a sum of two; None without two features.

    Of times, the part with the largest effect counts. 3,000 predictions per pair, 7,200 with hours.
    """
    axes = []
    for j in dict.fromkeys(effect.axis.feature for effect in effects):
        parts = [effect for effect in effects if effect.axis.feature == j]
        label = max(parts, key=lambda effect: effect.variance).axis.label
        same = axes_of(model, table, j, N_PAIR_POINTS)
        axes.append(next(axis for axis in same if axis.label == label))
    effects_of_pairs = (_pair(model, table, pair, target) for pair in combinations(axes, 2))
    return max(effects_of_pairs, key=lambda pair: pair.interplay, default=None)


def axes_of(model: Any, table: ReadTable, j: int, n_points: int = N_POINTS) -> tuple[Axis, ...]:
    """The axis of feature j; of times, one of each part that has several values in the rows."""
    column = np.asarray(table.data[:, j], np.float64)
    times = column[~np.isnan(column)]
    if table.columns.kinds[j] != "time" or not times.size:
        return (axis_of(table, j, n_points),)
    calendar = read_calendar(model, j, times)
    if calendar.parts == ("trend",):
        return (axis_of(table, j, n_points),)
    axes = [_axis_of_part(table, j, part, calendar, times, n_points) for part in calendar.parts]
    return tuple(axis for axis in axes if axis.values.size > 1)


def axis_of(table: ReadTable, j: int, n_points: int = N_POINTS) -> Axis:
    """Values of feature j: evenly spaced numbers, or its most frequent categories."""
    column = column_of(table, j)
    known = column.values[~np.isnan(column.values)]
    distinct, count = np.unique(known, return_counts=True)
    ordered = not column.listed and distinct.size > 2
    if ordered:
        points = _spread(known, n_points)
        rug = np.quantile(known, np.linspace(*ENDS, N_RUG))
    else:
        points = distinct[np.argsort(-count, kind="stable")][: min(MOST_LEVELS, n_points)]
        if column.kind != "category":
            points = np.sort(points)
        if known.size < column.values.size:
            points = np.append(points, np.nan)
        rug = np.empty(0)
    ticks = tuple(column.label(value, 4) for value in points.tolist())
    return Axis(j, column.name, points, ticks, column.kind, ordered, rug)


def _axis_of_part(
    table: ReadTable, j: int, part: str, calendar: Calendar, times: Floats, n_points: int
) -> Axis:
    """Values of a part of the times in column j."""
    values = read_part(times, part)
    if part in ("weekday", "hour"):
        values = np.round(values, 6)  # hours of times that are rounded to microseconds
    points = _spread(values, HOURS if part == "hour" else n_points)
    if part == "trend":
        ticks = [show_value(day, "time") for day in np.floor(points).tolist()]
    elif part == "season":
        days = (np.datetime64("2001-01-01") + points.astype(np.int64)).tolist()
        ticks = [f"{day.day} {MONTHS[day.month - 1]}" for day in days]
    elif part == "weekday":
        ticks = [WEEKDAYS[int(value)] for value in points.tolist()]
    else:
        ticks = [f"{int(value):02d}:{round(60 * (value % 1)):02d}" for value in points.tolist()]
    ordered = part != "weekday"
    return Axis(
        feature=j,
        label=f"{label_column(table.columns, j)}: {PART_NAMES.get(part, part)}",
        values=points,
        ticks=tuple(ticks),
        kind="time" if part == "trend" else part,
        ordered=ordered,
        rug=np.quantile(values, np.linspace(*ENDS, N_RUG)) if ordered else np.empty(0),
        calendar=calendar,
    )


def _spread(values: Floats, n_points: int) -> Floats:
    """The distinct values, or evenly spaced numbers if there are more than n_points."""
    distinct = np.unique(values)
    if distinct.size <= n_points:
        return distinct
    low, high = np.quantile(values, ENDS).tolist()
    return np.unique(np.linspace(low, high, n_points))


def _effect(model: Any, table: ReadTable, axis: Axis, target: int) -> Effect:
    rows = np.asarray(table.data[sample_rows(table.shape[0], N_ROWS)], np.float64)
    grid = np.repeat(rows, axis.values.size, axis=0)
    grid[:, axis.feature] = axis.place(grid[:, axis.feature], np.tile(axis.values, rows.shape[0]))
    curves = np.reshape(
        _with_band(model, ReadTable(grid, table.columns), target), (3, rows.shape[0], -1)
    )
    variance = float(curves[0].var(axis=1).mean())
    mean, low, high = curves.mean(axis=1)
    return Effect(axis, mean, low, high, variance)


def _with_band(model: Any, table: ReadTable, target: int) -> tuple[Floats, Floats, Floats]:
    """Mean of y at each row, and the ends of a 90 % interval of the mean of y given f, (m,) each.

    A transformed y is T^-1(z) with z the function f plus noise. So the mean of y given f is that of
    the distribution of z moved to f and without the variance of f.
    """
    function = _of_target(model.predict_distribution(table, latent=True), target)
    if not isinstance(function, TransformedDistribution):
        mean, half = function.mean(), BAND * function.std()
        return mean, mean - half, mean + half
    new = _of_target(model.predict_distribution(table), target)
    z, centre = new.base, function.base.mean()
    noise = np.maximum(z.variances - function.base.var(), 0.0)
    ends = [
        TransformedDistribution(
            PredictiveDistribution(z.weights, z.means + (end - centre), noise), new.transform
        ).mean()
        for end in function.base.interval(COVERAGE).T
    ]
    return new.mean(), ends[0], ends[1]


def _pair(model: Any, table: ReadTable, axes: tuple[Axis, Axis], target: int) -> PairEffect:
    rows = np.asarray(table.data[sample_rows(table.shape[0], N_PAIR_ROWS)], np.float64)
    places = [part.ravel() for part in np.meshgrid(*(a.values for a in axes), indexing="ij")]
    grid = np.repeat(rows, places[0].size, axis=0)
    for axis, values in zip(axes, places, strict=True):
        grid[:, axis.feature] = axis.place(grid[:, axis.feature], np.tile(values, rows.shape[0]))
    mean = np.asarray(model.predict(ReadTable(grid, table.columns)))
    mean = mean if mean.ndim == 1 else mean[:, target]
    mean = mean.reshape(rows.shape[0], axes[0].values.size, -1).mean(axis=0)
    centred = mean - mean.mean()
    sums = centred.mean(axis=1, keepdims=True) + centred.mean(axis=0, keepdims=True)
    total = float(np.square(centred).sum())
    interplay = float(np.square(centred - sums).sum()) / total if total > 0 else 0.0
    return PairEffect(axes, mean, interplay)


def _of_target(values: Any, target: int) -> Any:
    """What a model returned for one target: an item of a list if it has several."""
    return values[target] if isinstance(values, list) else values
