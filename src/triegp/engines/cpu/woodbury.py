"""The inverse of a block-diagonal matrix and one of low rank, as Woodbury's formula gives it."""

from __future__ import annotations

import numpy as np

from triegp.engines.blas import one_blas_thread
from triegp.engines.contract import Floats, Woodbury
from triegp.engines.cpu.threads import run_each

BLOCKS_AT_A_TIME = 32


def apply_woodbury(woodbury: Woodbury, x: Floats, n_threads: int) -> Floats:
    """(S - G G') x for x (n, k), a few blocks at a time; sums do not depend on the threads."""
    rows, local, gain = woodbury
    n_blocks, size, _ = local.shape
    n, k = x.shape
    blocks = np.zeros((n_blocks * size, k))
    blocks[:n] = x[rows]
    out = np.empty_like(blocks)
    starts = range(0, n_blocks, BLOCKS_AT_A_TIME)

    def part(start: int) -> slice:
        return slice(start * size, min(start + BLOCKS_AT_A_TIME, n_blocks) * size)

    def reach(start: int) -> Floats:
        return np.asarray(gain[part(start)].T @ blocks[part(start)])

    def fill(start: int) -> None:
        some = part(start)
        own = local[start : start + BLOCKS_AT_A_TIME] @ blocks[some].reshape(-1, size, k)
        out[some] = own.reshape(-1, k) - gain[some] @ inner

    with one_blas_thread():
        inner = sum(run_each(reach, starts, n_threads))
        run_each(fill, starts, n_threads)
    found = np.empty_like(x)
    found[rows] = out[:n]
    return found
