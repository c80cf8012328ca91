"""CSV files: their header, all rows at once, or batches of rows."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from triegp.cli.failures import CommandError
from triegp.cli.pipes import Peeked
from triegp.cli.sources import Dialect, Source

DELIMITERS = ",;\t|"  # between cells of files from elsewhere
BLOCK = 1 << 20  # bytes that are parsed at a time; a row must not be longer


def open_text(source: Source, dialect: Dialect, stream: IO[bytes]) -> tuple[Any, list[str]]:
    """A stream of the text, in UTF-8 or as it is, and the names in its header.

    stream: the bytes of the file. Its header is parsed here to see all names, repeated ones too.
    """
    head, done, names = b"", False, list[str]()
    while not done:
        more = stream.read(BLOCK)
        head, done = head + more, not more
        text = codecs.getincrementaldecoder(dialect.encoding)().decode(head)
        lines = list(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        reader = csv.reader(lines, delimiter=source.delimiter)
        names = next((row for row in reader if row), [])
        if reader.line_num < len(lines):
            break
    if not names:
        raise CommandError(f"{source}: the file is empty, expected a header and rows")
    mark = next((mark for mark in DELIMITERS if mark in names[0]), None)
    if mark is not None and len(names) == 1 and dialect.delimiter is None:
        raise CommandError(
            f"{source}: the header is a single cell, {names[0][:60]!r}, expected cells separated "
            f"by {source.delimiter!r}: pass --delimiter {mark!r}"
        )
    return io.BufferedReader(Peeked(head, stream), BLOCK), names


def read_csv(
    source: Source, dialect: Dialect, stream: Any, as_text: Sequence[str], names: Sequence[str]
) -> pa.Table:
    """All rows; types are inferred from all of them, except for columns that stay text."""
    types = {name: pa.string() for name in as_text if name in names}
    convert = pacsv.ConvertOptions(
        column_types=types,
        null_values=list(dialect.words("csv")),
        strings_can_be_null=True,
        decimal_point=dialect.decimal,
    )
    return pacsv.read_csv(pa.PythonFile(stream), *_options(source, dialect), convert)


def csv_batches(
    source: Source, dialect: Dialect, stream: Any, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows by batches, all columns as text, exactly as it is in the file."""
    convert = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in columns},
        include_columns=list(columns),
        strings_can_be_null=False,
    )
    yield from pacsv.open_csv(pa.PythonFile(stream), *_options(source, dialect), convert)


def _options(source: Source, dialect: Dialect) -> tuple[Any, Any]:
    read = pacsv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=dialect.encoding)
    return read, pacsv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
