"""Encode the same rows on many shifted grids, one per tree of a forest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import n_cells
from triegp.engines import Engine, pack_positions

Floats = npt.NDArray[np.float64]

ENTRIES = 2**15  # values per block of rows; one thread encodes one block at a time


@dataclass(frozen=True, eq=False)
class Grids:
    """Encoders of the same features, prepared for encoding.

    Attributes
    ----------
    encoders : tuple of BitEncoder
        Fitted encoders, each for n_features features.
    alike : tuple of tuple of int
        Encoders with the same box and percentiles, which share the map onto [0, 1].
    shift : tuple of float64 (n_features,) or (0,)
        Shift of each grid; empty if there is none.
    cells : tuple of float64 (n_features,)
        Number of cells per feature.
    """

    encoders: tuple[BitEncoder, ...]
    alike: tuple[tuple[int, ...], ...]
    shift: tuple[Floats, ...]
    cells: tuple[Floats, ...]


def prepare_grids(encoders: Sequence[BitEncoder]) -> Grids:
    """Group the encoders by their map onto [0, 1]."""
    groups: dict[Any, list[int]] = {}
    for k, encoder in enumerate(encoders):
        groups.setdefault(encoder.box, []).append(k)
    return Grids(
        tuple(encoders),
        tuple(tuple(alike) for alike in groups.values()),
        tuple(np.empty(0) if one.shift_ is None else one.shift_ for one in encoders),
        tuple(n_cells(one.precision_)[:, 0] for one in encoders),
    )


def encode_grids(
    encoders: Sequence[BitEncoder] | Grids, data: npt.NDArray[Any], engine: Engine
) -> list[Codes]:
    """Encode rows with every encoder.

    Parameters
    ----------
    encoders : sequence of BitEncoder, or Grids
        Fitted encoders, each for n_features features. Grids are prepared once for many calls.
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
    O(n d) for every distinct map onto [0, 1], plus O(n d) for every grid. Each further grid takes
    one pass that shifts, cuts and packs.
    """
    grids = encoders if isinstance(encoders, Grids) else prepare_grids(encoders)
    n_rows, n_features = data.shape
    packed = [np.empty((n_rows, -(-one.n_bits_ // 8)), np.uint8) for one in grids.encoders]
    outside = [np.zeros(n_rows, np.bool_) for _ in grids.alike]

    def encode_block(_: Engine, rows: slice) -> None:
        for is_outside, alike in zip(outside, grids.alike, strict=True):
            at, beyond = grids.encoders[alike[0]].read_positions(data, rows, None)
            if beyond.size:
                is_outside[rows] = beyond.any(axis=0)
            for k in alike:
                widths = grids.encoders[k].precision_
                pack_positions(at, beyond, grids.shift[k], grids.cells[k], widths, packed[k][rows])

    engine.each(encode_block, row_blocks(n_rows, n_features, ENTRIES))
    pairs = zip(packed, grids.encoders, strict=True)
    codes = [Codes(own, one.precision_.copy()) for own, one in pairs]
    for is_outside, alike in zip(outside, grids.alike, strict=True):
        for k in alike if is_outside.any() else ():
            codes[k] = replace(codes[k], unrelated=is_outside)
    return codes
