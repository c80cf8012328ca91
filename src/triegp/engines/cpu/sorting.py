"""From packed codes to sorted rows and lcp: keys by byte tables, radix sort, ties refined.

A key is read in chunks. A chunk and its row number share one 64-bit word, chunk on top, so a sort
moves 8 bytes a row, is stable by construction, and only rows whose chunks tie ever look at the
next chunk. Below, `row_bits` is the number of low bits a word gives to the row number.
"""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu.compiler import jit

INSERTION = 24  # ranges up to this length are insertion-sorted
DIGIT = 8  # bits of a radix digit inside a range
TOP_DIGIT = 11  # bits of the first digit, over all rows


@jit
def chunk_tables(bits, start, stop, columns, tables):
    """Fill the byte tables of key bits [start, stop) and return how many bytes they read.

    bits: int64 (q,), canonical bit of each key bit. columns: int64 (k,), receives the byte columns;
    tables: uint64 (k, 256), receives the words, key bit `start` on top. k >= stop - start suffices.
    """
    one = np.uint64(1)
    count = 0
    for i in range(start, stop):
        byte = bits[i] >> 3
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


@jit
def _word(packed, row, columns, tables, count):
    """The chunk of one row, on top of a 64-bit word."""
    word = np.uint64(0)
    for a in range(count):
        word |= tables[a, packed[row, columns[a]]]
    return word


@jit
def fill_words(packed, columns, tables, count, words, lo, hi):
    """Words of rows lo..hi, row number below the chunk; return OR of their differences."""
    spread = np.uint64(0)
    first = _word(packed, 0, columns, tables, count)
    for row in range(lo, hi):
        word = _word(packed, row, columns, tables, count)
        spread |= word ^ first
        words[row] = word | np.uint64(row)
    return spread


@jit
def digit_counts(words, shift, mask, counts, lo, hi):
    """Histogram of one digit over words[lo:hi]."""
    for i in range(lo, hi):
        counts[np.int64((words[i] >> np.uint64(shift)) & np.uint64(mask))] += 1


@jit
def scatter(words, out, shift, mask, offsets, lo, hi):
    """Move words[lo:hi] to their buckets, in order; offsets are advanced."""
    for i in range(lo, hi):
        digit = np.int64((words[i] >> np.uint64(shift)) & np.uint64(mask))
        out[offsets[digit]] = words[i]
        offsets[digit] += 1


@jit
def _insertion_sort(a, lo, hi):
    for i in range(lo + 1, hi):
        x = a[i]
        j = i
        while j > lo and a[j - 1] > x:
            a[j] = a[j - 1]
            j -= 1
        a[j] = x


@jit
def clz(x):
    """Leading zeros of a non-zero 64-bit word."""
    n = 0
    for width in (32, 16, 8, 4, 2, 1):
        if x >> np.uint64(64 - width) == 0:
            n += width
            x <<= np.uint64(width)
    return n


@jit
def sort_words(a, tmp, lo, hi):
    """Sort a[lo:hi] (radix, most significant digit first); tmp[lo:hi] is overwritten."""
    stack = [(lo, hi)]
    counts = np.empty(1 << DIGIT, np.int64)
    while len(stack) > 0:
        lo, hi = stack.pop()
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
        shift = max(64 - clz(spread) - DIGIT, 0)
        counts[:] = 0
        digit_counts(a, shift, (1 << DIGIT) - 1, counts, lo, hi)
        total = lo
        for k in range(1 << DIGIT):
            c = counts[k]
            counts[k] = total
            total += c
        scatter(a, tmp, shift, (1 << DIGIT) - 1, counts, lo, hi)
        a[lo:hi] = tmp[lo:hi]
        start = lo
        for k in range(1 << DIGIT):
            if counts[k] - start > 1:
                if counts[k] - start <= INSERTION:
                    _insertion_sort(a, start, counts[k])
                else:
                    stack.append((start, counts[k]))
            start = counts[k]


@jit
def sort_buckets(a, tmp, offsets, first, last):
    """Sort buckets first..last of a, bucket k being a[offsets[k]:offsets[k + 1]]."""
    for k in range(first, last):
        sort_words(a, tmp, offsets[k], offsets[k + 1])


@jit
def neighbour_lcp(a, lcp, lo, hi, base, row_bits, limit):
    """lcp[i] of a[i - 1], a[i] for lo < i < hi, keys equal before bit `base`; return the ties."""
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

    A run may end beyond hi; one that starts before lo is left to whoever owns its start. Rows of a
    run share their bits before `base`. Returns how many neighbours still tie.
    """
    rows = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
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
            for j in range(i, end):
                row = a[j] & rows
                a[j] = _word(packed, np.int64(row), columns, tables, count) | row
            if end - i <= INSERTION:
                _insertion_sort(a, i, end)
            else:
                sort_words(a, tmp, i, end)
            ties += neighbour_lcp(a, lcp, i, end, base, row_bits, limit)
        i = end
    return ties


@jit
def fill_keys(packed, row_idx, columns, tables, count, keys, word, block):
    """Word `word` of the keys of rows row_idx[lo:hi], block = (lo, hi)."""
    for i in range(block[0], block[1]):
        keys[i, word] = _word(packed, row_idx[i], columns, tables, count)
