"""Encode the same rows on many shifted grids, one per tree of a forest."""

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

ENTRIES = 2**15  # values per block of rows; one thread encodes one block at a time


def encode_grids(
    encoders: Sequence[BitEncoder], data: npt.NDArray[Any], engine: Engine
) -> list[Codes]:
    """Encode rows with every encoder.

    Parameters
    ----------
    encoders : sequence of BitEncoder
        Fitted encoders, each for n_features features.
    data : array (n_rows, n_features)
        Rows as `real_array` returns them.
    engine : Engine
        Runs the blocks of rows in parallel.

    Returns
    -------
    list of Codes
        One per encoder, equal to `encoder.encode_array(data)`.

    Notes
    -----
    O(n d) for every distinct map onto [0, 1], plus O(n d) for every grid. Encoders with the same
    box and percentiles share the map. Each further grid then takes one pass that shifts, cuts and
    packs.
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
