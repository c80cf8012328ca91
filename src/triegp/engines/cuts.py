"""Cuts of the sorted rows into shards: they depend on the number of rows, never split a leaf."""

from __future__ import annotations

import numpy as np

from triegp.engines.records import Ids, Ints

SHARD_ROWS = 1 << 14
MAX_SHARDS = 64


def default_cuts(n_rows: int) -> Ints:
    """First leaf of each shard, int64 (n_shards,). Depends on n_rows alone."""
    return np.arange(0, n_rows, max(SHARD_ROWS, -(-n_rows // MAX_SHARDS)), dtype=np.int64)


def between_keys(cuts: Ints, lcp: Ids, n_levels: int) -> Ints:
    """Move each cut between rows with the same key to the end of that run of rows.

    Rows with the same key are then always in one shard.
    """
    if not (lcp[cuts] == n_levels).any():
        return cuts
    starts = np.append(np.flatnonzero(lcp < n_levels), lcp.size)
    moved = np.unique(starts[np.searchsorted(starts, cuts)])
    return moved[moved < lcp.size]
