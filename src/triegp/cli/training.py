"""What `triegp fit` does between reading and saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from triegp.cli.batches import naming, read_batches, read_whole
from triegp.cli.cells import (
    drop_words,
    is_text,
    plain_column,
    read_numbers,
    read_weights,
    refuse_infinite,
)
from triegp.cli.console import Console
from triegp.cli.failures import CommandError
from triegp.cli.models import require_columns
from triegp.cli.sources import Dialect, Source
from triegp.estimators.loading import find_estimator

ESTIMATORS = {"trie": "TrieGPRegressor", "mixture": "BinaryTreeGPRegressor"}
MANY_ROWS = 1 << 22  # from which Parquet files are read in pieces, as `max_cells` says


@dataclass(frozen=True)
class Task:
    """What the columns of the data are for.

    Attributes
    ----------
    target : str
        Column to predict.
    features : tuple of str
        Columns to learn from; all others but those below, if empty.
    drop : tuple of str
        Columns to ignore.
    categorical : tuple of str
        Columns that are categories.
    weight, noise : str or None
        Columns of sample weights and of known noise variances.
    """

    target: str
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    weight: str | None = None
    noise: str | None = None

    @property
    def extras(self) -> list[str]:
        """Target, weight and noise, as far as they are there."""
        return [name for name in (self.target, self.weight, self.noise) if name is not None]

    def choose(self, names: Sequence[str], source: object) -> list[str]:
        """Names of the features, in their order; raises CommandError if a column is not there."""
        require_columns([*self.extras, *self.features, *self.drop], names, source)
        others = {*self.extras, *self.drop}
        chosen = list(self.features or [name for name in names if name not in others])
        for name in chosen:
            if name in others or chosen.count(name) > 1:
                raise CommandError(f"--features: {name!r} has another use, or is there twice")
        if not chosen:
            raise CommandError(f"{source}: there is no column to learn from")
        require_columns(self.categorical, chosen, f"--categorical, features of {source}")
        return chosen


def new_estimator(kind: str, options: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """An estimator with parameters of options, and those of --param."""
    estimator = find_estimator(ESTIMATORS[kind])
    known = estimator().get_params(deep=False)
    for name in parameters:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise CommandError(
                f"--param: {estimator.__name__} has no parameter {name!r}, only {listed}"
            )
        if name in options and name != "verbose":
            raise CommandError(f"--param: {name} is given by an option of its own")
        if name == "categorical_features":
            raise CommandError("--param: use --categorical for categorical_features")
    return estimator(**(options | parameters))


def fit_model(
    model: Any, sources: Sequence[Source], dialect: Dialect, task: Task, console: Console
) -> Any:
    """Fit an estimator to the rows of files.

    Returns the sample weights of the rows, (n,); None if there are none, or if rows are read in
    pieces.
    """
    if task.categorical:
        model.set_params(categorical_features=list(task.categorical))
    n_rows = count_parquet(sources)
    most = model.get_params().get("max_cells", None) or MANY_ROWS
    by_pieces = n_rows is not None and n_rows > most
    if by_pieces and task.noise is None and not dialect.missing:
        _fit_pieces(model, sources, dialect, task, console)
        return None
    as_text = [*task.extras, *task.categorical]
    files = read_whole(sources, dialect, as_text)
    n_rows = sum(table.num_rows for _, table in files)
    console.detail(f"{n_rows:,} rows read from {len(sources)} files")
    chosen = task.choose(files[0][1].column_names, sources[0])
    columns = []
    for name in chosen:
        chunks = []
        for place, table in files:  # by file, so that messages can name it
            column = plain_column(table.column(name))
            refuse_infinite(column, name, place)
            if is_text(column.type):
                column = drop_words(column, dialect.words(place.source.format))
            chunks += column.chunks
        columns.append(pa.chunked_array(chunks))
        if is_text(column.type) and name not in task.categorical:
            _warn_of_numbers(columns[-1], name, dialect.decimal, console)
    y, weight, noise = (
        None
        if name is None
        else np.concatenate(
            [read(table.column(name), name, place, dialect, what) for place, table in files]
        )
        for name, read, what in (
            (task.target, read_numbers, "target"),
            (task.weight, read_weights, "weight"),
            (task.noise, read_weights, "noise variance"),
        )
    )
    X = pa.table(columns, names=chosen).unify_dictionaries()
    model.fit(X, y, sample_weight=weight, known_noise=noise)
    return weight


def count_parquet(sources: Sequence[Source]) -> int | None:
    """Number of rows by the footers of Parquet files; None if a source is something else."""
    total = 0
    for source in sources:
        if source.format != "parquet" or source.is_stream:
            return None
        with naming(source):
            total += pq.read_metadata(source.path).num_rows
    return total


def _fit_pieces(
    model: Any, sources: Sequence[Source], dialect: Dialect, task: Task, console: Console
) -> None:
    """Fit to Parquet files that are read in pieces; targets and weights are checked first."""
    from triegp.pieces import parquet_pieces

    with naming(sources[0]):
        names = pq.read_schema(sources[0].path).names
    chosen = task.choose(names, sources[0])
    n_rows = count_parquet(sources)
    console.detail(f"{n_rows:,} rows are read in pieces: there are more than a tree has leaves")

    def extras(names: list[str], source: Source) -> list[str]:
        require_columns([*task.extras, *chosen], names, source)
        return task.extras

    for place, table in read_batches(sources, dialect, extras, MANY_ROWS):
        for name in task.extras:
            if is_text(plain_column(table.column(name)).type):
                raise CommandError(f"{place.source}, column {name!r}: must be numbers, got text")
        read_numbers(table.column(task.target), task.target, place, dialect, "target")
        if task.weight is not None:
            read_weights(table.column(task.weight), task.weight, place, dialect, "weight")
    paths = [source.path for source in sources]
    model.fit_pieces(parquet_pieces(paths, task.target, columns=chosen, weight=task.weight))


def _warn_of_numbers(column: pa.ChunkedArray, name: str, decimal: str, console: Console) -> None:
    """Warn of a column of text most of whose values are numbers: "?" may stand for gaps."""
    values = pc.drop_null(pc.unique(column))
    point = f"[{decimal}]"
    pattern = rf"^\s*[-+]?(\d+{point}?\d*|{point}\d+)([eE][-+]?\d+)?\s*$"
    is_number = pc.match_substring_regex(values, pattern)
    if len(values) > 2 and pc.sum(is_number).as_py() > 0.5 * len(values):
        others = values.filter(pc.invert(is_number))
        if len(others):
            console.warn(
                f"column {name!r} is read as categories, since it holds {others[0].as_py()!r:.40} "
                "beside numbers; --missing says which cells are missing, --categorical that it is "
                "meant so"
            )
