"""Figures of matplotlib as inline SVG that takes its colours and fonts from the page.

Figures are drawn with a palette of sentinel colours, which are then replaced by CSS variables: one
picture serves light and dark pages. Ids are unique on the page. Bytes depend on the figure only.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import fields
from io import StringIO
from typing import TYPE_CHECKING, Any

from triegp.plots import Palette, use_palette
from triegp.report.markup import Html, clean, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# No colour of matplotlib's own is one of these.
SENTINELS = Palette(**{part.name: f"#fe01{16 + k:02x}" for k, part in enumerate(fields(Palette))})
POINTS = 9.5  # font size; figures are shown at about this many points per inch of 72
NUMBER = re.compile(r"-?\d+\.\d+")


def draw_svg(
    draw: Callable[[Axes], Any],
    *,
    name: str,
    title: str,
    description: str,
    size: tuple[float, float] = (3.7, 2.7),
) -> Html:
    """Draw on new axes and return inline SVG.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it is given, with colours of the current palette.
    name : str
        Prefix of all ids; unique on the page.
    title, description : str
        Name of the figure, and what it shows, for those who do not see it.
    size : (float, float)
        Inches.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": POINTS,
        "axes.labelsize": POINTS,
        "xtick.labelsize": POINTS,
        "ytick.labelsize": POINTS,
        "legend.fontsize": POINTS - 0.5,
        "axes.titlesize": POINTS + 1,
        "axes.formatter.useoffset": False,
        "text.usetex": False,
        "text.parse_math": False,
        "path.simplify": True,
    }
    with mpl.rc_context(), use_palette(SENTINELS):
        mpl.rcdefaults()  # whatever style the caller has chosen
        mpl.rcParams.update(settings)
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots()
        draw(axes)
        for part in figure.axes:  # the page is the background, also of colour bars
            part.patch.set_visible(False)
        out = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with warnings.catch_warnings():  # text is shown in fonts of the page
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(out, format="svg", metadata=nothing)
    return inline(out.getvalue(), name, title, description)


def inline(svg: str, name: str, title: str, description: str) -> Html:
    """SVG of matplotlib for the inside of a page."""
    svg = clean(svg[svg.index("<svg") :].strip())
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r"font-family: [^;\"]*(; )?", "", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for part in fields(Palette):
        svg = svg.replace(getattr(SENTINELS, part.name), f"var(--{part.name})")
    svg = _keep_ids(svg, name)
    svg = re.sub(r"(<[^<>]*>)", lambda match: _round_numbers(match[1]), svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    head = (
        f'<svg {box[0]} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{text(title)}</title>'
        f'<desc id="{name}-desc">{text(description)}</desc>'
    )
    svg = head + svg[svg.index(">") + 1 :]
    return Html(re.sub(r"\n\s*", "\n", svg))


def _keep_ids(svg: str, name: str) -> str:
    """Only ids that are referred to, with a prefix."""
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', svg))

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename, svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)


def _round_numbers(element: str) -> str:
    """Coordinates to hundredths of a point."""
    if element.startswith(("<title", "<desc")):
        return element
    return NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), element)
