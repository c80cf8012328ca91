"""Model files as commands need them: the estimator, its columns and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa

from triegp.cli.batches import Choice, no_rows, read_batches
from triegp.cli.cells import Floats, Place, read_features, read_numbers, read_weights
from triegp.cli.failures import CommandError
from triegp.cli.options import BATCH_ROWS
from triegp.cli.sources import Dialect, Source
from triegp.encoding.columns import Columns
from triegp.estimators.loading import load
from triegp.files.codec import Reading, unpack


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file: as the model reads them, and as they are in the file."""

    features: pa.Table
    table: pa.Table
    place: Place
    dialect: Dialect

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def numbers(self, name: str, what: str = "target") -> Floats:
        """Targets, weights or noise variances, (n,)."""
        read = read_numbers if what == "target" else read_weights
        return read(self.table.column(name), name, self.place, self.dialect, what)


def open_model(path: str) -> Any:
    """Load the estimator of a model file with one target."""
    model: Any = load(path)
    n_targets = model.target_mean_.size
    if n_targets != 1:
        raise CommandError(
            f"{path}: the model has {n_targets} targets, and commands handle one: use triegp.load"
        )
    return model


def columns_of(header: dict[str, Any]) -> Columns:
    """Columns by the header of a model file."""
    return unpack(Columns, header["model"]["stream"]["columns"], Reading({}))


def choose_columns(columns: Columns, others: Sequence[str]) -> Choice:
    """What is to be read from a file: first the columns of the model, then others, each once.

    A model that was fitted to an array knows no names. All columns of the file that are not among
    the others are then its columns, in the order of the file.
    """

    def choose(names: list[str], source: Source) -> list[str]:
        known = columns.names
        if known is None:
            known = tuple(name for name in names if name not in others)
            if len(known) != len(columns.kinds):
                raise CommandError(
                    f"{source}: the model knows its {len(columns.kinds)} columns by place, "
                    f"not by name, but the file has {len(known)} columns"
                )
        require_columns([*known, *others], names, source)
        return list(dict.fromkeys([*known, *others]))

    return choose


def require_columns(needed: Sequence[str], names: Sequence[str], source: object) -> None:
    """Raise CommandError if a column is not there."""
    missing = [name for name in needed if name not in names]
    if missing:
        shown = ", ".join(map(repr, names[:8])) + ", ..." * (len(names) > 8)
        none = "there are no columns" if len(missing) > 1 else "there is no column"
        listed = ", ".join(_with_nearest(name, names) for name in missing[:5])
        listed += ", ..." * (len(missing) > 5)
        raise CommandError(f"{source}: {none} {listed}; it has {shown}")


def _with_nearest(name: str, names: Sequence[str]) -> str:
    """A name that is not there, with the most similar one that is, whatever their case."""
    lower = {other.strip().lower(): other for other in names}
    nearest = get_close_matches(name.strip().lower(), lower, 1)
    return f"{name!r} (nearest: {lower[nearest[0]]!r})" if nearest else repr(name)


def read_chunks(
    model: Any,
    sources: Sequence[Source],
    dialect: Dialect,
    others: Sequence[str],
    n_rows: int = BATCH_ROWS,
) -> Iterator[Chunk]:
    """Rows of files in chunks of at most n_rows; raises CommandError if there are none.

    others: columns beside those of the model.
    """
    chunk = None
    columns = model.columns_
    choose = choose_columns(columns, others)
    for place, table in read_batches(sources, dialect, choose, n_rows):
        features = table.select(range(len(columns.kinds)))
        features = read_features(features, columns, place, dialect)
        chunk = Chunk(features, table, place, dialect)
        yield chunk
    if chunk is None:
        raise no_rows(sources)


def read_rows(
    model: Any, sources: Sequence[Source], dialect: Dialect, target: str
) -> tuple[Any, Any]:
    """All rows of files as a table with the columns of the model, and their targets (n,)."""
    chunks = list(read_chunks(model, sources, dialect, [target]))
    features = pa.concat_tables([part.features for part in chunks], promote_options="permissive")
    return features, np.concatenate([part.numbers(target) for part in chunks])
