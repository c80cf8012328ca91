"""From packed codes to sorted rows and lcp: keys by byte tables, radix sort, ties refined.

A key is read in chunks. A chunk and its row number share one 64-bit word, with the chunk in the
high bits. So a sort moves 8 bytes per row and is stable by construction, and only rows whose chunks
tie read the next chunk. Below, `row_bits` is the number of low bits of a word that hold the row
number.

Kernels assign in loops rather than to slices, and pass each other no literal numbers. For a slice
numba also compiles an error message, and for each literal the called kernel again. Tight loops are
over uint64, which spares the test for negative indices.
"""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.records import Bytes, Ids, Ints

INSERTION = 16  # ranges up to this length are insertion-sorted
DIGIT = 10  # maximum bits of a radix digit inside a range
STACK = 16 << DIGIT  # a range pushes up to 2**DIGIT, each digit takes at least 5 of the 64 bits
TOP_DIGIT = 10  # bits of the first digit, over all rows
FILL_ROWS = 512  # rows whose words are filled at a time
KEY_ROWS = 2048  # rows whose keys are filled at a time


@jit
def chunk_tables(bits, start, stop, columns, tables):
    """Fill the byte tables of key bits [start, stop); return the number of code bytes they read.

    bits: int64 (q,), canonical bit of each key bit. columns: uint64 (k,), receives the positions of
    these bytes. tables: uint64 (k, 256), receives the contribution of each byte value to the word,
    with key bit `start` most significant. k >= stop - start.
    """
    one = np.uint64(1)
    count = 0
    for i in range(start, stop):
        byte = np.uint64(bits[i] >> 3)
        place = -1
        for a in range(count):
            if columns[a] == byte:
                place = a
        if place < 0:
            place = count
            columns[place] = byte
            for value in range(256):
                tables[place, value] = 0
            count += 1
        tables[place, 128 >> (bits[i] & 7)] = one << np.uint64(63 - (i - start))
    for a in range(count):
        for value in range(1, 256):
            low = value & -value
            tables[a, value] = tables[a, value & (value - 1)] | tables[a, low]
    return count


@inline
def _word(packed, row, columns, tables, count):
    """The chunk of one row, in the high bits of a 64-bit word."""
    word = np.uint64(0)
    for a in range(count):
        word |= tables[a, packed[row, columns[a]]]
    return word


@inline
def _load_chunk(packed, columns, tables, count, a, tmp, lo, hi, rows):
    """Write the chunk above the row numbers in a[lo:hi]; tmp[lo:hi] is overwritten.

    Reads four byte columns at a time. `rows` is the mask of the row number.
    """
    for i in range(lo, hi):
        tmp[i] = 0
    k = 0
    while k + 4 <= count:
        c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        t0, t1, t2, t3 = tables[k], tables[k + 1], tables[k + 2], tables[k + 3]
        for i in range(lo, hi):
            row = a[i] & rows
            upper = t0[packed[row, c0]] | t1[packed[row, c1]]
            lower = t2[packed[row, c2]] | t3[packed[row, c3]]
            tmp[i] |= upper | lower
        k += 4
    while k < count:
        c0, t0 = columns[k], tables[k]
        for i in range(lo, hi):
            tmp[i] |= t0[packed[a[i] & rows, c0]]
        k += 1
    for i in range(lo, hi):
        a[i] = tmp[i] | (a[i] & rows)


@inline
def fill_chunk(packed, columns, tables, count, words, lo, hi):
    """Write the chunks of rows lo..hi to words[lo:hi]; four byte columns are read at a time."""
    first, last = np.uint64(lo), np.uint64(hi)
    for row in range(first, last):
        words[row] = 0
    k = 0
    while k + 4 <= count:
        c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        t0, t1, t2, t3 = tables[k], tables[k + 1], tables[k + 2], tables[k + 3]
        for row in range(first, last):
            upper = t0[packed[row, c0]] | t1[packed[row, c1]]
            lower = t2[packed[row, c2]] | t3[packed[row, c3]]
            words[row] |= upper | lower
        k += 4
    while k < count:
        c0, t0 = columns[k], tables[k]
        for row in range(first, last):
            words[row] |= t0[packed[row, c0]]
        k += 1


@jit
def fill_words(packed, columns, tables, count, words, lo, hi):
    """Words of rows lo..hi: chunk above row number. Return the OR of all chunks XOR that of row 0.

    Same as `_load_chunk`, for rows in their original order, in blocks that stay in the cache.
    """
    spread = np.uint64(0)
    first = _word(packed, np.int64(0), columns, tables, count)
    for start in range(lo, hi, FILL_ROWS):
        stop = min(start + FILL_ROWS, hi)
        fill_chunk(packed, columns, tables, count, words, start, stop)
        for row in range(start, stop):
            spread |= words[row] ^ first
            words[row] |= np.uint64(row)
    return spread


@inline
def digit_counts(words, shift, mask, counts, lo, hi):
    """Add the histogram of one digit over words[lo:hi] to counts."""
    for i in range(np.uint64(lo), np.uint64(hi)):
        counts[np.int64((words[i] >> np.uint64(shift)) & np.uint64(mask))] += 1


@inline
def scatter(words, out, shift, mask, offsets, lo, hi):
    """Move words[lo:hi] to their buckets in out, keeping their order; offsets are advanced."""
    for i in range(np.uint64(lo), np.uint64(hi)):
        digit = np.int64((words[i] >> np.uint64(shift)) & np.uint64(mask))
        out[offsets[digit]] = words[i]
        offsets[digit] += 1


@inline
def _insertion_sort(a, lo, hi):
    """Sort a[lo:hi] in place."""
    for i in range(lo + 1, hi):
        x = a[i]
        j = i
        while j > lo and a[j - 1] > x:
            a[j] = a[j - 1]
            j -= 1
        a[j] = x


@inline
def clz(x):
    """Number of leading zeros of a non-zero 64-bit word, from the exponent of its float64 value."""
    lone = x & ~(x >> np.uint64(1))  # clears the bit below the top bit: rounding cannot carry
    return 1086 - (np.float64(lone).view(np.int64) >> 52)


@jit
def _sort_range(a, tmp, lo, hi, counts, stack):
    """Sort a[lo:hi]; tmp, counts: int64 (2**DIGIT,) and stack: int64 (STACK, 2) are scratch."""
    stack[0, 0], stack[0, 1] = lo, hi
    height = 1
    while height > 0:
        height -= 1
        lo, hi = stack[height, 0], stack[height, 1]
        if hi - lo <= INSERTION:
            _insertion_sort(a, lo, hi)
            continue
        spread = np.uint64(0)
        ascending = True
        for i in range(lo + 1, hi):
            spread |= a[i] ^ a[lo]
            ascending &= a[i - 1] <= a[i]
        if ascending:
            continue
        # More buckets than words, up to 2**DIGIT, so that most hold at most one word.
        width = min(65 - clz(np.uint64(hi - lo)), DIGIT)
        size = 1 << width
        shift = max(64 - clz(spread) - width, 0)
        for k in range(size):
            counts[k] = 0
        digit_counts(a, shift, size - 1, counts, lo, hi)
        total, fullest = lo, 0
        for k in range(size):
            c = counts[k]
            fullest = max(fullest, c)
            counts[k] = total
            total += c
        scatter(a, tmp, shift, size - 1, counts, lo, hi)
        for i in range(np.uint64(lo), np.uint64(hi)):
            a[i] = tmp[i]
        if fullest <= INSERTION:
            _insertion_sort(a, lo, hi)  # every word is close to its place
            continue
        start = lo
        for k in range(size):
            stop = counts[k]
            if stop - start > 1:
                stack[height, 0], stack[height, 1] = start, stop
                height += 1
            start = stop


@jit
def sort_buckets(a, tmp, offsets, first, last):
    """Sort buckets first..last-1 of a by radix, most significant digit first; tmp is overwritten.

    Bucket k is a[offsets[k]:offsets[k + 1]].
    """
    counts = np.empty(1 << DIGIT, np.int64)
    stack = np.empty((STACK, 2), np.int64)
    for k in range(first, last):
        _sort_range(a, tmp, offsets[k], offsets[k + 1], counts, stack)


@inline
def neighbour_lcp(a, lcp, lo, hi, base, row_bits, limit):
    """Write lcp[i] of a[i - 1] and a[i] for lo < i < hi; return the number of ties.

    Assumes that the keys are equal before bit `base`, where the chunks in a begin.
    """
    ties = 0
    full = base + 64 - row_bits
    if full > limit:
        full = limit
    for i in range(lo + 1, hi):
        diff = (a[i] ^ a[i - 1]) >> np.uint64(row_bits)
        if diff == 0:
            lcp[i] = full
            ties += 1
        else:
            lcp[i] = base + clz(diff << np.uint64(row_bits))
    return ties


@jit
def refine(packed, columns, tables, count, a, tmp, lcp, lo, hi, threshold, base, row_bits, limit):
    """Sort the runs with lcp >= threshold that start in lo..hi by the chunk at `base`.

    A run may end beyond hi. A run that starts before lo is skipped: it belongs to the block in
    which it starts. The rows of a run must share their bits before `base`. Returns the number of
    neighbours that still tie.
    """
    rows = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
    counts = np.empty(1 << DIGIT, np.int64)
    stack = np.empty((STACK, 2), np.int64)
    n = lcp.size
    ties = 0
    i = lo
    while i < n and i > 0 and lcp[i] >= threshold:
        i += 1
    while i < hi:
        end = i + 1
        while end < n and lcp[end] >= threshold:
            end += 1
        if end - i > 1:
            _load_chunk(packed, columns, tables, count, a, tmp, i, end, rows)
            if end - i <= INSERTION:
                _insertion_sort(a, i, end)
            else:
                _sort_range(a, tmp, i, end, counts, stack)
            ties += neighbour_lcp(a, lcp, i, end, base, row_bits, limit)
        i = end
    return ties


@inline
def row_numbers(a, row_bits, row_idx, lo, hi):
    """Write the row numbers in words a[lo:hi] to row_idx[lo:hi]."""
    rows = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
    for i in range(lo, hi):
        row_idx[i] = a[i] & rows


def sort_few_rows(packed: Bytes, bits: Ints, row_bits: int, row_idx: Ids, lcp: Ids) -> None:
    """Write the rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1.

    At first all rows tie. Each chunk of the key sorts those that still do.
    """
    n, n_levels = row_idx.size, bits.size
    width, start, ties = 64 - row_bits, 0, n
    words, tmp = np.arange(n, dtype=np.uint64), np.empty(n, np.uint64)
    columns, tables = np.empty(width, np.uint64), np.empty((width, 256), np.uint64)
    lcp[:] = 0
    while ties > 0 and start < n_levels:
        count = chunk_tables(bits, start, min(start + width, n_levels), columns, tables)
        given = (packed, columns, tables, count, words, tmp, lcp)
        ties = refine(*given, 0, n, start, start, row_bits, n_levels)
        start += width
    lcp[0] = -1
    row_idx[:] = words & np.uint64((1 << row_bits) - 1)


@jit
def fill_keys(packed, row_idx, bits, columns, tables, keys, lo, hi):
    """Write the keys of rows row_idx[lo:hi] to keys[lo:hi], uint64 (n, ceil(D / 64)).

    The codes of a block of rows are copied first: then each row is read from far away only once.
    columns: uint64 (64,) and tables: uint64 (64, 256) are scratch.
    """
    n_bytes = packed.shape[1]
    near = np.empty((min(KEY_ROWS, hi - lo), n_bytes), np.uint8)
    word = np.empty(near.shape[0], np.uint64)
    for start in range(lo, hi, KEY_ROWS):
        stop = min(start + KEY_ROWS, hi)
        for i in range(start, stop):
            row = row_idx[i]
            for b in range(n_bytes):
                near[i - start, b] = packed[row, b]
        for w in range(keys.shape[1]):
            first = 64 * w
            count = chunk_tables(bits, first, min(first + 64, bits.size), columns, tables)
            fill_chunk(near, columns, tables, count, word, np.int64(0), stop - start)
            for i in range(start, stop):
                keys[i, w] = word[i - start]
