"""Numbers as a report writes them, and tables."""

from __future__ import annotations

import numpy as np

from triegp.plots.text import MINUS, show_number
from triegp.report.markup import Child, Html, join, tag


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, with a thin no-break space before the sign."""
    if not np.isfinite(share):
        return "—"
    rounded = round(100 * share, digits) + 0.0  # not -0
    return f"{rounded:.{digits}f}\u202f%".replace("-", MINUS)


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits, or a dash if it is not defined."""
    return "—" if np.isnan(value) else show_number(value, digits, zeros=True)


def tiny(value: float) -> str:
    """A small probability or count: two digits, or a power of ten that it lies below."""
    if value >= 0.001 or value < 0:
        return show_number(value, 2)
    if value < 1e-12:
        return "< 10⁻¹²"
    power = int(np.floor(np.log10(value))) + 1
    return "< 10" + "⁻" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(c)] for c in str(-power))


def seconds(value: float | None) -> str:
    """A duration in words."""
    if value is None:
        return "not recorded"
    if value < 1:
        return f"{1000 * value:.0f}\u202fms"
    if value < 120:
        return f"{value:.1f}\u202fs"
    return f"{value / 60:.1f}\u202fmin" if value < 7200 else f"{value / 3600:.1f}\u202fh"


def plural(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def cell(content: Child, *, value: float | None = None, class_: str | None = "num") -> Html:
    """A cell of a table; value: what the column is sorted by."""
    sorted_by = None if value is None or not np.isfinite(value) else repr(float(value))
    return tag("td", content, class_=class_, data_value=sorted_by)


def off_cell(share: float, is_off: bool) -> Html:
    """A cell with a share, coloured if it is off."""
    return cell(percent(share), class_="num off" if is_off else "num")


def row(name: Child, *cells: Child, value: str | None = None) -> Html:
    """A row of a table; name: its first cell, value: what that is sorted by."""
    return tag("tr", tag("th", name, scope="row", data_value=value), *cells)


def heads(first: Child, *others: Child | Html) -> list[Html]:
    """Header cells, all but the first of numbers; those that are elements already stay."""
    cells = [part if isinstance(part, Html) else head(part) for part in others]
    return [head(first, class_=None), *cells]


def head(label: Child, *, class_: str | None = "num") -> Html:
    """A header cell."""
    return tag("th", label, scope="col", class_=class_)


BAR_HEAD = head(tag("span", "Bar", class_="unseen"), class_="only-wide")


def bar_cell(share: float) -> Html:
    """A cell with a bar of a length between 0 and 1."""
    bar = tag("span", class_="bar", style=f"--w:{100 * share:.1f}%")
    return cell(bar, class_="wide-bar only-wide")


def table(
    note: Child, heads: list[Html], rows: list[Html], *, label: str, sortable: bool = False
) -> Html:
    """A table that scrolls by itself if the page is too narrow for it, below a note."""
    scrolled = tag(
        "div",
        tag(
            "table",
            tag("caption", tag("span", label, class_="unseen")),
            tag("thead", tag("tr", heads)),
            tag("tbody", rows),
            data_sortable=sortable,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=label,
    )
    return join(tag("p", note, class_="note above"), scrolled)


def figures(*pictures: tuple[Html | None, Child]) -> Html:
    """Figures beside each other, each with a caption."""
    return tag(
        "div",
        [
            tag("figure", picture, tag("figcaption", caption))
            for picture, caption in pictures
            if picture is not None
        ],
        class_="figures",
    )


def heading(level: int, words: Child) -> Html:
    """A heading of this level."""
    return tag(f"h{level}", words)


def paragraph(*words: Child, class_: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", join(*words), class_=class_)
