"""Sort the rows by many orders at once: key words, sorts, and ranks of neighbours.

A batch is one long array. Member b has the rows at positions b n, ..., (b + 1) n - 1, and its
number precedes its keys. Key words are read from the packed codes bit by bit, at the speed of
memory, so keys are never stored. The sort takes 64 bits of the keys at a time, last bits first, and
each pass is stable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda.card import argsort, device, kernel, launch, to_device, xp
from triegp.engines.records import Bytes, Ids, Ints, Words

WORD = 64
RANKS = 32  # separators between equal keys have ranks D + 1 to D + RANKS - 1


@dataclass(frozen=True, eq=False)
class Sorted:
    """Rows of a batch in key order, on the device.

    Attributes
    ----------
    row_idx : int32 (members * n,)
        Rows, numbered within their member.
    rank : int32 (members * n + 1,)
        Rank of the separator in front of each position. It is the lcp with the row before. For
        equal keys it is D + 31 minus the number of trailing zeros, in binary, of the position
        within its member. -1 in front of every member and at the end. Two ranks of one member with
        no lower rank between them are never equal.
    n_rows, n_levels, n_members : int
        Rows per member, n; length of a key, D; number of members.
    """

    row_idx: Any
    rank: Any
    n_rows: int
    n_levels: int
    n_members: int


@device
def _bit(packed, p, row, number):
    """Canonical bit `number` of a row."""
    return (packed[p, row, number >> 3] >> (7 - (number & 7))) & 1


@device
def _read_word(packed, p, row, bits, member, first, stop, word):
    """Append key bits first..stop-1 of a row to a word. Rows of up to 16 bytes are read once."""
    width = packed.shape[2]
    if width > 16:
        for j in range(first, stop):
            bit = _bit(packed, p, row, bits[member, j])
            word = (word << np.uint64(1)) | np.uint64(bit)
        return word
    high, low = np.uint64(0), np.uint64(0)
    for k in range(min(width, 8)):
        high |= np.uint64(packed[p, row, k]) << np.uint64(56 - 8 * k)
    for k in range(8, width):
        low |= np.uint64(packed[p, row, k]) << np.uint64(120 - 8 * k)
    for j in range(first, stop):
        number = bits[member, j]
        part = high if number < WORD else low
        bit = (part >> np.uint64(63 - (number & 63))) & np.uint64(1)
        word = (word << np.uint64(1)) | bit
    return word


@kernel
def _fill_words(packed, bits, before, n_rows, first, stop, leads, words):
    """Key bits first..stop-1 of the row at each position, after the member's number if leads.

    packed: uint8 (members or 1, n, width); bits: int32 (members, D); before: int64 (N,), the
    original position of the row at each position after the last sort, or of size 1 before the first
    sort.
    """
    place = cuda.grid(1)
    if place < words.size:
        old = before[place] if before.size > 1 else place
        member = old // n_rows
        row = old - member * n_rows
        p = member if packed.shape[0] > 1 else 0
        head = np.uint64(member) if leads else np.uint64(0)
        words[place] = _read_word(packed, p, row, bits, member, first, stop, head)


@kernel
def _finish(packed, bits, words, n_leading, last, before, n_rows, row_idx, rank):
    """Rows and ranks from the sorted positions.

    words: the leading n_leading bits of every key, sorted by `last`. before: as in `_fill_words`.
    """
    place = cuda.grid(1)
    n_levels = bits.shape[1]
    if place == 0:
        rank[row_idx.size] = -1
    if place < row_idx.size:
        member = place // n_rows
        here = place - member * n_rows
        row = (before[last[place]] if before.size > 1 else last[place]) - member * n_rows
        row_idx[place] = row
        depth = -1
        if here > 0:
            to_left = last[place - 1]
            differ = np.uint64(words[last[place]]) ^ np.uint64(words[to_left])
            depth = n_leading - _bit_length(differ)
            if differ == np.uint64(0):
                p = member if packed.shape[0] > 1 else 0
                other = (before[to_left] if before.size > 1 else to_left) - member * n_rows
                while depth < n_levels:
                    number = bits[member, depth]
                    if _bit(packed, p, row, number) != _bit(packed, p, other, number):
                        break
                    depth += 1
            if depth == n_levels:
                depth += RANKS - _first_bit(here)
        rank[place] = depth


@device
def _bit_length(word):
    """Number of binary digits of a uint64."""
    count = 0
    for k in range(5, -1, -1):
        half = np.uint64(1 << k)
        if word >> half != np.uint64(0):
            word >>= half
            count += 1 << k
    return count + 1 if word != np.uint64(0) else 0


@device
def _first_bit(number):
    """Position of the lowest 1 bit of a positive number, counted from 1."""
    count = 1
    while number & 1 == 0:
        number >>= 1
        count += 1
    return count


@kernel
def _rank_of_lcp(lcp, n_rows, n_levels, rank):
    """Ranks of one member from the lcp of neighbours."""
    place = cuda.grid(1)
    if place == 0:
        rank[n_rows] = -1
    if place < n_rows:
        depth = lcp[place]
        rank[place] = depth if depth < n_levels else n_levels + RANKS - _first_bit(place)


@kernel
def _fill_keys(packed, bits, row_idx, keys):
    """Write one word of a key per thread; keys: uint64 (m, words), first bit most significant."""
    at = cuda.grid(1)
    n_words = keys.shape[1]
    if at < keys.size:
        i, word = at // n_words, at % n_words
        row = row_idx[i]
        value = np.uint64(0)
        for j in range(WORD * word, WORD * word + WORD):
            value <<= np.uint64(1)
            if j < bits.shape[1]:
                value |= np.uint64(_bit(packed, 0, row, bits[0, j]))
        keys[i, word] = value


def sort_batch(packed: Any, bits: Any) -> Sorted:
    """Sort the rows of every member by its keys.

    packed: uint8 (members or 1, n, width); bits: (members, D); both on the host or on the device.
    For every 64 bits of a key: O(N) time to fill the words, and one radix sort.
    """
    packed, bits = to_device(packed, np.uint8), to_device(bits, np.int32)
    n_members, n_levels = bits.shape
    n_rows = packed.shape[1]
    size = n_members * n_rows
    member_bits = (n_members - 1).bit_length()
    lead = min(n_levels, WORD - member_bits)  # key bits that fit behind the member's number
    chunks = [(0, lead), *((at, min(at + WORD, n_levels)) for at in range(lead, n_levels, WORD))]
    before, last = xp.empty(1, np.int64), None
    for first, stop in reversed(chunks):
        if last is not None:
            before = before[last] if before.size > 1 else last
        leads = first == 0
        words = xp.empty(size, _dtype(stop - first + (member_bits if leads else 0)))
        launch(_fill_words, size, packed, bits, before, n_rows, first, stop, leads, words)
        last = argsort(words)
    row_idx, rank = xp.empty(size, np.int32), xp.empty(size + 1, np.int32)
    given = (packed, bits, words, lead, last, before, n_rows)
    launch(_finish, size, *given, row_idx, rank)
    return Sorted(row_idx, rank, n_rows, n_levels, n_members)


def sort_rows(packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
    """Rows in key order and the lcp of neighbours, both int32 (n,), on the device."""
    found = sort_batch(packed[None], np.asarray(bits)[None])
    return found.row_idx, xp.minimum(found.rank[:-1], found.n_levels)


def ranks(lcp: Any, n_levels: int) -> Any:
    """Ranks of one member's separators, int32 (n + 1,), from the lcp of neighbours."""
    lcp = to_device(lcp, np.int32)
    rank = xp.empty(lcp.size + 1, np.int32)
    launch(_rank_of_lcp, lcp.size, lcp, lcp.size, n_levels, rank)
    return rank


def fill_keys(packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
    """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64)), on the device."""
    n_words = max(1, -(-len(bits) // WORD))
    keys = xp.empty((row_idx.size, n_words), np.uint64)
    codes = to_device(packed, np.uint8)[None]
    launch(_fill_keys, keys.size, codes, to_device(np.asarray(bits)[None], np.int32), row_idx, keys)
    return keys  # type: ignore[no-any-return]


def _dtype(width: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type with `width` bits, so that the radix sort needs fewer passes."""
    return next(t for t in (np.uint8, np.uint16, np.uint32, np.uint64) if width <= 8 * t().itemsize)
