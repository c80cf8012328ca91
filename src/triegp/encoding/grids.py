"""Encode the same rows on many shifted grids, one per tree of a forest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import knot_positions, n_cells
from triegp.engines import Engine, pack_positions, place_values

Floats = npt.NDArray[np.float64]

ENTRIES = 2**15  # values per block of rows; one thread encodes one block at a time


class Map(NamedTuple):
    """Arguments of `place_values`, as they are documented there."""

    low: Floats
    high: Floats
    top: Floats
    knots: Floats
    knot_at: Floats


@dataclass(frozen=True, eq=False)
class Grids:
    """Encoders of the same features, prepared for encoding.

    Attributes
    ----------
    encoders : tuple of BitEncoder
        Fitted encoders, each for n_features features.
    alike : tuple of tuple of int
        Encoders with the same box and percentiles, which share the map onto [0, 1].
    maps : tuple of Map
        The map of each group of encoders that are alike.
    shift, scale : tuple of float64 (n_features,)
        Per encoder: the code of a position u is floor((u + shift) * scale).
    """

    encoders: tuple[BitEncoder, ...]
    alike: tuple[tuple[int, ...], ...]
    maps: tuple[Map, ...]
    shift: tuple[Floats, ...]
    scale: tuple[Floats, ...]


def prepare_grids(encoders: Sequence[BitEncoder]) -> Grids:
    """Group the encoders by their map onto [0, 1]."""
    groups: dict[Any, list[int]] = {}
    for k, encoder in enumerate(encoders):
        groups.setdefault(encoder.box, []).append(k)
    shifts, scales = [], []
    for one in encoders:
        shift = np.full(one.precision_.size, np.nan) if one.shift_ is None else one.shift_
        still = np.isnan(shift)
        shifts.append(np.where(still, 0.0, shift))
        scales.append(n_cells(one.precision_)[:, 0] * np.where(still, 1.0, 0.5))
    return Grids(
        tuple(encoders),
        tuple(tuple(alike) for alike in groups.values()),
        tuple(_map(encoders[alike[0]]) for alike in groups.values()),
        tuple(shifts),
        tuple(scales),
    )


def _map(encoder: BitEncoder) -> Map:
    knots = np.empty((0, 0)) if encoder.knots_ is None else encoder.knots_
    knot_at = np.empty((0, 0)) if encoder.knots_ is None else knot_positions(knots)
    return Map(encoder.low_, encoder.high_, encoder.high_ + encoder.margin, knots, knot_at)


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
        with np.errstate(over="ignore"):  # a long double may become inf, which is refused
            values = np.ascontiguousarray(data[rows], np.float64)
        at = np.empty(values.shape)
        for is_outside, own, alike in zip(outside, grids.maps, grids.alike, strict=True):
            first = grids.encoders[alike[0]]
            marked = is_outside[rows if first.outside != "clip" else slice(0)]
            finite, inner = place_values(values, *own, marked, at)
            if not finite or (first.outside == "error" and marked.any()):
                first.read_positions(data, rows, None)  # raises
            for k in alike:
                widths = grids.encoders[k].precision_
                cut = (grids.shift[k], grids.scale[k], widths)
                pack_positions(at, inner, *cut, packed[k][rows])

    engine.each(encode_block, row_blocks(n_rows, n_features, ENTRIES))
    pairs = zip(packed, grids.encoders, strict=True)
    codes = [Codes(own, one.precision_.copy()) for own, one in pairs]
    for is_outside, alike in zip(outside, grids.alike, strict=True):
        for k in alike if is_outside.any() else ():
            codes[k] = replace(codes[k], unrelated=is_outside)
    return codes
