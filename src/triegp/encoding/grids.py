"""The same rows on many grids: what the trees of a forest read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import n_cells
from triegp.engines import Engine, pack_positions

ENTRIES = 2**15  # of a block of rows, which one thread has


def encode_grids(
    encoders: Sequence[BitEncoder], data: npt.NDArray[Any], engine: Engine
) -> list[Codes]:
    """Codes of the rows on every grid, each as `BitEncoder.encode_array` gives it.

    Parameters
    ----------
    encoders : sequence of BitEncoder
        Fitted to as many features.
    data : array (n_rows, n_features)
        As `real_array` gives it.
    engine : Engine
        Who shares out blocks of rows.

    Notes
    -----
    O(n d) for every map onto [0, 1] and O(n d) for every grid: encoders of the same box and
    percentiles share the map, so one more grid is a shift, a cut and packing, in one pass.
    """
    n_rows, n_features = data.shape
    groups: dict[Any, list[int]] = {}
    for k, encoder in enumerate(encoders):
        groups.setdefault(encoder.box, []).append(k)
    packed = [np.empty((n_rows, -(-one.n_bits_ // 8)), np.uint8) for one in encoders]
    outside = [np.zeros(n_rows, np.bool_) for _ in groups]
    unshifted = np.empty(0)

    def encode_block(_: Engine, rows: slice) -> None:
        for is_outside, alike in zip(outside, groups.values(), strict=True):
            at, beyond = encoders[alike[0]].read_positions(data, rows, None)
            if beyond.size:
                is_outside[rows] = beyond.any(axis=0)
            for k in alike:
                shift, widths = encoders[k].shift_, encoders[k].precision_
                shift = unshifted if shift is None else shift
                pack_positions(at, beyond, shift, n_cells(widths)[:, 0], widths, packed[k][rows])

    engine.each(encode_block, row_blocks(n_rows, n_features, ENTRIES))
    codes = [Codes(own, one.precision_.copy()) for own, one in zip(packed, encoders, strict=True)]
    for is_outside, alike in zip(outside, groups.values(), strict=True):
        for k in alike if is_outside.any() else ():
            codes[k] = replace(codes[k], unrelated=is_outside)
    return codes
