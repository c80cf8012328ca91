"""Products with tall matrices, in blocks of rows: results do not depend on the threads.

Matrices may be float32, to halve what must be read. Products are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.compiler import dot_product, jit
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]
Tall = npt.NDArray[np.float32] | npt.NDArray[np.float64]

ROWS = 2_048  # of a block
FEW_COLUMNS = 4  # from so many columns on, products are faster by BLAS, which converts the blocks


def multiply(
    tall: Tall, x: Floats, n_threads: int, middle: Callable[[Floats], Floats] | None = None
) -> Floats:
    """G S (G' x) for a tall G (n, q), float32 or float64, and x (n,) or (n, k). O(n q k).

    middle: the product with S, by default the identity.
    """
    inner = reduce(tall, x, n_threads)
    with one_blas_thread():
        inner = inner if middle is None else middle(inner)
    return expand(tall, inner, n_threads)


def reduce(tall: Tall, x: Floats, n_threads: int) -> Floats:
    """G' x for a tall G (n, q), float32 or float64, and x (n,) or (n, k). O(n q k)."""
    by_column = x[:, None] if x.ndim == 1 else x
    convert = by_column.shape[1] >= FEW_COLUMNS

    def reach(first: int) -> Floats:
        rows = slice(first, first + ROWS)
        if convert or tall.dtype == np.float64:
            return np.asarray(tall[rows].astype(np.float64, copy=False).T @ by_column[rows])
        found = np.zeros((by_column.shape[1], tall.shape[1]))
        add_transposed(tall[rows], by_column[rows], found)
        return found.T

    with one_blas_thread():
        total: Any = sum(run_each(reach, range(0, tall.shape[0], ROWS), n_threads))
    return np.asarray(total.reshape(tall.shape[1], *x.shape[1:]))


def expand(tall: Tall, x: Floats, n_threads: int) -> Floats:
    """G x for a tall G (n, q), float32 or float64, and x (q,) or (q, k). O(n q k)."""
    by_column = x[:, None] if x.ndim == 1 else x
    out = np.empty((tall.shape[0], by_column.shape[1]))
    convert, lines = by_column.shape[1] >= FEW_COLUMNS, np.ascontiguousarray(by_column.T)

    def fill(first: int) -> None:
        rows = slice(first, first + ROWS)
        if convert or tall.dtype == np.float64:
            out[rows] = tall[rows].astype(np.float64, copy=False) @ by_column
        else:
            fill_products(tall[rows], lines, out[rows])

    with one_blas_thread():
        run_each(fill, range(0, tall.shape[0], ROWS), n_threads)
    return out.reshape(tall.shape[0], *x.shape[1:])


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


@dot_product
def dot(line, x, count):
    """line . x over the first entries."""
    total = 0.0
    for a in range(count):
        total += line[a] * x[a]
    return total


@jit
def fill_products(tall, lines, out):
    """out = G x for G (n, q), the columns of x as lines (k, q), and out (n, k)."""
    for i in range(tall.shape[0]):
        for c in range(lines.shape[0]):
            out[i, c] = dot(tall[i], lines[c], lines.shape[1])


@jit
def add_transposed(tall, x, out):
    """out += x' G for G (n, q), x (n, k) and out (k, q)."""
    n, q = tall.shape
    for i in range(n):
        for c in range(x.shape[1]):
            value, own = x[i, c], out[c]
            for j in range(q):
                own[j] += value * np.float64(tall[i, j])
