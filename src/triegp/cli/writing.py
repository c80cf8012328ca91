"""Writing predictions: CSV, Parquet or Arrow, batch by batch, whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from triegp.cli.cells import is_text
from triegp.cli.failures import CommandError, describe_os, one_line
from triegp.cli.sources import EXTENSIONS, format_of
from triegp.files.whole import open_whole


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """A file that is written whole or not at all; "-" is standard output, which is a stream."""
    with naming_output(path):
        if path == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with open_whole(path) as file:
                yield file


@contextmanager
def naming_output(path: str) -> Iterator[None]:
    """Turn errors of pyarrow and of the system into a CommandError that names the output."""
    try:
        yield
    except (BrokenPipeError, InterruptedError):
        raise
    except OSError as error:
        error.filename = None  # that of the part
        name = "standard output" if path == "-" else path
        raise CommandError(describe_os(error, name)) from error
    except pa.ArrowException as error:
        raise CommandError(f"{path}: {one_line(error)}") from error


def save_model(estimator: Any, path: str, *, training_data: bool) -> None:
    """Save a fitted estimator, whole or not at all."""
    with naming_output(path):
        estimator.save(path, training_data=training_data)


def output_format(path: str, option: str | None) -> str:
    """Format of an output, by option or by extension; CSV for pipes and devices."""
    format_ = option or format_of(path)
    if format_ is None and (path == "-" or (os.path.exists(path) and not os.path.isfile(path))):
        format_ = "csv"
    if format_ is None:
        known = ", ".join(EXTENSIONS)
        raise CommandError(
            f"{path}: unknown extension, expected one of {known}; or pass --output-format"
        )
    return format_


def check_output(path: str, *, piped: bool = False) -> None:
    """Raise CommandError if a file cannot be written: before work that takes long.

    piped: whether it may be standard output, a pipe or a device.
    """
    if path == "-":
        if not piped:
            raise CommandError("-o: standard output is for predictions only, expected a file")
        return
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise CommandError(f"{path}: is a folder, expected a file")
    if os.path.exists(path) and not os.path.isfile(path) and not piped:
        raise CommandError(f"{path}: is a device, expected a file")
    if not os.path.isdir(folder):
        raise CommandError(f"{path}: there is no folder {os.path.dirname(path)}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise CommandError(f"{path}: permission denied")


def new_writer(format_: str, file: IO[bytes], schema: Any, delimiter: str, *, piped: bool) -> Any:
    """Writer of a format, with `write_table` and `close`; Arrow is a stream if it is piped."""
    if format_ == "csv":
        return CsvWriter(file, schema, delimiter)
    sink = pa.PythonFile(Unclosed(file), mode="w")
    if format_ == "parquet":
        return pq.ParquetWriter(sink, schema)
    return (ipc.new_stream if piped else ipc.new_file)(sink, schema)


class CsvWriter:
    """CSV with a header; numbers have as many digits as they need to be read back exactly."""

    def __init__(self, file: IO[bytes], schema: Any, delimiter: str) -> None:
        self._file, self._delimiter = file, delimiter
        header = io.StringIO()
        csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
        file.write(header.getvalue().encode())

    def write_table(self, table: pa.Table) -> None:
        """Write some rows; cells are quoted in batches that have one that needs it."""
        special = '["\r\n' + ("\\" + self._delimiter) + "]"
        texts = [column for column in table.columns if is_text(column.type)]
        odd = any(pc.any(pc.match_substring_regex(text, special)).as_py() for text in texts)
        style = "needed" if odd else "none"
        options = pacsv.WriteOptions(
            include_header=False, delimiter=self._delimiter, quoting_style=style
        )
        buffer = pa.BufferOutputStream()
        pacsv.write_csv(table, buffer, options)
        self._file.write(buffer.getvalue())

    def close(self) -> None:
        """Nothing ends a CSV file."""


class Unclosed:
    """A file for pyarrow, which closes what it writes to; ours must still be put in place."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._written = file, 0

    def write(self, data: Any) -> int:
        """Write all of the bytes; none if the output was given up, when pyarrow closes it."""
        if self._file.closed:
            return len(data)
        self._file.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        """Number of bytes written."""
        return self._written

    def flush(self) -> None:
        """Write what is buffered."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Leave the file open."""
