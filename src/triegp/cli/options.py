"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import ast
import csv
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from triegp.cli.sources import FORMATS, Dialect

Function = Callable[..., Any]

BATCH_ROWS = 50_000


def names_of(ctx: Any, parameter: Any, values: Sequence[str]) -> list[str]:
    """Column names of an option that may be repeated; each value is a list with commas.

    A name that has a comma is quoted, as in a CSV file.
    """
    return [name for value in values for name in next(csv.reader([value]), [])]


def levels_of(ctx: Any, parameter: Any, value: str | None) -> list[float]:
    """Numbers between 0 and 1 of a list with commas."""
    if value is None:
        return []
    try:
        levels = [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"expected numbers with commas, got {value!r}") from None
    for level in levels:
        if not 0 < level < 1:
            raise click.BadParameter(f"must lie between 0 and 1, got {level:g}")
    if len(set(levels)) != len(levels):
        raise click.BadParameter(f"must be distinct, got {value!r}")
    return levels


def parameters_of(ctx: Any, parameter: Any, values: Sequence[str]) -> dict[str, Any]:
    """Values of `name=value`, read as JSON, as a Python literal, or else as text."""
    parameters: dict[str, Any] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected name=value, got {value!r}")
        if name in parameters:
            raise click.BadParameter(f"{name} is given twice")
        parameters[name] = _value_of(text)
    return parameters


def _value_of(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def one_character(ctx: Any, parameter: Any, value: str | None) -> str | None:
    """A single character; the two characters backslash and t are a tab."""
    value = "\t" if value == "\\t" else value
    if value is not None and (len(value.encode()) != 1 or value in '"\r\n'):
        raise click.BadParameter(f"must be one ASCII character other than a quote, got {value!r}")
    return value


def reading_options(function: Function) -> Function:
    """Options of how data are read, passed on as `dialect`."""

    @click.option(
        "--format", "format_", type=click.Choice(FORMATS), help="Format of DATA.  [by extension]"
    )
    @click.option(
        "--delimiter", callback=one_character, help="Between the cells of CSV files.  [,]"
    )
    @click.option(
        "--decimal", type=click.Choice([".", ","]), default=".", help="Decimal point in CSV files."
    )
    @click.option("--encoding", default="utf8", help="Of CSV files.", show_default=True)
    @click.option(
        "--missing", multiple=True, metavar="TEXT", help="Cells that are missing, besides '', NA..."
    )
    @functools.wraps(function)
    def wrapped(
        format_: str | None,
        delimiter: str | None,
        decimal: str,
        encoding: str,
        missing: tuple[str, ...],
        **others: Any,
    ) -> Any:
        dialect = Dialect(format_, delimiter, decimal, encoding, missing)
        return function(dialect=dialect, **others)

    return wrapped


def batch_option(function: Function) -> Function:
    """How many rows are in memory at a time."""
    return click.option(
        "--batch-rows",
        type=click.IntRange(min=1),
        default=BATCH_ROWS,
        show_default=True,
        help="Rows that are read at a time.",
    )(function)
