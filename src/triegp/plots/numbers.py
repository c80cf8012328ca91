"""Numbers as plots and reports write them."""

from __future__ import annotations

import numpy as np

MINUS = "\N{MINUS SIGN}"


def show_number(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """A number with so many significant digits, without exponent if it is of common size.

    zeros: whether to keep zeros at its end.
    """
    if not np.isfinite(value):
        return "missing" if np.isnan(value) else ("∞" if value > 0 else f"{MINUS}∞")
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(value))))
    if size < -4 or size >= 9:
        mantissa, exponent = f"{value:.{max(digits - 1, 0)}e}".split("e")
        if "." in mantissa and not zeros:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    text = f"{value:,.{max(digits - 1 - size, 0)}f}"
    if "." in text and not zeros:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)
