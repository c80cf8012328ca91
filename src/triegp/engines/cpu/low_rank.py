"""Products with tall matrices, in blocks of rows: results do not depend on the threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]

ROWS = 2_048  # of a block


def multiply(tall: Floats, x: Floats, n_threads: int) -> Floats:
    """G (G' x) for a tall G (n, q) and x (n,) or (n, k). O(n q k)."""
    out = np.empty_like(x, dtype=np.float64)
    starts = range(0, tall.shape[0], ROWS)

    def reach(first: int) -> Floats:
        some = slice(first, first + ROWS)
        return np.asarray(tall[some].T @ x[some])

    def fill(first: int) -> None:
        some = slice(first, first + ROWS)
        out[some] = tall[some] @ inner

    with one_blas_thread():
        inner = sum(run_each(reach, starts, n_threads))
        run_each(fill, starts, n_threads)
    return out


def gram(tall: Floats, n_threads: int) -> Floats:
    """G' G for a tall G (n, q). O(n q^2)."""
    total = np.zeros((tall.shape[1], tall.shape[1]))
    starts = range(0, tall.shape[0], ROWS)

    def reach(first: int) -> Floats:
        some = tall[first : first + ROWS]
        return np.asarray(some.T @ some)

    with one_blas_thread():
        for lo in range(0, len(starts), 8):  # a few partial sums at a time
            for part in run_each(reach, starts[lo : lo + 8], n_threads):
                total += part
    return total
