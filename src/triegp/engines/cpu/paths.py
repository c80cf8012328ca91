"""Few new rows in many trees, by one call for all trees: their keys, and sums along their paths.

For few rows, a call per tree costs more than its work. The arrays of the trees stay where they are:
a kernel reads them at their addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.search import locate, upper_bounds
from triegp.engines.records import Bytes, Floats, Ints, Links, Words

SIZES = 4  # n, w, D + 1 and the root, before the addresses


class Keys(NamedTuple):
    """Key bits of all trees.

    Attributes
    ----------
    bits : int64 (T, D)
        Bits of the codes in key order, one row per tree; -1 after the last.
    n_words : int
        Words of the longest key, w.
    """

    bits: Ints
    n_words: int


class Trees(NamedTuple):
    """All trees, for sums along paths.

    Attributes
    ----------
    places : int64 (T, 11)
        For each tree: n, w, D + 1, its root, and the addresses of its arrays.
    kept : tuple
        These arrays, so that their addresses stay valid.
    """

    places: Ints
    kept: tuple[Any, ...]


def key_bits(bits: Sequence[Ints]) -> Keys:
    """Key bits of all trees, given those of each tree."""
    longest = max(part.size for part in bits)
    table = np.full((len(bits), longest), -1, np.int64)
    for t, part in enumerate(bits):
        table[t, : part.size] = part
    return Keys(table, max(-(-longest // 64), 1))


def read_keys(keys: Keys, packed: Sequence[Bytes]) -> Words:
    """Keys of m rows in all trees, uint64 (m, w, T), given their codes (m, n_bytes) for each tree.

    Shorter keys end in words of 0. O(m T D).
    """
    n_trees, m = len(packed), packed[0].shape[0]
    codes: Bytes = np.empty((n_trees, m, max(part.shape[1] for part in packed)), np.uint8)
    for t, part in enumerate(packed):
        codes[t, :, : part.shape[1]] = part
    out: Words = np.zeros((m, keys.n_words, n_trees), np.uint64)
    gather_bits(codes, keys.bits, out)
    return out


def hold_trees(
    links: Sequence[Links],
    keys: Sequence[Words],
    levels: Sequence[Floats],
    sums: Sequence[tuple[Floats, Floats]],
) -> Trees:
    """All trees: links, sorted keys (n, w), levels (D + 1,), and the two arrays of `path_sums`."""
    places = np.empty((len(links), SIZES + 7), np.int64)
    kept = []
    for t, (own, words, level, (below, path)) in enumerate(
        zip(links, keys, levels, sums, strict=True)
    ):
        arrays = tuple(
            np.ascontiguousarray(part, dtype)
            for part, dtype in (
                (words, np.uint64),
                (own.depth, np.int32),
                (own.left, np.int32),
                (own.right, np.int32),
                (level, np.float64),
                (below, np.float64),
                (path, np.float64),
            )
        )
        places[t, :SIZES] = *words.shape, level.size, own.root
        places[t, SIZES:] = [part.ctypes.data for part in arrays]
        kept.append(arrays)
    return Trees(places, tuple(kept))


def path_means(trees: Trees, keys: Words) -> Floats:
    """Sum over all trees of what rows with these keys (m, w, T) read off, (m,). O(m T log n)."""
    out = np.zeros(keys.shape[0])
    add_means(trees.places, keys, out)
    return out


@jit
def gather_bits(codes, bits, out):
    """Write keys bit by bit to out (m, w, T)."""
    for t in range(bits.shape[0]):
        for i in range(codes.shape[1]):
            for level in range(bits.shape[1]):
                bit = bits[t, level]
                if bit < 0:
                    break
                if (codes[t, i, bit >> 3] >> (7 - (bit & 7))) & 1:
                    out[i, level >> 6, t] |= np.uint64(1) << np.uint64(63 - (level & 63))


@intrinsic
def _pointer(_, address):
    """The pointer with this address."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


pointer: Any = _pointer


@jit
def add_means(places, keys, out):
    """Add each tree's term to out (m,): the mean accumulated on the path to where a key leaves."""
    m = keys.shape[0]
    first, last = np.int64(0), np.int64(1)  # as literals they would compile both kernels again
    position = np.empty(1, np.int64)
    node, above, leaves_at = np.empty(1, np.int32), np.empty(1, np.int32), np.empty(1, np.int32)
    for t in range(places.shape[0]):
        n, w, size, root = places[t, 0], places[t, 1], places[t, 2], places[t, 3]
        own = carray(pointer(places[t, 4]), (n, w), np.uint64)
        depth = carray(pointer(places[t, 5]), (2 * n,), np.int32)
        left = carray(pointer(places[t, 6]), (n,), np.int32)
        right = carray(pointer(places[t, 7]), (n,), np.int32)
        levels = carray(pointer(places[t, 8]), (size,), np.float64)
        below = carray(pointer(places[t, 9]), (2 * n,), np.float64)
        path = carray(pointer(places[t, 10]), (2 * n,), np.float64)
        query = np.empty((1, w), np.uint64)
        for i in range(m):
            for k in range(w):
                query[0, k] = keys[i, k, t]
            upper_bounds(own, query, first, last, position)
            tail = (first, last, node, above, leaves_at)
            locate(own, query, position, depth, left, right, root, size - 1, *tail)
            here = node[0]
            out[i] += path[here] - (levels[leaves_at[0]] - levels[depth[here]]) * below[here]
