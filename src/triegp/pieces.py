"""Rows in pieces for `BinaryTreeGPRegressor.fit_pieces`: tables in memory, and Parquet files.

>>> from triegp import BinaryTreeGPRegressor
>>> from triegp.pieces import parquet_pieces
>>> pieces = parquet_pieces("flights/*.parquet", target="delay")  # doctest: +SKIP
>>> model = BinaryTreeGPRegressor().fit_pieces(pieces)  # doctest: +SKIP
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from triegp.estimators.pieces import table_pieces
from triegp.models.pieces import LocalPieces, Piece, Pieces

__all__ = ["LocalPieces", "Piece", "Pieces", "parquet_pieces", "table_pieces"]


def parquet_pieces(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    n_threads: int = 2,
) -> LocalPieces:
    """Rows of Parquet files, one piece per row group.

    Parameters
    ----------
    path : path, pattern or sequence of paths
        Files, in this order; those of a pattern in the order of their names.
    target : str or sequence of str
        Column of the targets; several for several targets.
    columns : sequence of str, optional
        Columns of the features; by default all but target and weight.
    weight : str, optional
        Column of the sample weights.
    n_threads : int, default=2
        Pieces that are read at a time, each with the memory of a row group.

    Notes
    -----
    Only the footers of the files are read here. Requires pyarrow: `pip install 'triegp[parquet]'`.
    """
    import pyarrow.dataset as ds

    paths = [path] if isinstance(path, str | PathLike) else list(path)
    found = [name for one in paths for name in sorted(glob.glob(fspath(one)))]
    if not found:
        raise FileNotFoundError(f"path must name Parquet files, got {path!r:.200}: none is there")
    data = ds.dataset(found, format="parquet")
    targets = [target] if isinstance(target, str) else list(target)
    extra = [] if weight is None else [weight]
    names = list(data.schema.names)
    features = [one for one in names if one not in (*targets, *extra)]
    features = features if columns is None else list(columns)
    missing = [one for one in (*targets, *extra, *features) if one not in names]
    if missing:
        raise ValueError(f"columns {', '.join(map(repr, missing))} are not in the files {names}")
    groups = [part for file in data.get_fragments() for part in file.split_by_row_group()]
    counts = [sum(group.num_rows for group in part.row_groups) for part in groups]
    groups = [part for part, n in zip(groups, counts, strict=True) if n]
    counts = [n for n in counts if n]
    if not counts:
        raise ValueError(f"path must name files with rows, got none in {len(found)} files")
    firsts = np.cumsum([0, *counts]).tolist()

    def read(k: int) -> Piece:
        table = groups[k].to_table(columns=[*features, *targets, *extra], schema=data.schema)
        columns_of_y = [table.column(one).to_numpy() for one in targets]
        y: Any = columns_of_y[0] if isinstance(target, str) else np.stack(columns_of_y, axis=1)
        own = None if weight is None else table.column(weight).to_numpy()
        return Piece(firsts[k], table.select(features), y, own)

    return LocalPieces(firsts[:-1], firsts[-1], read, _concat, n_threads)


def _concat(tables: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables)
