"""Equal rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

MIX = np.uint64(0xBF58476D1CE4E5B9)


def first_equal(X: Any) -> npt.NDArray[np.int64]:
    """Number of the first row that equals each row of X (n, d), int64 (n,). O(n d + n log n).

    Rows are compared with the first row that has the same hash. Two different rows with equal
    hashes, one in 10^19 pairs, may hide copies of the later one.
    """
    X = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # -0.0 equals 0.0
    n, d = X.shape
    bits = X.view(np.uint64)
    key = np.zeros(n, dtype=np.uint64)
    for j in range(d):
        key ^= bits[:, j]
        key *= MIX
        key ^= key >> np.uint64(32)
        key *= MIX
        key ^= key >> np.uint64(29)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    found = first[inverse.reshape(n)]
    return np.where((X[found] == X).all(axis=1), found, np.arange(n))
