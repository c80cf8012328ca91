"""Conjugate gradients, and products with a preconditioner's inverse in Woodbury form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.blas import one_blas_thread
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Floats, Ints, Woodbury

BLOCKS_AT_A_TIME = 32


def _dots(x: Floats, z: Floats) -> Floats:
    """Dot products of the columns of x and z, both (n, k): (k,)."""
    return np.asarray(np.einsum("nk,nk->k", x, z))


class CpuDescent:
    """The contract's `Descent`.

    multiply: product with the matrix; inverse: product with the preconditioner's inverse. Both map
    (n, k) to (n, k).
    """

    def __init__(
        self,
        multiply: Callable[[Floats], Floats],
        x: Floats,
        columns: Ints,
        r: Floats,
        inverse: Callable[[Floats], Floats] | None,
    ) -> None:
        self._multiply, self._inverse = multiply, inverse or (lambda r: r)
        self._x, self._columns, self._r = x, columns, r
        z = self._inverse(r)
        self._p, self._rz = z, _dots(r, z)

    def advance(self) -> tuple[Floats, Floats, Floats]:
        """Take one step: return |r| after it, the step length and r'M^-1 r before it, by column."""
        p = self._p
        q = self._multiply(p)
        curvature = _dots(p, q)
        up = curvature > 0
        stride = np.where(up, self._rz / np.where(up, curvature, 1.0), 0.0)
        self._x[:, self._columns] += stride * p
        self._r = self._r - stride * q
        return np.linalg.norm(self._r, axis=0), stride, self._rz

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Continue with the remaining columns selected by the mask `some`."""
        self._columns, self._rz = self._columns[some], self._rz[some]
        self._r, self._p = self._r[:, some], self._p[:, some]

    def turn(self) -> None:
        """Compute the next search direction: p = M^-1 r + beta p."""
        z = self._inverse(self._r)
        new = _dots(self._r, z)
        self._p = z + (new / self._rz) * self._p
        self._rz = new


def apply_woodbury(woodbury: Woodbury, x: Floats, n_threads: int) -> Floats:
    """(S - G G') x for x (n, k), a few blocks at a time. Bits do not depend on n_threads."""
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


def block_slices(n_blocks: int) -> list[slice]:
    """Slices of a few diagonal blocks each. They depend on n_blocks alone."""
    starts = range(0, n_blocks, BLOCKS_AT_A_TIME)
    return [slice(k, min(k + BLOCKS_AT_A_TIME, n_blocks)) for k in starts]
