"""Products with tall matrices, in blocks of rows: results do not depend on the threads.

Matrices may be float32, to halve what must be read. Products are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]
Tall = npt.NDArray[np.float32] | npt.NDArray[np.float64]

ROWS = 2_048  # of a block
LANES = 16  # partial sums of a scalar product


def multiply(
    tall: Tall, x: Floats, n_threads: int, middle: Callable[[Floats], Floats] | None = None
) -> Floats:
    """G S (G' x) for a tall G (n, q), float32 or float64, and x (n,) or (n, k). O(n q k).

    middle: the product with S, by default the identity.
    """
    out = np.empty_like(x, dtype=np.float64)
    starts = range(0, tall.shape[0], ROWS)
    single = tall.dtype == np.float32

    def reach(first: int) -> Floats:
        some = slice(first, first + ROWS)
        if not single:
            return np.asarray(tall[some].T @ x[some])
        part = x[some].reshape(tall[some].shape[0], -1)
        found = np.zeros((part.shape[1], tall.shape[1]))
        add_transposed(tall[some], part, found)
        return found.T.reshape(tall.shape[1], *x.shape[1:])

    def fill(first: int) -> None:
        some = slice(first, first + ROWS)
        if not single:
            out[some] = tall[some] @ inner
            return
        columns = np.ascontiguousarray(inner.reshape(tall.shape[1], -1).T)
        fill_products(tall[some], columns, out[some].reshape(-1, columns.shape[0]))

    with one_blas_thread():
        inner: Any = sum(run_each(reach, starts, n_threads))
        inner = inner if middle is None else middle(inner)
        run_each(fill, starts, n_threads)
    return out


def gram(tall: Tall, n_threads: int) -> Floats:
    """G' G in float64 for a tall G (n, q), float32 or float64. O(n q^2)."""
    total = np.zeros((tall.shape[1], tall.shape[1]))
    starts = range(0, tall.shape[0], ROWS)

    def reach(first: int) -> Floats:
        some = tall[first : first + ROWS].astype(np.float64, copy=False)
        return np.asarray(some.T @ some)

    with one_blas_thread():
        for lo in range(0, len(starts), 8):  # a few partial sums at a time
            for part in run_each(reach, starts[lo : lo + 8], n_threads):
                total += part
    return total


@jit
def add_transposed(tall, x, out):
    """out += x' G for G (n, q), x (n, k) and out (k, q)."""
    n, q = tall.shape
    for i in range(n):
        for c in range(x.shape[1]):
            value, own = x[i, c], out[c]
            for j in range(q):
                own[j] += value * np.float64(tall[i, j])


@jit
def fill_products(tall, columns, out):
    """out[i, c] = G[i] . columns[c], for G (n, q), columns (k, q) and out (n, k)."""
    n, q = tall.shape
    sums = np.empty(LANES)
    whole = q // LANES * LANES
    for i in range(n):
        for c in range(columns.shape[0]):
            own = columns[c]
            sums[:] = 0.0
            for first in range(0, whole, LANES):
                for j in range(LANES):
                    sums[j] += np.float64(tall[i, first + j]) * own[first + j]
            total = 0.0
            for j in range(LANES):
                total += sums[j]
            for j in range(whole, q):
                total += np.float64(tall[i, j]) * own[j]
            out[i, c] = total
