"""Positions to packed bits in one pass: shift, cut and pack, row by row."""

from __future__ import annotations

import math

import numpy as np

from triegp.engines.cpu.compiler import jit


@jit
def pack_positions(at, beyond, shift, cells, widths, packed):
    """Write the bits of positions to packed, uint8 (m, ceil(q / 8)), as `codes.pack_codes` does.

    at: float64 (d, m), in [0, 1]; beyond: bool (d, m), where the code is 0, or (0, 0) for nowhere;
    shift: float64 (d,), or (0,) for none; cells: float64 (d,), 2**widths; widths: int64 (d,), bits.
    """
    n_features, n_rows = at.shape
    for i in range(n_rows):
        word, filled, byte = np.uint64(0), 0, 0
        for j in range(n_features):
            here = at[j, i]
            if shift.size:
                here = (here + shift[j]) * 0.5
            code = np.uint64(min(math.floor(here * cells[j]), cells[j] - 1.0))
            if beyond.size and beyond[j, i]:
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
