"""The training rows of a mixture in a model file: the interval of every value, in few bits.

All members encode the same rows, each on its own grid. Values of a feature that have the same code
on all grids form an *interval*: no member can tell them apart. A file holds the interval of each
row and feature, and the code of each interval on the grid of each member. The codes of all rows
follow from these, and from the codes the sorted keys and the trie, to the same bits: equal keys
keep the order of their rows. A feature has at most as many intervals as its values, and as all
grids have cells together, so a row of ten features takes about 16 bytes for any number of members.

With nugget="row" a member does not read the last bit of its order. Codes have 0 there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes, pack_codes
from triegp.encoding.scaling import n_cells
from triegp.engines import Engine, PlainEngine, pack_positions
from triegp.files.memory import check_memory
from triegp.files.numbered import bits_for, pack_planes, unpack_planes
from triegp.tree.posterior import Posterior

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]

ENTRIES = 2**16  # values per block of rows; one thread decodes one block at a time


@dataclass(frozen=True, eq=False)
class Intervals:
    """The rows that all members of a mixture are conditioned on.

    Attributes
    ----------
    n_intervals : int64 (d,)
        Number of intervals of each feature, N_j.
    intervals : uint8 (sum of w_j, ceil(n / 8))
        Number of the interval of every row, feature after feature, in w_j = ceil(log2 N_j) bit
        planes each (`pack_planes`).
    codes : uint8
        Codes of all intervals, (K, sum of N_j), feature after feature, as steps from one to the
        next modulo 2^8, 2^16 or 2^32, whatever holds all codes; the low bytes of all steps come
        first; compressed by zlib.
    """

    n_intervals: Ints
    intervals: Bytes
    codes: Bytes


def pack_rows(
    posteriors: Sequence[Posterior], precision: Sequence[Ints], engine: Engine
) -> Intervals:
    """The intervals of the rows that all members are conditioned on.

    Parameters
    ----------
    posteriors : sequence of Posterior
        One per member, on the host, all of the same n rows.
    precision : sequence of int64 (d,)
        Bits per feature of each member.
    engine : Engine
        Runs members and features in parallel.

    Notes
    -----
    O(n (q / 8 + d)) per member, and a sort of n rows per feature. Memory: the packed codes of all
    members, 4 K bytes per interval, and about 50 + 2 K bytes per row for each of the features that
    are numbered at the same time.
    """
    joined, first = _join_codes(posteriors, precision, engine)
    widths = np.stack(precision)

    def number(alone: Engine, j: int) -> _Numbered:
        return _number_rows(joined, first[:, j], widths[:, j], alone)

    found = engine.each(number, range(widths.shape[1]))
    count = np.array([part.codes.shape[1] for part in found])
    codes = np.concatenate([part.codes for part in found], axis=1)
    return Intervals(count, np.concatenate([part.planes for part in found]), _compress(codes))


def unpack_rows(
    stored: Intervals, precision: Sequence[Ints], n_rows: int, engine: Engine
) -> list[Codes]:
    """Codes of all rows, one per member; raises ValueError if `pack_rows` cannot have made them.

    precision: bits per feature of each member. O(n d) per member. Memory: the packed codes, and 12
    bytes per interval and member. Sizes are checked before anything is allocated.
    """
    count, planes = stored.n_intervals, stored.intervals
    if {own.shape for own in precision} != {count.shape}:
        raise ValueError(f"n_intervals must be one per feature, got {count.size}")
    if count.min() < 1 or count.max() > n_rows:
        raise ValueError(f"n_intervals must lie between 1 and {n_rows}")
    widths = np.array([bits_for(n) for n in count.tolist()])
    shape = (int(widths.sum()), -(-n_rows // 8))
    if planes.shape != shape:
        raise ValueError(f"intervals must have shape {shape}, got {planes.shape}")
    cells = np.stack([n_cells(own)[:, 0] for own in precision])
    heads = np.cumsum(count) - count  # first interval of each feature
    shape = (len(cells), int(count.sum()))
    check_memory(12 * math.prod(shape))
    codes = _decompress(stored.codes, shape)
    if (np.maximum.reduceat(codes, heads, axis=1) >= cells).any():
        raise ValueError("codes must be less than the number of cells")
    packed = [np.empty((n_rows, -(-int(own.sum()) // 8)), np.uint8) for own in precision]
    unshifted = np.zeros(count.size)

    def read_block(_: Engine, rows: slice) -> None:
        numbers = unpack_planes(planes, widths, rows)
        if (numbers.max(axis=1) >= count).any():
            raise ValueError("intervals must be less than n_intervals")
        places = np.ascontiguousarray(np.add(numbers, heads[:, None], dtype=np.intp).T)
        code, at = np.empty(places.shape, codes.dtype), np.empty(places.shape)
        for table, own, bits, out in zip(codes, cells, precision, packed, strict=True):
            np.take(table, places, out=code, mode="clip")
            if isinstance(engine, PlainEngine):
                out[rows] = pack_codes(code, bits).packed
                continue
            np.multiply(code, 1.0 / own, out=at)  # a power of 2: exact
            pack_positions(at, True, unshifted, own, bits, out[rows])

    step = max(ENTRIES // count.size // 8, 1) * 8  # whole bytes of the planes
    blocks = [slice(lo, min(lo + step, n_rows)) for lo in range(0, n_rows, step)]
    engine.each(read_block, blocks)
    return [Codes(own, bits) for own, bits in zip(packed, precision, strict=True)]


def recover_codes(posterior: Posterior, engine: Engine) -> Bytes:
    """Packed codes of the training rows, uint8 (n, ceil(q / 8)), from their sorted keys.

    A key is a permutation of the bits of a code. O(n q / 8).
    """
    order, n_rows = posterior.order, posterior.n_rows
    place = np.full(order.n_bits, order.n_levels, np.int64)  # an unread bit: behind the key, 0
    place[order.key_bits] = np.arange(order.n_levels)
    rows = np.arange(n_rows, dtype=np.int32)
    sorted_at = np.empty_like(rows)
    sorted_at[posterior.trie.row_idx] = rows
    keys = np.take(posterior.keys, sorted_at, axis=0)  # neighbours are then neighbours in memory
    in_bytes = np.zeros((n_rows, 8 * keys.shape[1] + 1), np.uint8)
    in_bytes[:, :-1] = _to_bytes(keys)
    return _to_bytes(engine.keys(in_bytes, place, rows))[:, : -(-order.n_bits // 8)]


class _Numbered(NamedTuple):
    """Intervals of one feature: N of them, in w bits.

    planes: uint8 (w, ceil(n / 8)), bits of the interval of every row. codes: uint32 (K, N), code of
    every interval on each grid.
    """

    planes: Bytes
    codes: Numbers


def _join_codes(
    posteriors: Sequence[Posterior], precision: Sequence[Ints], engine: Engine
) -> tuple[Bytes, Ints]:
    """Packed codes of all members side by side, (n, width), and the first bit of each feature.

    The second is int64 (K, d): the place of the feature's first bit in the joined codes.
    """
    n_bytes = np.array([-(-int(own.sum()) // 8) for own in precision])
    ends = np.cumsum(n_bytes)
    joined = np.empty((posteriors[0].n_rows, int(ends[-1])), np.uint8)

    def recover(alone: Engine, k: int) -> None:
        joined[:, ends[k] - n_bytes[k] : ends[k]] = recover_codes(posteriors[k], alone)

    engine.each(recover, range(len(posteriors)))
    within = [np.cumsum(own) - own for own in precision]
    return joined, np.stack(within) + 8 * (ends - n_bytes)[:, None]


def _number_rows(joined: Bytes, first: Ints, widths: Ints, engine: Engine) -> _Numbered:
    """Number the rows of one feature by their codes on all grids, in the order of these codes.

    first, widths: int64 (K,), place and number of the feature's bits in the joined codes.
    """
    rows = np.arange(len(joined), dtype=np.int32)
    pairs = zip(first.tolist(), widths.tolist(), strict=True)
    bits = np.concatenate([np.arange(start, start + width) for start, width in pairs])
    tuples = _to_bytes(engine.keys(joined, bits, rows))
    row_idx, lcp = engine.sort_rows(tuples, np.arange(bits.size))
    is_first = lcp < bits.size  # of the rows in the same interval
    numbers = np.empty(rows.size, np.uint32)
    numbers[row_idx] = np.cumsum(is_first, dtype=np.uint32) - np.uint32(1)
    examples = np.take(tuples, row_idx[is_first], axis=0)
    every = np.arange(len(examples), dtype=np.int32)
    ends = np.cumsum(widths)
    codes = np.empty((widths.size, every.size), np.uint32)
    for k, (end, width) in enumerate(zip(ends.tolist(), widths.tolist(), strict=True)):
        words = engine.keys(examples, np.arange(end - width, end), every)[:, 0]
        codes[k] = words >> np.uint64(64 - width)
    return _Numbered(pack_planes(numbers, bits_for(every.size)), codes)


def _compress(codes: Numbers) -> Bytes:
    """Codes (K, N) as bytes: neighbours in a feature differ little."""
    codes = codes.astype(np.min_scalar_type(codes.max()))
    steps = np.diff(codes, prepend=codes.dtype.type(0))
    by_place = steps.astype(steps.dtype.newbyteorder("<")).view(np.uint8).reshape(steps.size, -1).T
    return np.frombuffer(zlib.compress(by_place.tobytes()), np.uint8)


def _decompress(stored: Bytes, shape: tuple[int, int]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The codes (K, N) that `_compress` was given; raises ValueError if there are none."""
    size = math.prod(shape)
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(stored.tobytes(), 4 * size + 1)  # one more, to see the end
    except zlib.error as error:
        raise ValueError(f"codes of intervals cannot be read: {error}") from error
    n_places, rest = divmod(len(raw), size)
    if n_places not in (1, 2, 4) or rest or not reader.eof or reader.unused_data:
        raise ValueError(f"codes must be those of {shape[0]} members and {shape[1]} intervals")
    kind = np.dtype(f"u{n_places}")
    by_place = np.frombuffer(raw, np.uint8).reshape(n_places, *shape)
    steps = by_place[0].astype(kind)
    for b in range(1, n_places):
        steps |= np.left_shift(by_place[b], 8 * b, dtype=kind)
    codes: npt.NDArray[np.unsignedinteger[Any]] = np.cumsum(steps, axis=1, dtype=kind)
    return codes


def _to_bytes(words: npt.NDArray[np.uint64]) -> Bytes:
    """Words (n, w) as bytes (n, 8 w), the most significant first."""
    return words.astype(">u8").view(np.uint8)
