"""Encode the same rows on many shifted grids, one per tree of a forest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from triegp.devices import to_host
from triegp.encoding.codes import Codes
from triegp.encoding.quantiser import Quantiser
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import knot_positions, n_cells
from triegp.engines import (
    DeviceEngine,
    Engine,
    GridMap,
    PlainEngine,
    pack_positions,
    place_values,
)

Floats = npt.NDArray[np.float64]

ENTRIES = 2**15  # values per block of rows; one thread encodes one block at a time
DEVICE_ENTRIES = 2**27  # the same on a device, which encodes one block after another


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
    encoders : tuple of Quantiser
        Fitted encoders, each for n_features features.
    alike : tuple of tuple of int
        Encoders with the same box and percentiles, which share the map onto [0, 1].
    maps : tuple of Map
        The map of each group of encoders that are alike.
    shift, scale : tuple of float64 (n_features,)
        Per encoder: the code of a position u is floor((u + shift) * scale).
    """

    encoders: tuple[Quantiser, ...]
    alike: tuple[tuple[int, ...], ...]
    maps: tuple[Map, ...]
    shift: tuple[Floats, ...]
    scale: tuple[Floats, ...]


def prepare_grids(encoders: Sequence[Quantiser]) -> Grids:
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


def _map(encoder: Quantiser) -> Map:
    knots = np.empty((0, 0)) if encoder.knots_ is None else encoder.knots_
    knot_at = np.empty((0, 0)) if encoder.knots_ is None else knot_positions(knots)
    return Map(encoder.low_, encoder.high_, encoder.high_ + encoder.margin, knots, knot_at)


def encode_grids(
    encoders: Sequence[Quantiser] | Grids, data: npt.NDArray[Any], engine: Engine
) -> list[Codes]:
    """Encode rows with every encoder.

    Parameters
    ----------
    encoders : sequence of Quantiser, or Grids
        Fitted encoders, each for n_features features. Grids are prepared once for many calls.
    data : array (n_rows, n_features)
        Rows as `real_array` returns them; on the host, or in the memory of the engine.
    engine : Engine
        Runs the blocks of rows in parallel. An engine with memory of its own encodes them there.

    Returns
    -------
    list of Codes
        One per encoder, equal to `encoder.encode_array(data)`, in the memory of the engine.

    Notes
    -----
    O(n d) for every distinct map onto [0, 1], plus O(n d) for every grid. Each further grid takes
    one pass that shifts, cuts and packs.
    """
    grids = encoders if isinstance(encoders, Grids) else prepare_grids(encoders)
    if not engine.on_host:
        return _encode_there(grids, data, cast(DeviceEngine, engine))
    if isinstance(engine, PlainEngine):
        return [one.encode_array(data) for one in grids.encoders]
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


def _encode_there(grids: Grids, data: npt.NDArray[Any], engine: DeviceEngine) -> list[Codes]:
    """`encode_grids` in the memory of a device, in blocks of rows."""
    maps = _feature_maps(grids)
    packed: list[list[Any]] = [[] for _ in grids.encoders]
    outside: list[list[Any]] = [[] for _ in grids.alike]
    blocks = row_blocks(data.shape[0], data.shape[1], DEVICE_ENTRIES)
    for rows in blocks:
        values = hold_values(data[rows], engine)
        if not np.isfinite(values).all():
            grids.encoders[0].find_outside(to_host(data))  # raises, and names the value
        for group, (is_outside, alike) in enumerate(zip(outside, grids.alike, strict=True)):
            encoder = grids.encoders[alike[0]]
            beyond = None
            if encoder.outside != "clip":
                low, high = engine.hold(encoder.low_), engine.hold(encoder.high_)
                beyond = (values < low) | (values > high)
                if encoder.outside == "error" and beyond.any():
                    encoder.find_outside(to_host(data))  # raises
                is_outside.append(beyond.any(axis=1))
            for k, own in zip(alike, engine.encode(values, beyond, maps[group]), strict=True):
                packed[k].append(own)
    joined = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in packed]
    unrelated: list[Any] = [None] * len(grids.encoders)
    for is_outside, alike in zip(outside, grids.alike, strict=True):
        found = np.concatenate(is_outside) if is_outside else None
        if found is not None and found.any():
            for k in alike:
                unrelated[k] = engine.fetch(found)
    return [
        Codes(own, one.precision_.copy(), beyond)
        for own, one, beyond in zip(joined, grids.encoders, unrelated, strict=True)
    ]


def hold_values(data: npt.NDArray[Any], engine: Engine) -> Any:
    """Features as float64 in the memory of an engine; float32 is converted there."""
    if isinstance(data, np.ndarray) and data.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore"):  # a long double may become inf, which raises an error
            data = data.astype(np.float64)
    return engine.hold(data).astype(np.float64, copy=False)


def map_of(encoder: Quantiser, shift: Floats, scale: Floats, widths: Any) -> GridMap:
    """The map of an encoder's features onto [0, 1] for a device, and how positions are cut."""
    one = _map(encoder)
    return GridMap(one.low, one.top, one.knots, one.knot_at, shift, scale, widths)


def _feature_maps(grids: Grids) -> list[list[GridMap]]:
    """The maps of the grids, one list for those that share the map onto [0, 1]."""
    found = []
    for one, alike in zip(grids.maps, grids.alike, strict=True):
        both = (one.low, one.top, one.knots, one.knot_at)
        widths = [grids.encoders[k].precision_ for k in alike]
        cuts = zip(alike, widths, strict=True)
        found.append([GridMap(*both, grids.shift[k], grids.scale[k], own) for k, own in cuts])
    return found
