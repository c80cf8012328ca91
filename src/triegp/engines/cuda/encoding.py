"""Codes of rows on several grids and hashes of rows, on the device: the same bits as on the CPU.

One thread maps one value onto [0, 1], then one thread packs one row. Both repeat the operations of
`cpu.packing` one by one. No product is followed by a sum, so
the compiler has nothing to contract, and every result is rounded as on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda.card import device, kernel, launch, to_device, xp
from triegp.engines.records import Bytes, Floats, GridMap, Ints, Words


@device
def _fraction(value, low, high):
    """(value - low) / (high - low), or 0 if both are equal; halves do not overflow."""
    half = 0.5 if math.isinf(high - low) else 1.0
    width = high * half - low * half
    if width == 0.0:
        width = 1.0
    return (value * half - low * half) / width


@kernel
def _place(values, low, high, knots, heights, at):
    """Position of each value in [0, 1], float64 (m, d); knots and heights of size 0 are linear."""
    item = cuda.grid(1)
    if item < at.size:
        i, j = item // at.shape[1], item % at.shape[1]
        value = min(max(values[i, j], low[j]), high[j])
        if knots.size == 0:
            at[i, j] = _fraction(value, low[j], high[j])
        else:
            n_steps = knots.shape[1] - 1
            last = 0
            for k in range(1, n_steps + 1):
                if value >= knots[j, k]:
                    last += 1
            base = knots[j, last]
            here = heights[j, last]
            if value != base:
                here = _fraction(value, base, knots[j, min(last + 1, n_steps)]) + last
            at[i, j] = here / n_steps


@kernel
def _pack(at, beyond, shift, scale, cells, widths, packed):
    """Codes of one row per thread, in the format of `codes.pack_codes`.

    at: float64 (m, d). beyond: bool (m, d), True if the code is 0, or (0, 0) if there are none.
    shift, scale: float64 (d,). cells: float64 (d,), 2**widths; widths: int64 (d,).
    """
    i = cuda.grid(1)
    if i < packed.shape[0]:
        word, filled, byte = np.uint64(0), np.int64(0), np.int64(0)
        for j in range(at.shape[1]):
            here = (at[i, j] + shift[j]) * scale[j]
            code = np.uint64(min(math.floor(here), cells[j] - 1.0))
            if beyond.size and beyond[i, j]:
                code = np.uint64(0)
            word = (word << np.uint64(widths[j])) | code
            filled += widths[j]
            while filled >= 8:
                filled -= 8
                packed[i, byte] = np.uint8((word >> np.uint64(filled)) & np.uint64(255))
                byte += 1
            word &= (np.uint64(1) << np.uint64(filled)) - np.uint64(1)
        if filled:
            packed[i, byte] = np.uint8((word << np.uint64(8 - filled)) & np.uint64(255))


def encode(values: Floats, beyond: Any, maps: Sequence[GridMap]) -> list[Bytes]:
    """Packed codes of m rows on every grid; values: float64 (m, d), on the host or the device."""
    values = to_device(values, np.float64)
    nothing = xp.zeros((0, 0), np.bool_)
    beyond = nothing if beyond is None else to_device(beyond, np.bool_)
    at, found, before = None, list[Bytes](), None
    for one in maps:
        if before is None or one.low is not before.low:  # grids with the same map share positions
            at, before = place(values, one), one
        packed = xp.empty((values.shape[0], -(-int(one.widths.sum()) // 8)), np.uint8)
        cells = np.ldexp(1.0, one.widths.astype(np.intc))
        grid = tuple(map(to_device, (one.shift, one.scale, cells, one.widths)))
        launch(_pack, packed.shape[0], at, beyond, *grid, packed)
        found.append(packed)
    return found


def place(values: Floats, one: GridMap) -> Floats:
    """Positions of m rows in [0, 1], float64 (m, d), before any shift."""
    at: Any = xp.empty(values.shape)
    scaling = (one.low, one.high, one.knots, one.heights)
    given = (to_device(array, np.float64) for array in scaling)
    launch(_place, at.size, to_device(values, np.float64), *given, at)
    return at  # type: ignore[no-any-return]


@kernel
def _hash(values, right, out):
    """Hash of one row per thread: `encoding.precision.hash_rows` of values >> right."""
    i = cuda.grid(1)
    if i < out.size:
        total = np.uint64(0)
        for j in range(values.shape[1]):
            salt = np.uint64(j + 1) * np.uint64(0x9E3779B97F4A7C15)
            state = (values[i, j] >> right[j]) + salt
            state ^= state >> np.uint64(30)
            state *= np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(27)
            state *= np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
            total += state
        out[i] = total


def hash_rows(values: Words, right: Ints) -> Words:
    """Hashes of m rows of words, uint64 (m,); right: bits by which each column is shifted first."""
    out: Any = xp.empty(values.shape[0], np.uint64)
    launch(_hash, out.size, to_device(values, np.uint64), to_device(right, np.uint64), out)
    return out  # type: ignore[no-any-return]
