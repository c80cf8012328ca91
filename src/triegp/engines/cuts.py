"""Where sorted rows are cut into shards: by the number of rows alone, and never inside a leaf."""

from __future__ import annotations

import numpy as np

from triegp.engines.contract import Ids, Ints

SHARD_ROWS = 1 << 14
MAX_SHARDS = 64


def default_cuts(n_rows: int) -> Ints:
    """First leaves of the shards, int64; they depend on n_rows alone."""
    return np.arange(0, n_rows, max(SHARD_ROWS, -(-n_rows // MAX_SHARDS)), dtype=np.int64)


def between_keys(cuts: Ints, lcp: Ids, n_levels: int) -> Ints:
    """Move cuts that part rows with the same key behind them: such a run is always one shard's."""
    if not (lcp[cuts] == n_levels).any():
        return cuts
    starts = np.append(np.flatnonzero(lcp < n_levels), lcp.size)
    moved = np.unique(starts[np.searchsorted(starts, cuts)])
    return moved[moved < lcp.size]
