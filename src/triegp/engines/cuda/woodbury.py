"""Product with a block-diagonal plus low-rank inverse on the device, for few columns.

These are our own kernels instead of library matrix products: they read rows in place, and they can
be recorded (`card.Recording`). Sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float64

from triegp.engines.cuda.card import THREADS, device, kernel, launch, xp
from triegp.engines.cuda.lines import LINES, share_of
from triegp.engines.records import Floats, Woodbury

WIDE = 8  # columns per pass
DEEP = 64  # terms of a sum whose factors are in shared memory at once
TERMS = DEEP * WIDE
PARTS = THREADS * WIDE


@device
def _load(rows, x, start, stop, first_column, columns, tile):
    """Load rows start..stop-1 of x, in block order, to tile; 0 beyond the last row."""
    for item in range(cuda.threadIdx.x, (stop - start) * WIDE, THREADS):
        i, j = start + item // WIDE, item % WIDE
        value = 0.0
        if i < rows.size and j < columns:
            value = x[rows[i], first_column + j]
        tile[item] = value


@kernel
def _reach(rows, x, gain, lines):
    """Partial sums of G'x: one line (r * k,) per block of threads, over its share of the rows."""
    tile = cuda.shared.array(TERMS, float64)
    total = cuda.local.array(WIDE, float64)
    t, (n_columns, rank) = cuda.threadIdx.x, (x.shape[1], gain.shape[1])
    lo, hi = share_of(rows.size)
    for first_column in range(0, n_columns, WIDE):
        columns = min(WIDE, n_columns - first_column)
        for first in range(0, rank, THREADS):
            c = first + t
            for j in range(WIDE):
                total[j] = 0.0
            for start in range(lo, hi, DEEP):
                stop = min(start + DEEP, hi)
                _load(rows, x, start, stop, first_column, columns, tile)
                cuda.syncthreads()
                if c < rank:
                    for i in range(start, stop):
                        factor = gain[i, c]
                        for j in range(WIDE):
                            total[j] += factor * tile[(i - start) * WIDE + j]
                cuda.syncthreads()
            if c < rank:
                for j in range(columns):
                    lines[cuda.blockIdx.x, c * n_columns + first_column + j] = total[j]


@kernel
def _add_up(lines, out):
    """Sum of the lines, in their order; out: (r, k)."""
    item = cuda.grid(1)
    if item < out.size:
        total = 0.0
        for line in range(lines.shape[0]):
            total += lines[line, item]
        out[item // out.shape[1], item % out.shape[1]] = total


@device
def _add_terms(factors, at, start, stop, part, n_parts, sign, tile, total):
    """Add one of n_parts parts of the terms start..stop-1 to total, (WIDE,); uses factors[at]."""
    for c in range(start + part, stop, n_parts):
        factor = sign * factors[at, c]
        for j in range(WIDE):
            total[j] += factor * tile[(c - start) * WIDE + j]


@kernel
def _fill(rows, x, local, gain, inner, out):
    """S x - G inner, one block of rows per block of threads; out: (n, k)."""
    tile = cuda.shared.array(TERMS, float64)
    room = cuda.shared.array(PARTS, float64)
    total = cuda.local.array(WIDE, float64)
    t, block = cuda.threadIdx.x, cuda.blockIdx.x
    size, rank, n_columns = local.shape[1], gain.shape[1], x.shape[1]
    width = min(size, THREADS)
    n_parts = THREADS // width  # threads per row
    part = t // width
    for first_column in range(0, n_columns, WIDE):
        columns = min(WIDE, n_columns - first_column)
        for first_row in range(0, size, width):
            row = first_row + t % width
            active = part < n_parts and row < size
            for j in range(WIDE):
                total[j] = 0.0
            for start in range(0, size, DEEP):
                stop = min(start + DEEP, size)
                begin = block * size + start
                _load(rows, x, begin, begin + stop - start, first_column, columns, tile)
                cuda.syncthreads()
                if active:
                    _add_terms(local[block], row, start, stop, part, n_parts, 1.0, tile, total)
                cuda.syncthreads()
            for start in range(0, rank, DEEP):
                stop = min(start + DEEP, rank)
                for item in range(t, (stop - start) * WIDE, THREADS):
                    c, j = start + item // WIDE, item % WIDE
                    tile[item] = inner[c, first_column + j] if j < columns else 0.0
                cuda.syncthreads()
                if active:
                    at = block * size + row
                    _add_terms(gain, at, start, stop, part, n_parts, -1.0, tile, total)
                cuda.syncthreads()
            for j in range(WIDE):
                room[t * WIDE + j] = total[j]
            cuda.syncthreads()
            here = block * size + row
            if part == 0 and row < size and here < rows.size:
                for j in range(columns):
                    value = 0.0
                    for other in range(n_parts):
                        value += room[(t + other * width) * WIDE + j]
                    out[rows[here], first_column + j] = value
            cuda.syncthreads()


def apply_woodbury(woodbury: Woodbury, x: Any) -> Floats:
    """(S - G G') x for x (n, k)."""
    out: Any = xp.empty_like(x)
    write_inverse(woodbury, x, out)
    return out  # type: ignore[no-any-return]


def write_inverse(woodbury: Woodbury, x: Any, out: Any) -> None:
    """Write (S - G G') x to out, by kernels only, so that a `Recording` can repeat it."""
    rows, local, gain = woodbury
    n_lines = min(LINES, rows.size)
    lines = xp.empty((n_lines, gain.shape[1] * x.shape[1]))
    inner = xp.empty((gain.shape[1], x.shape[1]))
    _reach(n_lines, rows, x, gain, lines)
    launch(_add_up, inner.size, lines, inner)
    _fill(local.shape[0], rows, x, local, gain, inner, out)
