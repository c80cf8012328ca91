"""Columns of Python objects: their kind, and how they become numbers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.dates import ISO, read_date

Floats = npt.NDArray[np.float64]

DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")  # in microseconds


def kind_of_cells(cells: list[Any], where: str) -> str:
    """Kind of a column of Python objects; raises an error if they are of several kinds or none.

    where: name of the column, for the error.
    """
    found: dict[str, tuple[int, Any]] = {}
    for i, cell in enumerate(cells):
        if not is_missing(cell):
            found.setdefault(kind_of_cell(cell, f"{where} at row {i}"), (i, cell))
    if len(found) > 1:
        (_, one), (i, other) = list(found.values())[:2]
        raise TypeError(
            f"X must hold one kind of value per column, got {one!r:.40} and then {other!r:.40} in "
            f"{where} at row {i}"
        )
    return next(iter(found), "number")


def kind_of_cell(cell: Any, where: str) -> str:
    """Kind of one Python object that is not missing."""
    if isinstance(cell, str | bytes):
        return "category"
    if isinstance(cell, date | datetime | time | np.datetime64):
        return "time"
    if isinstance(cell, timedelta | np.timedelta64):
        return "duration"
    if isinstance(cell, complex | np.complexfloating):
        raise ValueError(f"X must hold real numbers. Complex data not supported: {cell!r} {where}")
    try:
        float(cell)
    except OverflowError as error:
        raise ValueError(
            f"X must hold real numbers, got {cell!r:.40} in {where}: {error}"
        ) from None
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"X must hold numbers, categories, strings, dates or durations, got {cell!r:.40} in "
            f"{where}: {error}"
        ) from None
    return "number"


def is_missing(cell: Any) -> bool:
    """Whether a Python object is None, NaN, NaT or pandas's NA."""
    if cell is None:
        return True
    try:
        return bool(cell != cell)
    except TypeError:  # pandas's NA refuses to be a bool
        return True
    except ValueError:
        return False


def days_of(values: npt.NDArray[Any]) -> Floats:
    """Dates or durations in microseconds as days, NaN if missing."""
    days: Floats = values.astype(np.int64) / DAY
    days[np.isnat(values)] = np.nan
    return days


def times_of_cells(cells: list[Any], kind: str, where: str, form: str) -> npt.NDArray[Any]:
    """Python dates, times or durations in microseconds; a time of day is on the first of 1970.

    form: format of dates that are strings.
    """
    unit = "datetime64[us]" if kind == "time" else "timedelta64[us]"
    out = np.full(len(cells), "NaT", unit)
    for i, cell in enumerate(cells):
        if is_missing(cell):
            continue
        if kind == "time" and isinstance(cell, str):
            date_read = read_date(cell, form)
            if date_read is None:
                raise ValueError(
                    f"X must hold dates as {form} in {where}, got {cell!r:.40} at row {i}"
                )
            cell = date_read
        if isinstance(cell, time):
            cell = datetime(1970, 1, 1, cell.hour, cell.minute, cell.second, cell.microsecond)
        if isinstance(cell, datetime) and cell.tzinfo is not None:
            cell = cell.replace(tzinfo=None)
        try:
            out[i] = cell
        except (TypeError, ValueError):
            raise ValueError(
                f"X must hold {kind}s in {where}, got {cell!r:.40} at row {i}"
            ) from None
    return out


def read_cells(
    cells: list[Any], kind: str, known: tuple[Any, ...], where: str, form: str = ""
) -> tuple[Floats, tuple[Any, ...]]:
    """Numbers or codes of a list of Python objects, (n,), and the categories, new ones last.

    where: name of the column, for errors. form: format of dates that are strings, ISO if "".
    """
    if kind in ("time", "duration"):
        return days_of(times_of_cells(cells, kind, where, form or ISO)), ()
    if kind == "number":
        out = np.full(len(cells), np.nan)
        for i, cell in enumerate(cells):
            if not is_missing(cell):
                try:
                    out[i] = float(cell)
                except (TypeError, ValueError, OverflowError) as error:
                    raise ValueError(
                        f"X must hold real numbers, got {cell!r:.40} in {where} at row {i}: {error}"
                    ) from None
        return out, ()
    plain = [None if is_missing(cell) else plain_value(cell) for cell in cells]
    found = {cell for cell in plain if cell is not None}
    codes = code_values(sorted(found, key=sort_key), known, where)
    return np.array([np.nan if cell is None else codes[cell] for cell in plain]), tuple(codes)


def code_values(found: Iterable[Any], known: tuple[Any, ...], where: str) -> dict[Any, int]:
    """Code of each category: known ones keep theirs, new ones follow in their order."""
    codes = {value: code for code, value in enumerate(known)}
    for value in map(plain_value, found):
        codes.setdefault(value, len(codes))
    if len({type(value) is str for value in codes}) > 1:
        raise ValueError(f"X must hold one kind of category in {where}, got strings and numbers")
    return codes


def plain_value(value: Any) -> Any:
    """A category as a string or a float: equal categories are equal whatever their dtype."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    if np.isinf(number):
        raise ValueError(f"X must be finite, got the category {number}")
    if isinstance(value, int | np.integer) and number != value:
        return int(value)  # beyond 2**53
    return number


def sort_key(value: Any) -> tuple[bool, Any]:
    """Key by which categories are sorted: numbers before strings."""
    return type(value) is str, value
