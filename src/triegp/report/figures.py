"""The figures of a report, drawn from its facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from triegp.plots import CalibrationDisplay, CoverageByWidthDisplay, PitDisplay
from triegp.plots.canvas import draw_cells, draw_colorbar, draw_reference, dress, ramp
from triegp.plots.forecasts import binomial_band
from triegp.plots.grids import cell_edges
from triegp.plots.numbers import show_number
from triegp.plots.palette import current_palette
from triegp.report.effects import MONTHS, Axis, Effect, PairEffect
from triegp.report.facts import Evaluation
from triegp.report.forecasts import draw_rows
from triegp.report.markup import Html
from triegp.report.svg import draw_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

MOST_POINTS = 500  # of a scatter plot
MOST_LETTERS = 16  # of a label of a category
MOST_UPRIGHT = 34  # of all labels of an axis, if they stand upright
CURVE = np.linspace(0.02, 0.98, 49)  # nominal coverages of the calibration curve
N_PIT = 20  # bins of the PIT histogram
SMALL = (3.3, 2.4)  # inches
SQUARE = (3.3, 3.1)
QUARTERS = (0, 90, 181, 273)  # days of the year on which they begin
N_SHADES = 24  # of a map; matplotlib draws colour bars of 50 shades or more as pixels


def calibration_figure(evaluation: Evaluation, name: str) -> Html:
    """Nominal against observed coverage."""
    forecast = evaluation.forecast
    reached = np.abs(2.0 * forecast.pit - 1.0)
    order = np.argsort(reached, kind="stable")
    weight = np.ones(reached.size) if forecast.weight is None else forecast.weight
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    observed = total[np.searchsorted(reached[order], CURVE, side="right")] / total[-1]
    bands = binomial_band(round(evaluation.scores.n_effective), CURVE)
    display = CalibrationDisplay(CURVE, observed, *bands, forecast.n_rows)
    off = float(np.max(np.abs(observed - CURVE)))
    return draw_svg(
        display.plot,
        name=name,
        title="Calibration curve",
        description="Nominal coverage of central intervals against the share of targets inside, "
        f"by {forecast.source}. The curve is at most {100 * off:.1f} percentage points from the "
        "diagonal, where a calibrated model lies.",
        size=SQUARE,
    )


def pit_figure(evaluation: Evaluation, name: str) -> Html:
    """Histogram of P(Y <= y)."""
    forecast = evaluation.forecast
    edges = np.linspace(0.0, 1.0, N_PIT + 1)
    count = np.histogram(forecast.pit, edges, weights=forecast.weight)[0]
    density = count * (N_PIT / count.sum())
    bands = binomial_band(round(evaluation.scores.n_effective), 1.0 / N_PIT)
    low, high = (float(N_PIT * part) for part in bands)
    display = PitDisplay(forecast.pit, edges, density, low, high)
    return draw_svg(
        display.plot,
        name=name,
        title="Histogram of predicted probabilities",
        description="How often targets fall into each twentieth of their predictive distribution, "
        f"by {forecast.source}. A calibrated model has bars of height 1; these range from "
        f"{density.min():.2f} to {density.max():.2f}.",
        size=SQUARE,
    )


def width_figure(evaluation: Evaluation, name: str) -> Html | None:
    """Coverage by width of the intervals; None if there are too few rows."""
    regions = evaluation.by_width
    if len(regions) < 2:
        return None
    count = np.array([region.n_rows for region in regions])
    width = np.array([region.width for region in regions])
    observed = np.array([region.coverage for region in regions])
    bands = binomial_band(np.round([region.n_effective for region in regions]), 0.9)
    display = CoverageByWidthDisplay(
        0.9, width, np.append(width, width[-1]), count, observed, *bands
    )

    def draw(ax: Axes) -> None:
        display.plot(ax)
        ax.set_xlabel("mean width of the intervals in a group")
        legend = ax.get_legend()
        if legend is not None:  # the caption says it
            legend.remove()

    return draw_svg(
        draw,
        name=name,
        title="Coverage by width",
        description=f"Share of targets inside their 90 % interval, in {len(regions)} groups of "
        f"rows from narrow to wide intervals. It ranges from {observed.min():.1%} to "
        f"{observed.max():.1%}.",
        size=SQUARE,
    )


def scatter_figure(evaluation: Evaluation, name: str) -> Html:
    """Observed against predicted values."""
    forecast = evaluation.forecast
    some = draw_rows(forecast.n_rows, MOST_POINTS)

    def draw(ax: Axes) -> None:
        palette = current_palette()
        x, y = forecast.mean[some], forecast.y[some]
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        draw_reference(ax, ends, ends)
        ax.plot(
            x, y, linestyle="none", marker="o", markersize=3, markeredgewidth=0,
            color=palette.accent, alpha=0.45,
        )  # fmt: skip
        dress(ax, "predicted", "observed")

    return draw_svg(
        draw,
        name=name,
        title="Observed against predicted",
        description=f"{some.size:,} rows, each a point; on the dashed diagonal the prediction is "
        f"right. The typical distance is {show_number(evaluation.scores.mae, 3)}.",
        size=SQUARE,
    )


def effect_limits(effects: Sequence[Effect]) -> tuple[float, float]:
    """Limits of the y axis that suit all effects."""
    low = min(float(effect.low.min()) for effect in effects)
    high = max(float(effect.high.max()) for effect in effects)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def effect_figure(effect: Effect, target: str, name: str, limits: tuple[float, float]) -> Html:
    """Prediction along one feature, with its band."""
    axis = effect.axis

    def draw(ax: Axes) -> None:
        palette = current_palette()
        if axis.ordered:
            ax.fill_between(
                axis.values, effect.low, effect.high,
                color=palette.band, alpha=0.2, linewidth=0,
            )  # fmt: skip
            ax.plot(axis.values, effect.mean, color=palette.accent, linewidth=1.8)
            ax.plot(
                axis.rug, np.zeros(axis.rug.size), transform=ax.get_xaxis_transform(),
                linestyle="none", marker="|", markersize=7, color=palette.faint, clip_on=False,
            )  # fmt: skip
        else:
            x = np.arange(axis.values.size)
            ax.vlines(x, effect.low, effect.high, color=palette.band, alpha=0.35, linewidth=5)
            ax.plot(x, effect.mean, linestyle="none", marker="o", color=palette.accent)
            ax.set_xlim(-0.6, x.size - 0.4)
        ax.set_ylim(*limits)
        _label_axis(ax.xaxis, axis)
        dress(ax, _shorten(axis.label, 40), _shorten(target, 24))

    top, bottom = int(np.argmax(effect.mean)), int(np.argmin(effect.mean))
    return draw_svg(
        draw,
        name=name,
        title=f"Effect of {axis.label}",
        description=f"Prediction of {target} along {axis.label}, averaged over rows: lowest, "
        f"{show_number(float(effect.mean[bottom]), 3)}, at {axis.ticks[bottom]}; highest, "
        f"{show_number(float(effect.mean[top]), 3)}, at {axis.ticks[top]}.",
        size=SMALL,
    )


def pair_figure(pair: PairEffect, target: str, name: str) -> Html:
    """Prediction along two features, as a map."""

    def draw(ax: Axes) -> None:
        one, other = pair.axes
        x, y = (
            cell_edges(axis.values) if axis.ordered else np.arange(axis.values.size + 1) - 0.5
            for axis in pair.axes
        )
        drawn = draw_cells(ax, x, y, pair.mean.T, cmap=ramp().resampled(N_SHADES))
        _label_axis(ax.xaxis, one)
        _label_axis(ax.yaxis, other)
        dress(ax, _shorten(one.label, 40), _shorten(other.label, 30))
        draw_colorbar(ax, drawn, _shorten(target, 24))

    one, other = pair.axes
    i, j = np.unravel_index(int(np.argmax(pair.mean)), pair.mean.shape)
    return draw_svg(
        draw,
        name=name,
        title=f"Joint effect of {one.label} and {other.label}",
        description=f"Prediction of {target} along both features, averaged over rows: highest, "
        f"{show_number(float(pair.mean[i, j]), 3)}, at {one.label} {one.ticks[i]} and "
        f"{other.label} {other.ticks[j]}.",
        size=SQUARE,
    )


def _label_axis(line: XAxis | YAxis, axis: Axis) -> None:
    """Few ticks; those of times are dates, those of categories words."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    if not axis.ordered:
        words = [_shorten(word, MOST_LETTERS) for word in axis.ticks]
        line.set_ticks(np.arange(axis.values.size), words)
        if line.axis_name == "x" and sum(map(len, words)) > MOST_UPRIGHT:
            for tick in line.get_ticklabels():
                tick.set(rotation=35, ha="right", rotation_mode="anchor")
    elif axis.kind == "time":
        step = max(1, (axis.values.size - 1) // 2)
        line.set_ticks(axis.values[::step], [word[:10] for word in axis.ticks[::step]])
    elif axis.kind == "season":
        line.set_ticks(QUARTERS, MONTHS[::3])
    elif axis.kind == "hour":
        line.set_major_locator(MultipleLocator(6))
    else:
        line.set_major_locator(MaxNLocator(5))


def _shorten(word: str, most: int) -> str:
    return word if len(word) <= most else f"{word[: most - 1]}…"
