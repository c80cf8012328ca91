"""Rows that repeat others, found on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.devices import to_host
from triegp.encoding.grids import DEVICE_ENTRIES
from triegp.encoding.held import hash_held
from triegp.encoding.reading import row_blocks
from triegp.engines import device_engine


def order_distinct(X: Any) -> npt.NDArray[np.int64] | None:
    """Order of rows on a device by their hashes, (n,), on the host; None if two of them agree.

    Hashes are those of features in float32. O(n d) and a sort.
    """
    with np.errstate(over="ignore"):
        hashes = hash_held(X.astype(np.float32))
    order = np.argsort(hashes)
    hashes = hashes[order]
    if bool((hashes[1:] == hashes[:-1]).any()):
        return None
    return np.asarray(to_host(order), np.int64)


def scale_features(X: Any) -> tuple[Any, Any]:
    """Largest size of each feature, and the deviation of features divided by it, (d,) each.

    Both lie on the device; a size of 0 is 1. Column by column, in O(n) memory.
    """
    size = np.maximum(X.max(axis=0), -X.min(axis=0)).astype(np.float64)
    size = np.where(size > 0, size, 1.0)
    sd = np.stack([(X[:, j].astype(np.float64) / size[j]).std() for j in range(X.shape[1])])
    return size, sd


def count_shared_cells(X: Any, size: Any, sd: Any, radius: float) -> int:
    """Rows that share a cell of width 4 radius with another, on one of two grids.

    Features are divided by `size`, then by `sd`; those with deviation 0 do not count.
    """
    engine, nothing = device_engine(), np.zeros(X.shape[1], np.int64)
    unit = np.where(sd > 0, sd, np.inf)
    shared = np.zeros_like(X, dtype=np.bool_, shape=(X.shape[0],))
    for shift in (0.0, 0.5):
        parts = []
        for rows in row_blocks(X.shape[0], X.shape[1], DEVICE_ENTRIES):
            scaled = X[rows].astype(np.float64) / size / unit
            cells = np.floor(scaled / (4.0 * radius) + shift) + 0.0
            parts.append(engine.hash_rows(cells.view(np.uint64), nothing))
        hashes = np.concatenate(parts)
        order = np.argsort(hashes)
        same = hashes[order[1:]] == hashes[order[:-1]]
        shared[order[1:][same]] = True
        shared[order[:-1][same]] = True
    return int(shared.sum())
