"""Dask arrays and data frames as aligned partitions, and their rows in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from distributed import Client

from triegp.dask.cluster import compute
from triegp.estimators.pieces import concat_tables
from triegp.models.pieces import Piece

Result = TypeVar("Result")


class Partition(NamedTuple):
    """Delayed parts of the rows, and their number."""

    X: Delayed
    y: Delayed
    weight: Delayed | None
    known_noise: Delayed | None
    n_rows: int


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return dask.is_dask_collection(X) and hasattr(X, "to_delayed")


def align(client: Client, X: Any, **others: Any) -> list[Partition]:
    """Partitions of X with the rows of `others` (y, weight, known_noise), without empty ones.

    Arrays are cut where X is. The number of rows of each partition is counted if it is not known.
    Raises ValueError if parts do not have the same number of rows.
    """
    if not is_collection(X):
        raise TypeError(f"X must be a Dask array or data frame, got {type(X).__name__}")
    cut: dict[str, Any] = {}
    blocks = delay(X)
    if not isinstance(X, da.Array):
        blocks, cut = _split_frame(X, others)
    lengths = count_rows(client, X, blocks)
    for name, value in others.items():
        if name not in cut:
            cut[name] = _delay_like(client, name, value, lengths)
    weight, known = (cut[name] or [None] * len(blocks) for name in ("weight", "known_noise"))
    parts = zip(blocks, cut["y"], weight, known, lengths, strict=True)
    return [Partition(*part) for part in parts if part[-1]]


def _split_frame(X: Any, others: dict[str, Any]) -> tuple[list[Delayed], dict[str, list[Delayed]]]:
    """Partitions of a frame, and those of the series and frames among `others`.

    They are read as one frame, row by row: Dask may fuse partitions of single columns in another
    way. Raises ValueError if they are not divided as X is.
    """
    whole, owners = X, {}
    for name, value in others.items():
        if value is None or isinstance(value, da.Array) or not is_collection(value):
            continue
        if value.npartitions != X.npartitions:
            raise ValueError(
                f"{name} must be divided into partitions as X is, got {value.npartitions} and "
                f"{X.npartitions}: take both from the same data frame"
            )
        columns = [value] if value.ndim == 1 else [value[one] for one in value.columns]
        owners[name] = [f"_{name} {k} of triegp" for k in range(len(columns))]
        names = owners[name]
        whole = whole.map_partitions(
            _side_by_side,
            *columns,
            names=names,
            meta=_side_by_side(whole._meta, *(one._meta for one in columns), names=names),
            align_dataframes=False,
        )
    blocks = delay(whole)
    features, take = list(X.columns), delayed(_take_columns)
    cut = {}
    for name, own in owners.items():
        wanted: Any = own[0] if others[name].ndim == 1 else own
        cut[name] = [take(block, wanted) for block in blocks]
    return [take(block, features) for block in blocks], cut


def _side_by_side(frame: Any, *columns: Any, names: Sequence[str]) -> Any:
    """A partition with more columns, by position; their index does not matter."""
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(frame):
            raise ValueError(
                f"partitions must have the same number of rows, got {len(frame)} of X and "
                f"{len(column)} of {name.split()[0][1:]}: take both from the same data frame"
            )
        frame = frame.assign(**{name: column.to_numpy()})
    return frame


def _take_columns(frame: Any, names: Any) -> Any:
    return frame[names]


def delay(X: Any) -> list[Delayed]:
    """Delayed partitions of a collection; an array is not cut between its columns."""
    if isinstance(X, da.Array):
        X = X.rechunk({1: -1}) if X.ndim == 2 else X
        return list(X.to_delayed().ravel())
    return list(X.to_delayed())


def count_rows(client: Client, X: Any, blocks: Sequence[Delayed]) -> list[int]:
    """Number of rows of each partition; computed unless the chunks of an array are known."""
    if isinstance(X, da.Array) and not np.isnan(X.chunks[0]).any():
        return [int(n) for n in X.chunks[0]]
    return compute(client, [delayed(len)(one) for one in blocks])


def _delay_like(client: Client, name: str, value: Any, lengths: Sequence[int]) -> Any:
    """Delayed parts of a vector or matrix, cut where X is; None for None."""
    if value is None:
        return None
    n_rows = sum(lengths)
    if not is_collection(value):
        array = np.asarray(value)
        if array.ndim == 0:  # one weight for all rows
            return [delayed(np.full)(n, array) for n in lengths]
        if len(array) != n_rows:
            raise ValueError(
                f"X and {name} must have the same number of rows, got {n_rows} and {len(array)}"
            )
        value = da.from_array(array, chunks=(tuple(lengths), *array.shape[1:]))
    blocks = delay(value)
    own = count_rows(client, value, blocks)
    if sum(own) != n_rows:
        raise ValueError(
            f"X and {name} must have the same number of rows, got {n_rows} and {sum(own)}"
        )
    if list(own) == list(lengths):
        return blocks
    if isinstance(value, da.Array):
        known = da.concatenate(
            [
                da.from_delayed(one, (n, *value.shape[1:]), dtype=value.dtype)
                for one, n in zip(blocks, own, strict=True)
            ]
        )
        return delay(known.rechunk({0: tuple(lengths)}))
    raise ValueError(
        f"{name} must be a Dask array or an array, or X a data frame, got {type(value).__name__} "
        "beside an array X"
    )


class DaskPieces:
    """Partitions as pieces; implements `triegp.models.pieces.Pieces`.

    A partition is computed anew in every pass, unless it was persisted. Results are joined on the
    workers, two at a time, as soon as they are there.
    """

    def __init__(self, client: Client, partitions: Sequence[Partition]) -> None:
        self._client, self._partitions = client, partitions
        firsts = np.cumsum([0, *(part.n_rows for part in partitions)]).tolist()
        make = delayed(make_piece, pure=False)
        self._pieces = [
            make(first, part.X, part.y, part.weight, part.n_rows)
            for first, part in zip(firsts[:-1], partitions, strict=True)
        ]

    @property
    def n_rows(self) -> int:
        """Number of rows in all pieces."""
        return sum(part.n_rows for part in self._partitions)

    def collect(self, work: Callable[[Piece], Result]) -> list[Result]:
        """Result of every piece, in their order."""
        call = delayed(work, pure=False)
        return compute(self._client, [call(piece) for piece in self._pieces])

    def reduce(
        self, work: Callable[[Piece], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """Results of all pieces, joined two at a time on the workers."""
        call, link = delayed(work, pure=False), delayed(join, pure=False)
        found = [call(piece) for piece in self._pieces]
        while len(found) > 1:
            pairs = [found[k : k + 2] for k in range(0, len(found), 2)]
            found = [link(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
        result: Result = compute(self._client, found)[0]
        return result

    def concat(self, tables: Sequence[Any]) -> Any:
        """Parts of X as one table."""
        return concat_tables(tables)


def make_piece(first: int, X: Any, y: Any, weight: Any, n_rows: int) -> Piece:
    """A piece; raises ValueError if a partition does not have the rows that were counted."""
    for name, part in (("X", X), ("y", y), ("sample_weight", weight)):
        if part is not None and len(part) != n_rows:
            raise ValueError(
                f"{name} must have {n_rows} rows in the partition from row {first:,} on, got "
                f"{len(part)}: partitions must not change while they are computed"
            )
    return Piece(first, X, np.asarray(y), None if weight is None else np.asarray(weight))


def gather_rows(client: Client, partitions: Sequence[Partition]) -> tuple[Any, Any, Any, Any]:
    """All rows in this process: X, y, weight and known noise."""
    columns: list[Any] = []
    for name in ("X", "y", "weight", "known_noise"):
        parts = [getattr(one, name) for one in partitions]
        if parts[0] is None:
            columns.append(None)
            continue
        found = compute(client, parts)
        columns.append(concat_tables(found if name == "X" else list(map(np.asarray, found))))
    X, y, weight, known_noise = columns
    return X, y, weight, known_noise
