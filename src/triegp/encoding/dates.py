"""Strings that are dates: their format, learned from a column, and how they are read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

ISO = "yyyy-mm-dd"
DAY_FIRST, MONTH_FIRST = "dd/mm/yyyy", "mm/dd/yyyy"
FORMATS = (ISO, DAY_FIRST, MONTH_FIRST)
FEWEST_ROWS = 20  # from which on a column of distinct strings is worth a warning
MOST_MISFITS = 0.1  # of the distinct strings, for a warning that the others are dates

# A zone is not read: local time is what repeats, as for columns of times with a zone.
TIME = r"(?:(?:[ T]+)(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?\s*(?:Z|[+-]\d\d:?\d\d)?)?\s*"
YEAR_FIRST = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})" + TIME, re.ASCII)
YEAR_LAST = re.compile(r"\s*(\d{1,2})(?:/\d{1,2}/|\.\d{1,2}\.|-\d{1,2}-)\d{4}" + TIME, re.ASCII)
NUMBERS = re.compile(r"\d+")
ZONE = re.compile(r":\d\d\S*\s*(?:Z|[+-]\d\d:?\d\d)\s*$")  # of a date that was read


def read_date(text: str, form: str) -> datetime | None:
    """A date with or without a time; None if the text is none of this format.

    Dates of the formats with the year last may have dots or hyphens, too.
    """
    match = (YEAR_FIRST if form == ISO else YEAR_LAST).fullmatch(text)
    if match is None:
        return None
    first, second, third = (int(part) for part in NUMBERS.findall(text)[:3])
    year, month, day = first, second, third
    if form != ISO:
        year, month, day = third, *((second, first) if form == DAY_FIRST else (first, second))
    hour, minute, whole, fraction = match.groups()[-4:]
    clock = (
        int(hour or 0),
        int(minute or 0),
        int(whole or 0),
        int((fraction or "0").ljust(6, "0")),
    )
    try:
        return datetime(year, month, day, *clock)
    except ValueError:  # no such day or time
        return None


def find_format(cells: Iterable[Any], where: str) -> str:
    """The format of which all strings are dates; "" if there is none.

    Stops at the first cell that is no date. Dates of which some have a zone and some have not are
    none. Raises ValueError if day and month can be exchanged in all of them. where: name of the
    column, for the error.
    """
    left: tuple[str, ...] = FORMATS
    last, zoned = "", set[bool]()
    for cell in cells:
        if not isinstance(cell, str):
            return ""
        left, last = tuple(form for form in left if read_date(cell, form) is not None), cell
        zoned.add(ZONE.search(cell) is not None)
        if not left or len(zoned) == 2:
            return ""
    if len(left) == 2:
        raise ValueError(
            f"X must hold dates of which one shows whether the day or the month is first in "
            f"{where}, got only such as {last!r:.40}: convert them, for instance to "
            f"{ISO}, or name the column in categorical_features"
        )
    return left[0] if last else ""


def tell_dates(form: str, where: str) -> None:
    """Warn that strings are read as dates."""
    _tell(f"{where} holds strings that are read as dates, {form}; categorical_features undoes this")


def tell_categories(categories: Sequence[Any], n_values: int, where: str) -> None:
    """Warn of strings, read as categories, of which nearly all are dates, or that all differ."""
    texts = [text for text in categories if isinstance(text, str)]
    for form in FORMATS if len(texts) > 1 else ():
        misfits = [text for text in texts[:FEWEST_ROWS] if read_date(text, form) is None]
        if len(misfits) <= MOST_MISFITS * len(texts[:FEWEST_ROWS]):
            misfits = [text for text in texts if read_date(text, form) is None]
            if 0 < len(misfits) <= MOST_MISFITS * len(texts):
                _tell(
                    f"{where} is read as categories, and nearly all of its values are dates, "
                    f"{form}: {misfits[0]!r:.40} is none; correct such cells or make them None"
                )
                return
    if n_values == len(categories) >= FEWEST_ROWS:
        _tell(
            f"{where} is read as categories, and its {n_values:,} values all differ: new rows will "
            "have others; leave it out, or convert it if it holds numbers, dates or durations"
        )


def _tell(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)
