"""From feature values to packed codes: each feature mapped onto [0, 1], cut, and packed."""

from __future__ import annotations

import math

import numpy as np

from triegp.engines.cpu.compiler import inline, jit

INF = math.inf
OUTSIDE = -1.0  # position of a value outside the box: its code is 0
STEPS = 10  # of a piecewise linear map
EMIT = 32  # bits that are written at a time


@inline
def _fraction(x, low, high):
    """(x - low) / (high - low), or 0 if low == high, without overflow; assumes low <= x <= high."""
    width = high - low
    if width == INF:
        x, low, width = 0.5 * x, 0.5 * low, 0.5 * high - 0.5 * low
    return (x - low) / (width if width != 0.0 else 1.0)


@jit
def place_values(values, low, high, top, knots, knot_at, marked, at):
    """Map rows of values onto [0, 1], with the bits of `encoding.scaling.positions`.

    values: float64 (m, d). low, high: float64 (d,), the box. top: float64 (d,), the upper end of
    the map. knots: float64 (d, 11), the percentiles of a piecewise linear map, (0, 0) for a
    linear one; knot_at: their positions, in tenths. marked: bool (m,), set for rows outside the
    box, or (0,) if values are clipped to it. Writes at, float64 (m, d): -1 for values outside the
    box. Returns whether all values are finite, and whether all positions lie in [0, 1].
    """
    n_rows, n_features = values.shape
    finite, inner = True, True
    for i in range(n_rows):
        for j in range(n_features):
            given = values[i, j]
            finite &= abs(given) < INF
            x = min(max(given, low[j]), top[j])
            if knots.size == 0:
                here = _fraction(x, low[j], top[j])
            else:
                last = 0  # the last knot that is not above x
                for k in range(1, STEPS + 1):
                    last += x >= knots[j, k]
                if x == knots[j, last]:
                    here = knot_at[j, last] / STEPS
                else:
                    above = knots[j, min(last + 1, STEPS)]
                    here = (_fraction(x, knots[j, last], above) + last) / STEPS
            at[i, j] = here
            inner &= here <= 1.0
            if marked.size and (given < low[j] or given > high[j]):
                marked[i] = True
                at[i, j] = OUTSIDE
                inner = False
    return finite, inner


@jit
def pack_positions(at, inner, shift, scale, widths, packed):
    """Pack positions as codes, uint8 (m, ceil(q / 8)), in the format of `codes.pack_codes`.

    at: float64 (m, d), from `place_values`; inner: whether all lie in [0, 1]. shift, scale: float64
    (d,): the code of a position u is floor((u + shift) * scale), between 0 and 2**width - 1.
    widths: int64 (d,), bits per feature.
    """
    n_rows, n_features = at.shape
    for i in range(n_rows):
        word, filled, byte = np.uint64(0), 0, 0
        for j in range(n_features):
            width = widths[j]
            code = int((at[i, j] + shift[j]) * scale[j])
            if inner:
                code -= code >> width  # min() would branch, and mispredict two values
            else:
                code = min(max(code, 0), (1 << width) - 1)
            word = (word << np.uint64(width)) | np.uint64(code)
            filled += width
            if filled >= EMIT:
                for _ in range(EMIT // 8):
                    filled -= 8
                    packed[i, byte] = np.uint8((word >> np.uint64(filled)) & np.uint64(255))
                    byte += 1
        while filled >= 8:
            filled -= 8
            packed[i, byte] = np.uint8((word >> np.uint64(filled)) & np.uint64(255))
            byte += 1
        if filled > 0:
            packed[i, byte] = np.uint8((word << np.uint64(8 - filled)) & np.uint64(255))
