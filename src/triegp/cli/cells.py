"""Columns of text as numbers and times, and checks that name the row of a bad cell.

CSV files hold text. New rows are read as the model knows its columns: numbers as float64, times as
timestamps, categories as strings. A cell that cannot be read is named by file, column and row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from triegp.cli.failures import CommandError
from triegp.cli.sources import Dialect, Source

if TYPE_CHECKING:
    from triegp.encoding.columns import Columns

Floats = npt.NDArray[np.float64]

TIMES = (  # what text may hold, in this order, as `pyarrow.csv` finds them
    pa.date32(),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns", "UTC"),
)
WORDS = ("true", "True", "TRUE", "false", "False", "FALSE")


@dataclass(frozen=True)
class Place:
    """Where rows come from, for messages.

    Attributes
    ----------
    source : Source
        The file.
    first : int
        Number of rows before them.
    zones : dict
        Whether the times of a column have a UTC offset, by name, as far as they are read.
    """

    source: Source
    first: int = 0
    zones: dict[str, bool] = field(default_factory=dict)

    def cell(self, column: str, row: int) -> str:
        """Name of a cell; row counts from 0, the name from 1, without the header."""
        return f"{self.source}, column {column!r}, row {self.first + row + 1}"


def read_features(table: pa.Table, columns: Columns, place: Place, dialect: Dialect) -> pa.Table:
    """Columns of a table as the model reads them; CommandError names a cell that it cannot read.

    table: with the columns of the model, in their order, under any names.
    """
    out = []
    for j, (kind, listed) in enumerate(zip(columns.kinds, columns.categories, strict=True)):
        name, column = table.column_names[j], plain_column(table.column(j))
        if is_text(column.type):
            column = drop_words(column, dialect.words(place.source.format))
            if kind == "number" or (kind == "category" and _numbered(listed)):
                column = parse_numbers(column, name, place, dialect.decimal)
            elif kind == "time":
                form = columns.format_of(j)
                parse = partial(parse_dates, form=form) if form else parse_times
                column = parse(column, name, place)
            elif kind == "duration":
                raise CommandError(
                    f"{place.source}, column {name!r}: the model knows durations here, which text "
                    "cannot hold: use Parquet or Arrow"
                )
        refuse_infinite(column, name, place)
        refuse_mixed_zones(column, name, place)
        out.append(column)
    return pa.table(out, names=table.column_names)


def read_numbers(
    column: pa.ChunkedArray, name: str, place: Place, dialect: Dialect, what: str
) -> Floats:
    """A column of finite numbers, (n,); CommandError names a cell that is missing or not a number.

    what: what the column is, for messages.
    """
    column = plain_column(column)
    if is_text(column.type):
        column = drop_words(column, dialect.words(place.source.format))
        column = parse_numbers(column, name, place, dialect.decimal)
    if not _is_number(column.type):
        raise CommandError(
            f"{place.source}, column {name!r}: the {what} must be numbers, got {column.type}"
        )
    values: Floats = column.cast(pa.float64()).to_numpy()
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argmax(bad))
        said = "is missing" if np.isnan(values[row]) else f"is {values[row]}"
        raise CommandError(f"{place.cell(name, row)}: the {what} {said}")
    return values


def read_weights(
    column: pa.ChunkedArray, name: str, place: Place, dialect: Dialect, what: str
) -> Floats:
    """A column of numbers >= 0, (n,)."""
    values = read_numbers(column, name, place, dialect, what)
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise CommandError(f"{place.cell(name, row)}: the {what} is negative: {values[row]:g}")
    return values


def parse_numbers(
    column: pa.ChunkedArray, name: str, place: Place, decimal: str = "."
) -> pa.ChunkedArray:
    """Text as float64, as `pyarrow.csv` reads it: blanks around it, hexadecimal, true and false.

    With another decimal point, "1.000" may be a thousand or one, and is not a number.
    """
    text = pc.utf8_trim_whitespace(column)
    if decimal != ".":
        text = pc.replace_substring(pc.replace_substring(text, ".", "?"), decimal, ".")
    numbers = _cast(text, pa.float64(), pa.int64())
    if numbers is None:
        words = pc.is_in(text, pa.array(WORDS))
        others = _cast(drop_words(text, WORDS), pa.float64())
        if others is not None and pc.all(pc.is_in(others, pa.array([0.0, 1.0, None]))).as_py():
            ones = pc.starts_with(pc.utf8_lower(text), "t").cast(pa.float64())
            return pc.if_else(words, ones, others)
        row = first_bad(text, lambda cells: _cast(cells, pa.float64()) is not None)
        raise CommandError(f"{place.cell(name, row)}: not a number: {column[row].as_py()!r:.80}")
    return numbers.cast(pa.float64())


def parse_times(column: pa.ChunkedArray, name: str, place: Place) -> pa.ChunkedArray:
    """Text as dates or timestamps; a time of day is on the first of 1970."""
    text = pc.utf8_trim_whitespace(column)

    def parse(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
        times = _cast(cells, *TIMES)
        if times is None:
            day = pc.binary_join_element_wise("1970-01-01", cells, " ")
            times = _cast(day, pa.timestamp("ns"))
        return times

    times = parse(text)
    if times is None:
        row = first_bad(text, lambda cells: parse(cells) is not None)
        said = "not a date or time"
        if parse(text.slice(row, 1)) is not None:
            said = "all times must have a UTC offset or none, and a date or none, got"
        raise CommandError(f"{place.cell(name, row)}: {said}: {column[row].as_py()!r:.80}")
    return times


def parse_dates(column: pa.ChunkedArray, name: str, place: Place, form: str) -> pa.ChunkedArray:
    """Text as timestamps by the format that the model was fitted to."""
    from triegp.encoding.dates import read_date

    cells = column.to_pylist()
    times = [None if cell is None else read_date(cell, form) for cell in cells]
    for row, (cell, moment) in enumerate(zip(cells, times, strict=True)):
        if moment is None and cell is not None:
            raise CommandError(f"{place.cell(name, row)}: not a date as {form}: {cell!r:.80}")
    return pa.chunked_array([pa.array(times, pa.timestamp("us"))])


def first_bad(column: pa.ChunkedArray, good: Callable[[pa.ChunkedArray], bool]) -> int:
    """Number of the first cell that makes a column bad, by halving."""
    low, high = 0, len(column)  # column[:low] is good, column[:high] is bad
    while high - low > 1:
        middle = (low + high) // 2
        if good(column.slice(low, middle - low)) and good(column.slice(0, middle)):
            low = middle
        else:
            high = middle
    return low


def drop_words(column: pa.ChunkedArray, words: Sequence[str]) -> pa.ChunkedArray:
    """Text with null for the words that count as missing.

    Not by `if_else` with null, which before pyarrow 24 returns wrong text for slices of arrays
    (apache/arrow, issue 41479).
    """
    listed, null = pa.array(words, pa.string()), pa.scalar(None, pa.string())
    parts = [pc.replace_with_mask(part, pc.is_in(part, listed), null) for part in column.chunks]
    return pa.chunked_array(parts, pa.string())


def refuse_infinite(column: pa.ChunkedArray, name: str, place: Place) -> None:
    """Raise CommandError for an infinite number."""
    if pa.types.is_floating(column.type):
        bad = pc.is_inf(column)
        if pc.any(bad).as_py():
            row = pc.index(bad, True).as_py()
            raise CommandError(f"{place.cell(name, row)}: not finite: {column[row].as_py()}")


def refuse_mixed_zones(column: pa.ChunkedArray, name: str, place: Place) -> None:
    """Raise CommandError for times with a UTC offset beside earlier ones without, or vice versa.

    A model does not hold which of the two it was fitted to, so rows of one command are compared.
    """
    if not pa.types.is_temporal(column.type) or column.null_count == len(column):
        return
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    if place.zones.setdefault(name, zoned) != zoned:
        row = pc.index(pc.is_valid(column), True).as_py()
        this, others = ("with", "without") if zoned else ("without", "with")
        said = f"a time {this} a UTC offset after times {others}"
        raise CommandError(f"{place.cell(name, row)}: {said}")


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose text is of type string, not encoded by dictionaries."""
    kind = column.type
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        return column.cast(pa.string())
    return column.cast(pa.string()) if is_text(kind) else column


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)) or (
        hasattr(pa.types, "is_string_view") and bool(pa.types.is_string_view(kind))
    )


def _is_number(kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def _numbered(listed: Sequence[Any]) -> bool:
    """Whether categories are numbers."""
    return bool(listed) and not isinstance(listed[0], str)


def _cast(column: pa.ChunkedArray, *kinds: Any) -> pa.ChunkedArray | None:
    """As the first type that all cells can be read as; None if there is no such type."""
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
    return None
