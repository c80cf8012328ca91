"""What a step of conjugate gradients takes on the card, in as few launches as it can.

Sums over rows come in lines, one a block; whoever needs the sum adds up the lines, every block for
itself and all in the same order. So a step asks the host for one thing only: whether to go on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from triegp.engines.cuda.card import THREADS, device, kernel, launch, to_host, xp
from triegp.engines.protocol import Floats, Ids, Ints

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
def _sum_lines(lines, n_lines, column, width, room):
    """Sum of a column over the first n_lines lines; threads t, t + width, ... have the same one."""
    t = cuda.threadIdx.x
    total = 0.0
    if t < THREADS // width * width:
        for line in range(t // width, n_lines, THREADS // width):
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
def _advance(lines, rz, p, q, columns, x, r, found):
    """A step along p; lines: of p'q; found: (blocks + 1, k), lines of r'r, and the strides."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = _share(p.shape[0])
    for first in range(0, p.shape[1], THREADS):
        width = min(THREADS, p.shape[1] - first)
        column, apart = first + t % width, THREADS // width
        curvature = _sum_lines(lines, lines.shape[0], column, width, room)
        stride = 0.0
        if curvature > 0.0:
            stride = rz[column] / curvature
        total = 0.0
        if t < apart * width:
            for row in range(lo + t // width, hi, apart):
                x[row, columns[column]] += stride * p[row, column]
                left = r[row, column] - stride * q[row, column]
                r[row, column] = left
                total += left * left
        total = _fold(total, width, room)
        if t < width:
            found[cuda.blockIdx.x, column] = total
            if cuda.blockIdx.x == 0:
                found[cuda.gridDim.x, column] = stride


@kernel
def _turn(lines, rz, z, p, new):
    """p = z + (new / rz) p; lines: of new, which is r'z."""
    room = cuda.shared.array(THREADS, float64)
    t = cuda.threadIdx.x
    lo, hi = _share(p.shape[0])
    for first in range(0, p.shape[1], THREADS):
        width = min(THREADS, p.shape[1] - first)
        column, apart = first + t % width, THREADS // width
        total = _sum_lines(lines, lines.shape[0], column, width, room)
        if cuda.blockIdx.x == 0 and t < width:
            new[column] = total
        ratio = total / rz[column]
        if t < apart * width:
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


def advance(
    p: Floats, q: Floats, rz: Floats, x: Floats, columns: Ints, r: Floats
) -> tuple[Floats, Floats]:
    """x[:, columns] += a p and r -= a q, in place; |r| and a = rz / p'q, on the host."""
    n_lines = _n_lines(p)
    found = xp.empty((n_lines + 1, p.shape[1]))
    _advance(n_lines, _lines_of(p, q), rz, p, q, columns, x, r, found)
    on_host = to_host(found)
    return np.sqrt(on_host[:-1].sum(axis=0)), on_host[-1]


def turn(r: Floats, z: Floats, rz: Floats, p: Floats) -> Floats:
    """p = z + (r'z / rz) p, in place; return r'z, (k,)."""
    new = xp.empty_like(rz)
    _turn(_n_lines(p), _lines_of(r, z), rz, z, p, new)
    return new  # type: ignore[no-any-return]


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
