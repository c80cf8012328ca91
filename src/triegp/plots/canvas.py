"""What all displays have, and what several of them draw: lines, bands, legends, heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triegp.plots.palette import current_palette
from triegp.plots.text import shorten

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.colors import Colormap

Floats = npt.NDArray[np.float64]
Style = Mapping[str, Any] | None  # keyword arguments of an artist of matplotlib

BAND_ALPHAS = (0.4, 0.24)  # opacity of bands, inner ones first
N_SHADES = 40  # of a colour map; colour bars of more than 50 become images in SVG files
FAINTEST = 0.04  # opacity of a heat map's lower end
IF_CALIBRATED = "95 % if calibrated"
DASHED = (0, (4, 3))
LONGEST = 18  # characters of a label at a tick
MOST_LETTERS = 12  # per inch of an axis, blanks between labels included, if they stand upright


class Display:
    """Numbers of a picture, which `plot` draws.

    Attributes
    ----------
    ax_ : matplotlib axes
        Where the last plot was drawn.
    figure_ : matplotlib figure
        Its figure.
    """

    ax_: Any

    @property
    def figure_(self) -> Any:
        """The figure of the last plot."""
        return np.ravel(self.ax_)[0].figure

    def _open(self, ax: Any, figsize: tuple[float, float] = (5.4, 3.8), n_axes: int = 1) -> Any:
        """The axes given, or those of a new figure of pyplot; kept as `ax_`."""
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.subplots(1, n_axes, figsize=figsize, layout="constrained")[1]
        elif n_axes > 1:
            ax = np.ravel(ax)
            if ax.size != n_axes:
                raise ValueError(f"ax must be two axes, got {ax.size}")
        self.ax_ = ax
        return ax


def dress(ax: Any, xlabel: str = "", ylabel: str = "", legend: str = "", ncols: int = 1) -> None:
    """Labels and a legend in colours of the palette; no frame at the top and the right.

    legend: where to put it, if there is anything to name.
    """
    ink = current_palette().ink
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink)
        spine.set_linewidth(0.8)
    ax.tick_params(which="both", color=ink, labelcolor=ink)
    ax.set_xlabel(xlabel, color=ink)
    ax.set_ylabel(ylabel, color=ink)
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_offset_text().set_color(ink)
    if legend and ax.get_legend_handles_labels()[0]:
        ax.legend(loc=legend, ncols=ncols, frameon=False, labelcolor=ink, fontsize="small")


def merge(style: Style, **defaults: Any) -> dict[str, Any]:
    """Keyword arguments of an artist: the defaults, replaced by those of a style.

    Abbreviations such as `lw` replace the long names.
    """
    long = {"lw": "linewidth", "ls": "linestyle", "c": "color", "ms": "markersize"}
    return defaults | {long.get(name, name): value for name, value in (style or {}).items()}


def draw_points(ax: Any, x: Any, y: Any, style: Style = None, **defaults: Any) -> None:
    """Round marks without a line between them."""
    defaults = {"marker": "o", "linestyle": "none", "markeredgewidth": 0.0} | defaults
    ax.plot(x, y, **merge(style, **defaults))


def draw_rug(ax: Any, x: Any, y: float = 0.0, **options: Any) -> None:
    """Upright strokes at the bottom of the axes, at a height in shares of it."""
    rug: dict[str, Any] = {"marker": "|", "markersize": 7, "linestyle": "none"}
    rug |= {"color": current_palette().faint, "transform": ax.get_xaxis_transform()}
    ax.plot(x, np.full(len(x), y), **rug, **options)


def draw_reference(ax: Any, x: Any, y: Any, **options: Any) -> None:
    """A dashed line to compare with."""
    faint = current_palette().faint
    ax.plot(x, y, **{"color": faint, "linewidth": 1.0, "linestyle": DASHED, **options})


def draw_expected(ax: Any, x: Any, low: Any, high: Any, style: Style) -> None:
    """The band in which a calibrated model stays."""
    faint = {"color": current_palette().faint, "alpha": 0.25, "linewidth": 0.0, "zorder": 0.5}
    ax.fill_between(x, low, high, **merge(style, **faint, label=IF_CALIBRATED))


def draw_bands(
    ax: Any, x: Any, coverages: Floats, ends: Sequence[Any], style: Style, *, bars: bool = False
) -> None:
    """Bands of the model, inner ones first; ends: low and high (k,) for each coverage.

    bars: whether x are places of bars.
    """
    alphas = np.interp(np.arange(coverages.size), [0, max(coverages.size - 1, 1)], BAND_ALPHAS)
    for coverage, (low, high), alpha in zip(coverages.tolist(), ends, alphas.tolist(), strict=True):
        label = f"{100 * coverage:g} %"
        band = {"color": current_palette().band, "alpha": alpha, "linewidth": 0.0, "label": label}
        if bars:
            ax.bar(x, high - low, 0.6, bottom=low, **merge(style, **band))
        else:
            ax.fill_between(x, low, high, **merge(style, **band, zorder=1.5))


def ramp(color: str = "accent", *, signed: bool = False, strongest: float = 1.0) -> Colormap:
    """A colour map by opacity: of one colour, or from `accent2` over nothing to that colour.

    strongest: opacity of the ends; text in `ink` stays readable on 0.6.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    palette = current_palette()
    upper, lower = to_rgb(getattr(palette, color)), to_rgb(palette.accent2)
    ends = [(0.0, (*upper, FAINTEST)), (1.0, (*upper, strongest))]
    if signed:  # two colours of opacity 0 meet in the middle, so that no hue is mixed from both
        middle = [(0.5, (*lower, 0.0)), (0.5, (*upper, 0.0))]
        ends = [(0.0, (*lower, strongest)), *middle, (1.0, (*upper, strongest))]
    return LinearSegmentedColormap.from_list("triegp", ends, N_SHADES)


def draw_cells(ax: Any, values: Any, label: str, style: Style = None, **defaults: Any) -> None:
    """A heat map of values (l, k) with its colour bar.

    x (k + 1,) and y (l + 1,) among the options are edges of the cells; without them, cells lie
    around 0, 1, ...
    """
    x, y = (
        defaults.pop(name, np.arange(n + 1) - 0.5)
        for name, n in (("x", values.shape[1]), ("y", values.shape[0]))
    )
    drawn = ax.pcolormesh(x, y, values, **merge(style, linewidth=0.0, **defaults))
    draw_colorbar(ax, drawn, label)


def draw_colorbar(ax: Any, mappable: Any, label: str) -> None:
    """A slim colour bar beside the axes."""
    ink = current_palette().ink
    bar = ax.get_figure().colorbar(mappable, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label(label, color=ink)
    bar.ax.tick_params(which="both", color=ink, labelcolor=ink)
    bar.ax.yaxis.get_offset_text().set_color(ink)
    bar.outline.set_visible(False)


def cell_edges(grid: Floats) -> Floats:
    """Edges of cells around numbers, (g + 1,): midpoints, and the ends, beyond which is no data."""
    if grid.size == 1:
        return np.array([grid[0] - 0.5, grid[0] + 0.5])
    return np.concatenate([grid[:1], 0.5 * (grid[:-1] + grid[1:]), grid[-1:]])


def list_names(ax: Any, names: Sequence[str]) -> None:
    """Names at the left, from top to bottom."""
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)


def set_labels(ax: Any, places: Any, labels: Sequence[str]) -> None:
    """Ticks of the x axis with words, turned if they would meet."""
    labels = [shorten(label, LONGEST) for label in labels]
    inches = ax.bbox.width / ax.get_figure().dpi
    turned = sum(len(label) + 1 for label in labels) > MOST_LETTERS * inches
    ax.set_xticks(places, labels, rotation=35 if turned else 0, ha="right" if turned else "center")
    for text in ax.get_xticklabels():
        text.set_rotation_mode("anchor" if turned else "default")


def tick_values(axis: Axis, kind: str, most: int = 8) -> None:
    """Ticks of an axis that shows times as dates."""
    if kind == "time":
        from matplotlib import dates

        # With more ticks at least, spans that no interval divides so finely make it warn.
        locator = dates.AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
