"""Coverage of intervals in groups of rows: its numbers, and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triegp.plots.canvas import draw_legend, draw_reference, dress, merge
from triegp.plots.forecasts import Forecast, binomial_band, pit_of
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_LETTERS = 12  # per inch of an axis, blanks between labels included, if they stand upright


def inside_intervals(forecast: Forecast, coverage: float) -> Bools:
    """Whether each target lies inside its central interval, bool (m,)."""
    return np.asarray(np.abs(2.0 * pit_of(forecast) - 1.0) <= coverage)


def quantile_bins(values: Floats, n_bins: int) -> tuple[Ints, Floats]:
    """Bins of about equal numbers of rows.

    Equal values share a bin, so there may be fewer bins.

    Returns
    -------
    bins : int64 (m,)
        Bin of each row, 0 to n - 1.
    edges : float64 (n + 1,)
        Smallest value, edges between bins, largest value.
    """
    levels = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    lowest, highest = values.min(), values.max()
    inner = np.unique(np.quantile(values, levels, method="inverted_cdf"))
    inner = inner[inner < highest]
    return np.searchsorted(inner, values, side="left"), np.concatenate([[lowest], inner, [highest]])


def coverage_by_bin(
    inside: Bools, bins: Ints, n_bins: int, coverage: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """Rows, observed coverage and its binomial band in each bin, (n_bins,) each."""
    count = np.bincount(bins, minlength=n_bins)
    observed = np.bincount(bins, inside, minlength=n_bins) / count
    return count, observed, *binomial_band(count, coverage)


def draw_coverage(
    ax: Axes,
    observed: Floats,
    low: Floats,
    high: Floats,
    coverage: float,
    labels: list[str],
    xlabel: str,
    marker_kw: Mapping[str, Any] | None,
    band_kw: Mapping[str, Any] | None,
) -> None:
    """A mark per bin, before the band in which it should lie; marks outside stand out."""
    palette, x = current_palette(), np.arange(observed.size)
    band = {"color": palette.faint, "alpha": 0.25, "linewidth": 0.0, "label": "95 % if calibrated"}
    ax.bar(x, high - low, 0.8, bottom=low, **merge(band, band_kw))
    draw_reference(ax, [-0.5, observed.size - 0.5], [coverage, coverage])
    off = (observed < low) | (observed > high)
    marks: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6}
    for chosen, color, marker, label in (
        (~off, palette.accent, "o", "observed"),
        (off, palette.warn, "D", "observed, outside"),
    ):
        if chosen.any():
            own = {**marks, "color": color, "marker": marker, "label": label}
            ax.plot(x[chosen], observed[chosen], **merge(own, marker_kw))
    bottom = float(min(low.min(), observed.min()))
    ax.set(xlim=(-0.6, observed.size - 0.4), ylim=(max(bottom - 0.25 * (1.0 - bottom), 0), 1.01))
    set_labels(ax, x, labels)
    dress(ax, xlabel, f"coverage of {100 * coverage:g} % intervals")
    draw_legend(ax, loc="lower left", ncols=2)


def set_labels(ax: Axes, places: Any, labels: list[str]) -> None:
    """Ticks with words, turned if they would meet."""
    figure = ax.get_figure()
    assert figure is not None
    inches = ax.bbox.width / figure.dpi
    turned = sum(len(label) + 1 for label in labels) > MOST_LETTERS * inches
    ax.set_xticks(places, labels, rotation=35 if turned else 0, ha="right" if turned else "center")
    for text in ax.get_xticklabels():
        text.set_rotation_mode("anchor" if turned else "default")
