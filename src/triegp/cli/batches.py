"""Reading data: whole tables to fit, batches of rows for all else.

A batch knows the file and row that it begins with, so that messages can name a cell.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from triegp.cli.cells import Place
from triegp.cli.failures import CommandError, describe_os, one_line
from triegp.cli.pipes import Peeked, open_pipe
from triegp.cli.sources import Dialect, Source
from triegp.cli.text import BLOCK, csv_batches, open_text, read_csv

Choice = Callable[[list[str], Source], list[str]]  # of columns, by the names in a file

MAGIC = b"ARROW1"  # of Arrow files that are no streams


def read_batches(
    sources: Sequence[Source], dialect: Dialect, choose: Choice, n_rows: int
) -> Iterator[tuple[Place, pa.Table]]:
    """Batches of at most `n_rows` rows, in the order of the files.

    choose: columns to read from a file, given its names; raises CommandError if one is not there.
    Memory does not depend on the number of rows, but on the blocks that a file consists of.
    """
    zones = dict[str, bool]()
    for source in sources:
        first = 0
        with ExitStack() as stack, naming(source):
            parts = _open_parts(source, dialect, choose, n_rows, stack)
            for table in rebatch(parts, n_rows):
                yield Place(source, first, zones), table
                first += table.num_rows


def read_whole(
    sources: Sequence[Source], dialect: Dialect, as_text: Sequence[str]
) -> list[tuple[Place, pa.Table]]:
    """All rows of all files as a table per file, all of the same columns and types.

    as_text: columns of CSV files that are not to be inferred.
    """
    tables = list[pa.Table]()
    for source in sources:
        with ExitStack() as stack, naming(source):
            if source.format == "csv":
                stream, names = open_text(source, dialect, _open_bytes(source, stack))
                refuse_repeated(names, source)
                tables.append(read_csv(source, dialect, stream, as_text, names))
            else:
                schema, parts = _open_typed(source, lambda names, _: names, 1 << 20, stack)
                tables.append(pa.Table.from_batches(parts, schema))
    whole = join_tables(tables, sources)
    if not whole.num_rows:
        raise no_rows(sources)
    firsts = np.cumsum([0, *(table.num_rows for table in tables)]).tolist()
    return [
        (Place(source), whole.slice(first, table.num_rows))
        for source, first, table in zip(sources, firsts, tables, strict=False)
    ]


def no_rows(sources: Sequence[Source]) -> CommandError:
    """What to raise if files have no rows."""
    return CommandError(f"{', '.join(map(str, sources[:3]))}: there are no rows")


def join_tables(tables: Sequence[pa.Table], sources: Sequence[Source]) -> pa.Table:
    """Tables one below the other; columns are found by name."""
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    for table, source in zip(tables, sources, strict=True):
        if sorted(table.column_names) != sorted(first.column_names):
            odd = sorted(set(table.column_names) ^ set(first.column_names))[0]
            raise CommandError(
                f"{source}: column {odd!r} must be in all files, as {sources[0]} has it"
            )
        for name in first.column_names:
            _check_types(first.schema.field(name).type, table.schema.field(name).type, name, source)
    return pa.concat_tables(tables, promote_options="permissive")


def rebatch(parts: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """Record batches of any size as tables of `n_rows` rows, the last one with fewer."""
    waiting, count = list[pa.RecordBatch](), 0
    for part in parts:
        start = 0
        while part.num_rows - start >= n_rows - count:
            take = n_rows - count
            waiting.append(part.slice(start, take))
            yield pa.Table.from_batches(waiting)
            waiting, count, start = [], 0, start + take
        if start < part.num_rows:
            waiting.append(part.slice(start))
            count += part.num_rows - start
    if waiting:
        yield pa.Table.from_batches(waiting)


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Turn errors of pyarrow and of the system into a CommandError that names the file."""
    try:
        yield
    except (BrokenPipeError, FileNotFoundError, InterruptedError):
        raise
    except pa.ArrowException as error:
        text = re.sub(r"Row #(\d+)", lambda match: f"row {int(match[1]) - 1}", one_line(error))
        raise CommandError(f"{source}: {text:.300}") from error
    except (UnicodeError, LookupError, EOFError) as error:
        raise CommandError(f"{source}: {one_line(error)}") from error
    except OSError as error:
        raise CommandError(describe_os(error, str(source))) from error


def refuse_repeated(names: Sequence[str], source: Source) -> None:
    """Raise CommandError if a column name occurs twice."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise CommandError(f"{source}: there are several columns {name!r}")
        seen.add(name)


def _open_parts(
    source: Source, dialect: Dialect, choose: Choice, n_rows: int, stack: ExitStack
) -> Iterator[pa.RecordBatch]:
    """Record batches of a file with the chosen columns."""
    if source.format == "csv":
        stream, names = open_text(source, dialect, _open_bytes(source, stack))
        refuse_repeated(names, source)
        return csv_batches(source, dialect, stream, choose(names, source))
    return _open_typed(source, choose, n_rows, stack)[1]


def _open_typed(
    source: Source, choose: Choice, n_rows: int, stack: ExitStack
) -> tuple[Any, Iterator[pa.RecordBatch]]:
    """Schema and record batches of the chosen columns of a Parquet or Arrow file."""
    parts: Any
    if source.format == "parquet":
        file = _open_seekable(source, stack)
        parquet = stack.enter_context(pq.ParquetFile(file, pre_buffer=False))
        schema = parquet.schema_arrow
    else:
        reader = _open_arrow(source, stack)
        schema = reader.schema
    refuse_repeated(schema.names, source)
    columns = choose(schema.names, source)
    if source.format == "parquet":
        parts = parquet.iter_batches(batch_size=n_rows, columns=columns, use_threads=False)
    elif isinstance(reader, ipc.RecordBatchFileReader):
        parts = (reader.get_batch(k) for k in range(reader.num_record_batches))
    else:
        parts = reader
    chosen = pa.schema([schema.field(name) for name in columns], schema.metadata)
    return chosen, (part.select(columns) for part in parts)


def _open_bytes(source: Source, stack: ExitStack) -> Any:
    if source.is_stream:
        return stack.enter_context(open_pipe(source.path))
    return stack.enter_context(pa.input_stream(source.path, compression="detect"))


def _open_seekable(source: Source, stack: ExitStack) -> Any:
    """A file that can be read in any order; a stream is copied to a temporary file first."""
    if not source.is_stream:
        return source.path
    return _copy(b"", stack.enter_context(open_pipe(source.path)), stack)


def _open_arrow(source: Source, stack: ExitStack) -> Any:
    """Reader of an Arrow file or stream; a stream is read as it comes."""
    if not source.is_stream:
        file = stack.enter_context(pa.memory_map(source.path))
        is_file = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        return ipc.open_file(file) if is_file else ipc.open_stream(file)
    raw = stack.enter_context(open_pipe(source.path))
    head = raw.read(len(MAGIC))
    if head != MAGIC:
        return ipc.open_stream(io.BufferedReader(Peeked(head, raw), BLOCK))
    return ipc.open_file(_copy(head, raw, stack))


def _copy(head: bytes, rest: Any, stack: ExitStack) -> Any:
    """A temporary file with these bytes."""
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    copy.write(head)
    shutil.copyfileobj(rest, copy)
    copy.seek(0)
    return copy


def _check_types(first: Any, other: Any, name: str, source: Source) -> None:
    """Raise CommandError unless two types of a column can be joined."""
    try:
        pa.unify_schemas(
            [pa.schema([(name, first)]), pa.schema([(name, other)])], promote_options="permissive"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise CommandError(
            f"{source}, column {name!r}: the files must agree, got {first} and then {other}; "
            "--categorical reads a column of CSV files as text"
        ) from None
