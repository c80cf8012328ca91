"""Axes and what several displays draw on them: lines, bands, legends, heat maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

Floats = npt.NDArray[np.float64]

BAND_ALPHAS = (0.4, 0.24)  # opacity of bands, inner ones first
N_SHADES = 40  # of a colour map; colour bars of more than 50 become images in SVG files
FAINTEST = 0.04  # opacity of a heat map's lower end


def open_axes(ax: Axes | None, figsize: tuple[float, float] = (5.4, 3.8)) -> Axes:
    """The axes given, or those of a new figure of pyplot."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def open_pair(ax: Any, figsize: tuple[float, float] = (9.6, 3.8)) -> Any:
    """The two axes given, or those of a new figure of pyplot, as an array (2,)."""
    if ax is None:
        from matplotlib import pyplot as plt

        return plt.subplots(1, 2, figsize=figsize, layout="constrained")[1]
    pair = np.ravel(ax)
    if pair.size != 2:
        raise ValueError(f"ax must be two axes, got {pair.size}")
    return pair


def dress(ax: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Colours of the palette for axes and labels; no frame at the top and the right."""
    palette = current_palette()
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(palette.ink)
        spine.set_linewidth(0.8)
    ax.tick_params(which="both", color=palette.ink, labelcolor=palette.ink)
    ax.set_xlabel(xlabel, color=palette.ink)
    ax.set_ylabel(ylabel, color=palette.ink)
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_offset_text().set_color(palette.ink)
    if title:
        ax.set_title(title, color=palette.ink)


def merge(defaults: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keyword arguments of an artist: the defaults, replaced by what was given.

    Abbreviations such as `lw` replace the long names.
    """
    long = {"lw": "linewidth", "ls": "linestyle", "c": "color", "ms": "markersize"}
    own = {long.get(name, name): value for name, value in (given or {}).items()}
    return {**defaults, **own}


def draw_legend(ax: Axes, **options: Any) -> None:
    """A legend without frame, if there is more than nothing to name."""
    if ax.get_legend_handles_labels()[0]:
        defaults = {"frameon": False, "labelcolor": current_palette().ink, "fontsize": "small"}
        ax.legend(**{**defaults, **options})


def draw_reference(ax: Axes, x: Any, y: Any, **options: Any) -> None:
    """A dashed line to compare with."""
    defaults = {"color": current_palette().faint, "linewidth": 1.0, "linestyle": (0, (4, 3))}
    ax.plot(x, y, **merge(defaults, options))


def draw_expected(ax: Axes, x: Any, low: Any, high: Any, label: str, **options: Any) -> None:
    """The band in which a calibrated model stays."""
    defaults = {"color": current_palette().faint, "alpha": 0.25, "linewidth": 0.0, "zorder": 0.5}
    ax.fill_between(x, low, high, **merge({**defaults, "label": label}, options))


def ramp(color: str = "accent", *, signed: bool = False, strongest: float = 1.0) -> Colormap:
    """A colour map by opacity: of one colour, or from `accent2` over nothing to that colour.

    strongest: opacity of the ends; text in `ink` stays readable on 0.6.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    palette = current_palette()
    upper = to_rgb(getattr(palette, color))
    if not signed:
        ends = [(*upper, FAINTEST), (*upper, strongest)]
        return LinearSegmentedColormap.from_list("triegp", ends, N_SHADES)
    lower = to_rgb(palette.accent2)
    # Two colours of opacity 0 meet in the middle, so that no hue is mixed from both.
    stops = [
        (0.0, (*lower, strongest)),
        (0.5, (*lower, 0.0)),
        (0.5, (*upper, 0.0)),
        (1.0, (*upper, strongest)),
    ]
    return LinearSegmentedColormap.from_list("triegp-signed", stops, N_SHADES)


def draw_cells(ax: Axes, x: Any, y: Any, values: Any, **options: Any) -> Any:
    """A heat map: x (k + 1,) and y (l + 1,) are edges of the cells, values (l, k)."""
    return ax.pcolormesh(x, y, values, **{"linewidth": 0.0, **options})


def draw_colorbar(ax: Axes, mappable: Any, label: str) -> None:
    """A slim colour bar beside the axes."""
    palette = current_palette()
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(mappable, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label(label, color=palette.ink)
    bar.ax.tick_params(which="both", color=palette.ink, labelcolor=palette.ink)
    bar.ax.yaxis.get_offset_text().set_color(palette.ink)
    bar.outline.set_visible(False)
