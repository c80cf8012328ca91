"""From packed codes to rows in key order: the sort, cut into pieces for threads."""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu import scratch, sorting
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Bytes, Ids, Ints, Words

ONE_GO = 1 << 15  # fewer rows than this are sorted on one thread, without a first digit


class Chunks:
    """The key cut into chunks of `width` bits. `load` fills the byte tables of one chunk."""

    def __init__(self, packed: Bytes, bits: Ints, width: int) -> None:
        self.packed, self.bits, self.width = packed, bits, width
        self._columns, self._tables = _byte_tables(width)

    @property
    def n_levels(self) -> int:
        """Length of a key, D."""
        return int(self.bits.size)

    @property
    def row_bits(self) -> int:
        """Low bits of a word, below the chunk, that hold the row number."""
        return 64 - self.width

    def load(self, level: int) -> tuple[Words, Words, int]:
        """Byte columns and tables of chunk `level`, and the number of byte columns.

        The arrays are overwritten by the next call.
        """
        start = level * self.width
        stop = min(start + self.width, self.bits.size)
        count = sorting.chunk_tables(self.bits, start, stop, self._columns, self._tables)
        return self._columns, self._tables, count


def sort_rows(packed: Bytes, bits: Ints, n_threads: int) -> tuple[Ids, Ids]:
    """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""
    n = packed.shape[0]
    if n < ONE_GO:
        row_idx, lcp = np.empty((2, n), np.int32)
        sorting.sort_few_rows(packed, bits, low_bits(n), row_idx, lcp)
        return row_idx, lcp
    chunks = Chunks(packed, bits, 64 - low_bits(n))
    tables = chunks.load(0)
    words, tmp = scratch.borrow("words", n, np.uint64), scratch.borrow("tmp", n, np.uint64)
    spreads = run_each(
        lambda b: sorting.fill_words(packed, *tables, words, *b), _blocks(n, n_threads), n_threads
    )
    spread = int(np.bitwise_or.reduce(np.array(spreads, np.uint64)))
    lcp = np.empty(n, np.int32)
    if spread == 0:
        ties = sorting.neighbour_lcp(words, lcp, 0, n, 0, chunks.row_bits, bits.size)
    else:
        ties = _sort_buckets(words, tmp, lcp, spread, chunks, n_threads)
        words, tmp = tmp, words
    home = None
    if ties > n // 4 and chunks.width < chunks.n_levels:
        # Many rows will be read again: copy them in the order found so far, for locality.
        home = _row_idx(words, chunks, n_threads)
        chunks = Chunks(_take_rows(packed, home, n_threads), bits, chunks.width)
        words[:] = np.arange(n)
    _refine(chunks, words, tmp, lcp, 1, ties, n_threads)
    lcp[0] = -1
    row_idx = _row_idx(words, chunks, n_threads)
    return row_idx if home is None else home[row_idx], lcp


def low_bits(n_rows: int) -> int:
    """Bits of a word that hold the number of one of n rows."""
    return max((n_rows - 1).bit_length(), 1)


def resort_rows(
    packed: Bytes, bits: Ints, row_idx: Ids, lcp: Ids, first_change: int, n_threads: int
) -> tuple[Ids, Ids]:
    """Return the same as `sort_rows`, given the rows sorted by an order with the same prefix.

    Only rows that share their first `first_change` bits are sorted again.
    """
    n = packed.shape[0]
    if first_change >= bits.size:
        return row_idx, lcp
    if np.count_nonzero(lcp >= first_change) > n // 4:  # then a full sort is faster
        return sort_rows(packed, bits, n_threads)
    chunks = Chunks(packed, bits, 64 - low_bits(n))
    words, tmp = scratch.borrow("words", n, np.uint64), scratch.borrow("tmp", n, np.uint64)
    words[:] = row_idx
    lcp = lcp.copy()
    level = first_change // chunks.width
    ties = _refine_level(chunks, words, tmp, lcp, level, first_change, n_threads)
    _refine(chunks, words, tmp, lcp, level + 1, ties, n_threads)
    return _row_idx(words, chunks, n_threads), lcp


def fill_keys(packed: Bytes, bits: Ints, row_idx: Ids, n_threads: int) -> Words:
    """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64)), first bit most significant."""
    keys = np.empty((row_idx.size, max(-(-bits.size // 64), 1)), np.uint64)

    def fill(block: tuple[int, int]) -> None:
        sorting.fill_keys(packed, row_idx, bits, *_byte_tables(64), keys, *block)

    run_each(fill, _blocks(row_idx.size, n_threads), n_threads)
    return keys


def _byte_tables(width: int) -> tuple[Words, Words]:
    """Uninitialised byte columns and tables of one chunk."""
    return np.empty(width, np.uint64), np.empty((width, 256), np.uint64)


def _sort_buckets(
    words: Words, tmp: Words, lcp: Ids, spread: int, chunks: Chunks, n_threads: int
) -> int:
    """Sort words into tmp by one wide digit, then each bucket. Return the number of ties."""
    blocks = _blocks(words.size, n_threads)
    shift = max(spread.bit_length() - sorting.TOP_DIGIT, 0)
    size = 1 << sorting.TOP_DIGIT
    counts = np.zeros((len(blocks), size), np.int64)
    run_each(
        lambda k: sorting.digit_counts(words, shift, size - 1, counts[k], *blocks[k]),
        range(len(blocks)),
        n_threads,
    )
    # In the output, buckets follow each other, and within a bucket the blocks.
    ends = np.cumsum(counts.T).reshape(size, -1)
    offsets = np.ascontiguousarray((ends - counts.T).T)
    bounds = np.append(0, ends[:, -1])
    run_each(
        lambda k: sorting.scatter(words, tmp, shift, size - 1, offsets[k], *blocks[k]),
        range(len(blocks)),
        n_threads,
    )
    tail = (0, chunks.row_bits, chunks.n_levels)

    def finish(buckets: tuple[int, int]) -> int:
        sorting.sort_buckets(tmp, words, bounds, *buckets)
        lo, hi = int(bounds[buckets[0]]), int(bounds[buckets[1]])
        return int(sorting.neighbour_lcp(tmp, lcp, lo, hi, *tail))

    cuts = np.unique(np.searchsorted(bounds, [lo for lo, _ in blocks] + [words.size]))
    ranges = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    ties = run_each(finish, ranges, n_threads)
    for seam in bounds[cuts[1:-1]].tolist():
        ties.append(sorting.neighbour_lcp(tmp, lcp, seam - 1, seam + 1, *tail))
    return sum(ties)


def _refine(
    chunks: Chunks, words: Words, tmp: Words, lcp: Ids, level: int, ties: int, n_threads: int
) -> None:
    """Sort the rows that still tie, chunk by chunk, from chunk `level` on."""
    while ties and level * chunks.width < chunks.n_levels:
        start = level * chunks.width
        ties = _refine_level(chunks, words, tmp, lcp, level, start, n_threads)
        level += 1


def _refine_level(
    chunks: Chunks, words: Words, tmp: Words, lcp: Ids, level: int, threshold: int, n_threads: int
) -> int:
    """Sort the runs with lcp >= threshold by chunk `level`. Return the number of ties."""
    tables = chunks.load(level)
    tail = (threshold, level * chunks.width, chunks.row_bits, chunks.n_levels)
    return sum(
        run_each(
            lambda b: sorting.refine(chunks.packed, *tables, words, tmp, lcp, *b, *tail),
            _blocks(words.size, n_threads),
            n_threads,
        )
    )


def _take_rows(packed: Bytes, row_idx: Ids, n_threads: int) -> Bytes:
    """packed[row_idx]."""
    out = np.empty_like(packed)

    def take(block: tuple[int, int]) -> None:
        lo, hi = block
        np.take(packed, row_idx[lo:hi], axis=0, out=out[lo:hi], mode="clip")

    run_each(take, _blocks(row_idx.size, n_threads), n_threads)
    return out


def _row_idx(words: Words, chunks: Chunks, n_threads: int) -> Ids:
    """Row numbers in the words, int32 (n,)."""
    row_idx = np.empty(words.size, np.int32)
    run_each(
        lambda b: sorting.row_numbers(words, chunks.row_bits, row_idx, *b),
        _blocks(words.size, n_threads),
        n_threads,
    )
    return row_idx


def _blocks(n_rows: int, n_threads: int) -> list[tuple[int, int]]:
    """Cut rows into blocks for threads. The result of a sort does not depend on the cuts."""
    return thread_blocks(n_rows) if n_threads > 1 else [(0, n_rows)]
