"""Conjugate gradient steps on the device, in as few launches as possible.

A sum over rows is stored as lines of partial sums, one line per block of threads. Kernels that need
the sum add up the lines in every block, all in the same order. So the host reads one small array
per step, to decide whether to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda, float64

from triegp.engines.cuda.card import (
    THREADS,
    Recording,
    device,
    kernel,
    to_device,
    to_host,
    xp,
)
from triegp.engines.cuda.forests import write_products
from triegp.engines.cuda.groves import groves
from triegp.engines.cuda.lines import LINES, share_of
from triegp.engines.cuda.woodbury import apply_woodbury, write_inverse
from triegp.engines.records import Floats, Ints, Tree, Woodbury


@device
def _fold(value, width, room):
    """Sum over threads t, t + width, ... of a block, for t < width.

    Every thread t returns the sum of thread t % width. room: shared float64 (THREADS,).
    """
    t = cuda.threadIdx.x
    room[t] = value
    cuda.syncthreads()
    count = THREADS // width
    while count > 1:
        half = (count + 1) // 2
        if t < (count - half) * width:
            room[t] += room[t + half * width]
        cuda.syncthreads()
        count = half
    total = room[t % width]
    cuda.syncthreads()
    return total


@device
def _sum_lines(lines, column, width, room):
    """Sum of a column over the lines; threads t, t + width, ... get the same sum."""
    t = cuda.threadIdx.x
    total = 0.0
    if t < THREADS // width * width:
        for line in range(t // width, lines.shape[0], THREADS // width):
            total += lines[line, column]
    return _fold(total, width, room)


@kernel
def _dot_lines(x, z, lines):
    """Dot products of the columns of x and z, both (n, k), as lines (blocks, k)."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = share_of(x.shape[0])
    for first in range(0, x.shape[1], THREADS):
        width = min(THREADS, x.shape[1] - first)
        column, apart = first + t % width, THREADS // width
        total = 0.0
        if t < apart * width:
            for row in range(lo + t // width, hi, apart):
                total += x[row, column] * z[row, column]
        total = _fold(total, width, room)
        if t < width:
            lines[cuda.blockIdx.x, column] = total


@kernel
def _advance(lines, rz, live, p, q, columns, x, r, found, old):
    """One step along p: updates x and r in place.

    lines: of p'q. found: (blocks + 2, k), receives lines of r'r, then step lengths, then rz. live:
    int32 (k,), 0 for columns that are not updated. old: (k,), receives rz.
    """
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = share_of(p.shape[0])
    for first in range(0, p.shape[1], THREADS):
        width = min(THREADS, p.shape[1] - first)
        column, apart = first + t % width, THREADS // width
        curvature = _sum_lines(lines, column, width, room)
        stride = 0.0
        if curvature > 0.0 and live[column] != 0:
            stride = rz[column] / curvature
        total = 0.0
        if t < apart * width:
            for row in range(lo + t // width, hi, apart):
                left = r[row, column]
                if stride != 0.0:
                    x[row, columns[column]] += stride * p[row, column]
                    left -= stride * q[row, column]
                    r[row, column] = left
                total += left * left
        total = _fold(total, width, room)
        if t < width:
            found[cuda.blockIdx.x, column] = total
            if cuda.blockIdx.x == 0:
                found[cuda.gridDim.x, column] = stride
                found[cuda.gridDim.x + 1, column] = rz[column]
                old[column] = rz[column]


@kernel
def _turn(lines, old, live, z, p, rz):
    """p = z + (rz / old) p in live columns; lines: of rz = r'z, which is written to rz."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = share_of(p.shape[0])
    for first in range(0, p.shape[1], THREADS):
        width = min(THREADS, p.shape[1] - first)
        column, apart = first + t % width, THREADS // width
        total = _sum_lines(lines, column, width, room)
        if cuda.blockIdx.x == 0 and t < width:
            rz[column] = total
        if live[column] != 0 and t < apart * width:
            ratio = total / old[column]
            for row in range(lo + t // width, hi, apart):
                p[row, column] = z[row, column] + ratio * p[row, column]


def dots(x: Floats, z: Floats) -> Floats:
    """Dot products of the columns of x and z, both (n, k): (k,)."""
    return _lines_of(x, z).sum(axis=0)  # type: ignore[no-any-return]


class CardDescent:
    """The contract's `Descent`. Each step repeats the recorded launches of the first.

    Columns that are done are no longer updated. Once at most half of the columns remain, the others
    are removed from the arrays.
    """

    def __init__(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        x: Floats,
        columns: Ints,
        r: Floats,
        woodbury: Woodbury | None,
        more: Callable[[Floats], Floats] | None = None,
    ) -> None:
        self._more = more
        self._trees, self._variance, self._x, self._woodbury = trees, variance, x, woodbury
        z = r if woodbury is None else apply_woodbury(woodbury, r)
        self._begin(columns, r, z.copy(), dots(r, z))

    def _begin(self, columns: Any, r: Any, p: Any, rz: Any) -> None:
        """Allocate the arrays for these columns and start new recordings."""
        k = r.shape[1]
        self._ahead: Recording | None = None
        self._around: Recording | None = None
        self._groves = groves(self._trees, k)
        self._columns, self._r, self._p, self._rz = columns, r, p, rz
        self._n_lines = _n_lines(r)
        self._q, self._old = xp.empty_like(p), rz.copy()
        self._z = r if self._woodbury is None else xp.empty_like(r)
        self._lines = xp.empty((self._n_lines, k))
        self._found = xp.empty((self._n_lines + 2, k))
        self._live, self._among = xp.ones(k, np.int32), np.arange(k)

    def advance(self) -> tuple[Floats, Floats, Floats]:
        """Take one step: return |r| after it, the step length and r'M^-1 r before it, by column."""
        if self._more is not None:  # its launches are not ours to record
            self._go_ahead()
        elif self._ahead is None:
            self._ahead = Recording(self._go_ahead)
        else:
            self._ahead.again()
        found = to_host(self._found)[:, self._among]
        return np.sqrt(found[:-2].sum(axis=0)), found[-2], found[-1]

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Continue with the remaining columns selected by the mask `some`."""
        self._among = self._among[some]
        kept = to_device(self._among)
        if 2 * self._among.size > self._columns.size:
            self._live[...] = 0
            self._live[kept] = 1
            return
        r, p = to_device(self._r[:, kept]), to_device(self._p[:, kept])
        self._begin(self._columns[kept], r, p, self._old[kept])

    def turn(self) -> None:
        """Compute the next search direction: p = M^-1 r + beta p."""
        if self._around is None:
            self._around = Recording(self._go_around)
        else:
            self._around.again()

    def _go_ahead(self) -> None:
        p, q, lines = self._p, self._q, self._lines
        write_products(self._groves, p, self._variance, q)
        if self._more is not None:
            q += self._more(p)
        _dot_lines(self._n_lines, p, q, lines)
        state = (self._columns, self._x, self._r, self._found, self._old)
        _advance(self._n_lines, lines, self._rz, self._live, p, q, *state)

    def _go_around(self) -> None:
        r, z, lines = self._r, self._z, self._lines
        if self._woodbury is not None:
            write_inverse(self._woodbury, r, z)
        _dot_lines(self._n_lines, r, z, lines)
        _turn(self._n_lines, lines, self._old, self._live, z, self._p, self._rz)


def _lines_of(x: Any, z: Any) -> Any:
    """Dot products of the columns of x and z as lines (blocks, k)."""
    n_lines = _n_lines(x)
    lines = xp.empty((n_lines, x.shape[1]))
    _dot_lines(n_lines, x, z, lines)
    return lines


def _n_lines(x: Any) -> int:
    """Number of blocks: about one entry per thread, and at most LINES blocks."""
    return max(1, min(LINES, -(-int(x.size) // THREADS)))
