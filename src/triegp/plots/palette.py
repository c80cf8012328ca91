"""The colours of all displays: one record, which can be swapped for the time of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Every colour that displays draw with, as matplotlib reads colours.

    Displays use these colours and no others. Shades are made by opacity, never by mixing with
    white, so that pictures suit light and dark backgrounds, and an SVG file contains these colours
    as they are.

    Attributes
    ----------
    ink : str
        Text, axes, and marks that must be read.
    faint : str
        Data points, reference lines and secondary text.
    grid : str
        Grid lines and borders of cells.
    accent : str
        What the model says: means, curves, bars; the upper end of heat maps.
    accent2 : str
        A second curve; the lower end of heat maps with a sign.
    accent3 : str
        A third curve.
    band : str
        Bands of the model, filled with an opacity of their own.
    warn : str
        What lies outside where it should lie.

    Examples
    --------
    >>> from triegp.plots import Palette, use_palette
    >>> from triegp.plots.palette import LIGHT, current_palette
    >>> from dataclasses import replace
    >>> with use_palette(replace(LIGHT, accent="#123456")):
    ...     current_palette().accent
    '#123456'
    """

    ink: str
    faint: str
    grid: str
    accent: str
    accent2: str
    accent3: str
    band: str
    warn: str


# Hues of Okabe and Ito's palette, which the common forms of colour blindness keep apart; on dark
# backgrounds in lighter shades.
LIGHT = Palette(
    ink="#222222",
    faint="#757575",
    grid="#cfcfcf",
    accent="#0072b2",
    accent2="#d55e00",
    accent3="#009e73",
    band="#0072b2",
    warn="#d55e00",
)
DARK = Palette(
    ink="#e8e8e8",
    faint="#a0a0a0",
    grid="#4a4a4a",
    accent="#56b4e9",
    accent2="#f0894a",
    accent3="#2fc79b",
    band="#56b4e9",
    warn="#f0894a",
)

_swapped: ContextVar[Palette | None] = ContextVar("palette", default=None)


@contextmanager
def use_palette(palette: Palette) -> Iterator[Palette]:
    """Draw with another palette inside a `with` block; in this thread or task only."""
    if not isinstance(palette, Palette):
        raise TypeError(f"palette must be a Palette, got {type(palette).__name__}")
    token = _swapped.set(palette)
    try:
        yield palette
    finally:
        _swapped.reset(token)


def current_palette() -> Palette:
    """The palette of the innermost `use_palette`; else LIGHT or DARK by matplotlib's text colour.

    So pictures suit `plt.style.use("dark_background")` and similar styles.
    """
    palette = _swapped.get()
    if palette is not None:
        return palette
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(rcParams["text.color"])
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5 else LIGHT
