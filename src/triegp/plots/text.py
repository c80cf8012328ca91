"""Numbers, values and names as plots, reports and the command line write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MINUS = "\N{MINUS SIGN}"
LISTED = ("category", "ordered")  # kinds of columns whose numbers are places in a list
MISSING = "missing"
DAY_SECONDS = 86_400


def show_number(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """A number with so many significant digits, without exponent if it is of common size.

    zeros: whether to keep zeros at its end.
    """
    if not np.isfinite(value):
        return MISSING if np.isnan(value) else ("∞" if value > 0 else f"{MINUS}∞")
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(value))))
    mantissa, exponent = f"{value:,.{max(digits - 1 - size, 0)}f}", ""
    if size < -4 or size >= 9:
        mantissa, power = f"{value:.{max(digits - 1, 0)}e}".split("e")
        exponent = f"e{int(power)}"
    if "." in mantissa and not zeros:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return (mantissa + exponent).replace("-", MINUS)


def show_value(value: float, kind: str, categories: Sequence[Any] = (), digits: int = 4) -> str:
    """A value of a column of this kind: a number, time or duration in days, or a category's place.

    digits: significant digits of numbers.
    """
    if np.isnan(value):
        return MISSING
    if kind in LISTED:
        return str(categories[int(value)])
    if kind == "time":
        moment = str(np.datetime64(round(value * DAY_SECONDS), "s"))
        return moment.removesuffix(":00").removesuffix("T00:00").replace("T", " ")
    return show_number(value, digits) + (" days" if kind == "duration" else "")


def shorten(word: str, most: int) -> str:
    """At most so many characters of a word; "…" stands for the rest."""
    return word if len(word) <= most else f"{word[: most - 1]}…"
