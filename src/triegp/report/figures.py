"""The figures of a report, drawn from its facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triegp.metrics.forecasts import binomial_band, sample_rows
from triegp.plots import CalibrationDisplay, CoverageByWidthDisplay, PitDisplay
from triegp.plots.canvas import (
    cell_edges,
    draw_cells,
    draw_points,
    draw_reference,
    draw_rug,
    dress,
    ramp,
    set_labels,
    tick_values,
)
from triegp.plots.palette import current_palette
from triegp.plots.text import shorten, show_number
from triegp.report.effects import MONTHS, Axis, Effect, PairEffect
from triegp.report.facts import Evaluation
from triegp.report.markup import Html
from triegp.report.svg import draw_svg

MOST_POINTS = 500  # of a scatter plot
MOST_LETTERS = 16  # of a label of a category
SMALL = (3.3, 2.4)  # inches
SQUARE = (3.3, 3.1)
QUARTERS = (0, 90, 181, 273)  # days of the year on which they begin
N_SHADES = 24  # of a map; matplotlib draws colour bars of 50 shades or more as pixels


def calibration_figure(evaluation: Evaluation, name: str) -> Html:
    """Nominal against observed coverage."""
    display = CalibrationDisplay.from_forecast(evaluation.forecast)
    off = float(np.max(np.abs(display.observed - display.nominal)))
    return draw_svg(
        display.plot,
        name=name,
        title="Calibration curve",
        description="Nominal coverage of central intervals against the share of targets inside, "
        f"by {evaluation.source}. The curve is at most {100 * off:.1f} percentage points from the "
        "diagonal, where a calibrated model lies.",
        size=SQUARE,
    )


def pit_figure(evaluation: Evaluation, name: str) -> Html:
    """Histogram of P(Y <= y)."""
    display = PitDisplay.from_forecast(evaluation.forecast)
    low, high = display.density.min(), display.density.max()
    return draw_svg(
        display.plot,
        name=name,
        title="Histogram of predicted probabilities",
        description="How often targets fall into each twentieth of their predictive distribution, "
        f"by {evaluation.source}. A calibrated model has bars of height 1; these range from "
        f"{low:.2f} to {high:.2f}.",
        size=SQUARE,
    )


def width_figure(evaluation: Evaluation, name: str) -> Html | None:
    """Coverage by width of the intervals; None if there are too few rows."""
    regions = evaluation.by_width
    if len(regions) < 2:
        return None
    width, observed, count, n_effective = (
        np.array([getattr(region, part) for region in regions])
        for part in ("width", "coverage", "n_rows", "n_effective")
    )
    bands = binomial_band(np.round(n_effective), 0.9)
    edges = np.append(width, width[-1])
    display = CoverageByWidthDisplay(0.9, width, edges, count, observed, *bands)

    def draw(ax: Any) -> None:
        display.plot(ax)
        ax.set_xlabel("mean width of the intervals in a group")
        ax.get_legend().remove()  # the caption says it

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
    rows = sample_rows(forecast.n_rows, MOST_POINTS)

    def draw(ax: Any) -> None:
        x, y = forecast.mean[rows], forecast.y[rows]
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        draw_reference(ax, ends, ends)
        draw_points(ax, x, y, color=current_palette().accent, alpha=0.45, markersize=3)
        dress(ax, "predicted", "observed")

    return draw_svg(
        draw,
        name=name,
        title="Observed against predicted",
        description=f"{rows.size:,} rows, each a point; on the dashed diagonal the prediction is "
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

    def draw(ax: Any) -> None:
        palette = current_palette()
        if axis.ordered:
            band = {"color": palette.band, "alpha": 0.2, "linewidth": 0}
            ax.fill_between(axis.values, effect.low, effect.high, **band)
            ax.plot(axis.values, effect.mean, color=palette.accent, linewidth=1.8)
            draw_rug(ax, axis.rug, clip_on=False)
        else:
            x = np.arange(axis.values.size)
            ax.vlines(x, effect.low, effect.high, color=palette.band, alpha=0.35, linewidth=5)
            draw_points(ax, x, effect.mean, color=palette.accent)
            ax.set_xlim(-0.6, x.size - 0.4)
        ax.set_ylim(*limits)
        dress(ax, shorten(axis.label, 40), shorten(target, 24))
        _label_axis(ax, "x", axis)

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
    first, second = pair.axes
    edges: dict[str, Any] = {
        name: cell_edges(axis.values)
        for name, axis in zip("xy", pair.axes, strict=True)
        if axis.ordered
    }

    def draw(ax: Any) -> None:
        dress(ax, shorten(first.label, 40), shorten(second.label, 30))
        _label_axis(ax, "x", first)
        _label_axis(ax, "y", second)
        colors = ramp().resampled(N_SHADES)
        draw_cells(ax, pair.mean.T, shorten(target, 24), cmap=colors, **edges)

    i, j = np.unravel_index(int(np.argmax(pair.mean)), pair.mean.shape)
    return draw_svg(
        draw,
        name=name,
        title=f"Joint effect of {first.label} and {second.label}",
        description=f"Prediction of {target} along both features, averaged over rows: highest, "
        f"{show_number(float(pair.mean[i, j]), 3)}, at {first.label} {first.ticks[i]} and "
        f"{second.label} {second.ticks[j]}.",
        size=SQUARE,
    )


def _label_axis(ax: Any, name: str, axis: Axis) -> None:
    """Few ticks of the "x" or "y" axis; those of times are dates, those of categories words."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    line = getattr(ax, f"{name}axis")
    if not axis.ordered:
        places = np.arange(axis.values.size)
        words = [shorten(word, MOST_LETTERS) for word in axis.ticks]
        if name == "x":
            set_labels(ax, places, words)
        else:
            line.set_ticks(places, words)
    elif axis.kind == "time":
        tick_values(line, "time", 5)
    elif axis.kind == "season":
        line.set_ticks(QUARTERS, MONTHS[::3])
    else:
        line.set_major_locator(MultipleLocator(6) if axis.kind == "hour" else MaxNLocator(5))
