"""What a step of conjugate gradients takes on the card, in as few launches as it can.

Sums over rows come in lines, one a block; whoever needs the sum adds up the lines, every block for
itself and all in the same order. So a step asks the host for one thing only: whether to go on.
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
    launch,
    to_device,
    to_host,
    xp,
)
from triegp.engines.cuda.forests import write_products
from triegp.engines.cuda.groves import groves
from triegp.engines.protocol import Floats, Ids, Ints, Tree

LINES = 128  # blocks that share the rows


@device
def _share(n_rows):
    """First and last of a block's rows."""
    size = (n_rows + cuda.gridDim.x - 1) // cuda.gridDim.x
    lo = min(cuda.blockIdx.x * size, n_rows)
    return lo, min(lo + size, n_rows)


@device
def _fold(value, width, room):
    """Sum over the threads t, t + width, ... of a block, for t < width; other threads get some sum.

    room: shared float64 (THREADS,).
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
    """Sum of a column over the lines; threads t, t + width, ... have the same one."""
    t = cuda.threadIdx.x
    total = 0.0
    if t < THREADS // width * width:
        for line in range(t // width, lines.shape[0], THREADS // width):
            total += lines[line, column]
    return _fold(total, width, room)


@kernel
def _dot_lines(x, z, lines):
    """Products of the columns of x with those of z, both (n, k), as lines (blocks, k)."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = _share(x.shape[0])
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
    """A step along p; lines: of p'q; found: (blocks + 1, k), lines of r'r, and the strides.

    live: int32 (k,), 0 for columns that stay where they are; old: (k,), rz goes there.
    """
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = _share(p.shape[0])
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
                old[column] = rz[column]


@kernel
def _turn(lines, old, live, z, p, rz):
    """p = z + (rz / old) p where columns live; lines: of rz, which is r'z."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = _share(p.shape[0])
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


@kernel
def _to_blocks(rows, x, out):
    """out[i] = x[rows[i]], and 0 behind all rows; out: (n_blocks size, k)."""
    item = cuda.grid(1)
    if item < out.size:
        i, column = item // out.shape[1], item % out.shape[1]
        out[i, column] = x[rows[i], column] if i < rows.size else 0.0


@kernel
def _from_blocks(rows, own, far, out):
    """out[rows[i]] = own[i] - far[i]; out: (n, k)."""
    item = cuda.grid(1)
    if item < out.size:
        i, column = item // out.shape[1], item % out.shape[1]
        out[rows[i], column] = own[i, column] - far[i, column]


def dots(x: Floats, z: Floats) -> Floats:
    """Products of the columns of x with those of z, both (n, k): (k,)."""
    return _lines_of(x, z).sum(axis=0)  # type: ignore[no-any-return]


class CardDescent:
    """As the protocol's `Descent`. A step is the same launches as the one before: they are kept.

    Columns that are done stay where they are, until half of them are; then they are left out.
    """

    def __init__(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        x: Floats,
        columns: Ints,
        r: Floats,
        inverse: Callable[[Floats], Floats],
    ) -> None:
        self._trees, self._variance, self._x, self._inverse = trees, variance, x, inverse
        z = inverse(r)
        self._begin(columns, r, z.copy(), dots(r, z))

    def _begin(self, columns: Any, r: Any, p: Any, rz: Any) -> None:
        k = r.shape[1]
        groves(self._trees, k)  # made now, they are no part of a step
        self._columns, self._r, self._p, self._rz = columns, r, p, rz
        self._n_lines = _n_lines(r)
        self._q, self._old = xp.empty_like(p), rz.copy()
        self._lines = xp.empty((self._n_lines, k))
        self._found = xp.empty((self._n_lines + 1, k))
        self._live, self._among = xp.ones(k, np.int32), np.arange(k)
        self._recording: Recording | None = None

    def advance(self) -> tuple[Floats, Floats]:
        """One step: |r| of every column that is left, and how far it went."""
        if self._recording is None:
            self._recording = Recording(self._go)
        else:
            self._recording.again()
        found = to_host(self._found)[:, self._among]
        return np.sqrt(found[:-1].sum(axis=0)), found[-1]

    def _go(self) -> None:
        p, q, lines = self._p, self._q, self._lines
        write_products(self._trees, p, self._variance, q)
        _dot_lines(self._n_lines, p, q, lines)
        state = (self._columns, self._x, self._r, self._found, self._old)
        _advance(self._n_lines, lines, self._rz, self._live, p, q, *state)

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Go on with some of the columns that are left."""
        self._among = self._among[some]
        kept = to_device(self._among)
        if 2 * self._among.size > self._columns.size:
            self._live[...] = 0
            self._live[kept] = 1
            return
        r, p = to_device(self._r[:, kept]), to_device(self._p[:, kept])
        self._begin(self._columns[kept], r, p, self._old[kept])

    def turn(self) -> None:
        """The next direction: M^-1 r, and a part of the last."""
        z = self._inverse(self._r)
        _dot_lines(self._n_lines, self._r, z, self._lines)
        _turn(self._n_lines, self._lines, self._old, self._live, z, self._p, self._rz)


def apply_woodbury(rows: Ids, local: Floats, gain: Floats, x: Floats) -> Floats:
    """(S - G G') x for x (n, k), S in blocks of rows."""
    n_blocks, size, _ = local.shape
    k = x.shape[1]
    blocks: Any = xp.empty((n_blocks * size, k))
    launch(_to_blocks, blocks.size, rows, x, blocks)
    own = xp.matmul(local, blocks.reshape(n_blocks, size, k)).reshape(-1, k)
    far = gain @ (gain.T @ blocks)
    out = xp.empty_like(x)
    launch(_from_blocks, out.size, rows, own, far, out)
    return out  # type: ignore[no-any-return]


def _lines_of(x: Any, z: Any) -> Any:
    n_lines = _n_lines(x)
    lines = xp.empty((n_lines, x.shape[1]))
    _dot_lines(n_lines, x, z, lines)
    return lines


def _n_lines(x: Any) -> int:
    """So many that no block is without work, and LINES at most."""
    return max(1, min(LINES, -(-int(x.size) // THREADS)))
