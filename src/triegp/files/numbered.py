"""Long arrays of few distinct values in a file: the values, and the number of each entry's value.

Weights, counts, targets that were rounded: 64 bits per entry say much less. Values are compared by
their bits, so that they come back as they were.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]

FEWEST = 4096  # entries of an array that is numbered
LARGEST_SHARE = 0.75  # of the bytes that may remain
BLOCK = 2**16  # entries that are read at a time
KINDS = {np.dtype(kind) for kind in (np.float64, np.int64, np.uint64)}


def number_values(arrays: Arrays) -> tuple[Arrays, dict[str, list[int]]]:
    """Replace arrays of few distinct values.

    Returns
    -------
    arrays : dict of arrays
        An array `name` of N distinct values becomes `name.values`, (N,), sorted by their bits, and
        `name.numbers`, uint8 (w, ceil(n / 8)), the number of every entry's value (`pack_planes`),
        w = max(1, ceil(log2 N)). Others are passed on.
    shapes : dict
        Shape of each array that was replaced, by name.

    Notes
    -----
    A sort of every array of 64-bit entries, and O(n log N) for those that are replaced.
    """
    found: Arrays = {}
    shapes: dict[str, list[int]] = {}
    for name, array in arrays.items():
        if array.size < FEWEST or array.dtype not in KINDS:
            found[name] = array
            continue
        words = np.ascontiguousarray(array).view(np.uint64).ravel()
        values = np.unique(words)
        width = max(bits_for(values.size), 1)
        if 8 * values.size + width * words.size / 8 > LARGEST_SHARE * array.nbytes:
            found[name] = array
            continue
        numbers = np.searchsorted(values, words).astype(np.uint32)
        found[f"{name}.values"] = values.view(array.dtype)
        found[f"{name}.numbers"] = pack_planes(numbers, width)
        shapes[name] = list(array.shape)
    return found, shapes


def restore_values(arrays: Arrays, shapes: dict[str, list[int]]) -> Arrays:
    """The arrays that `number_values` was given; raises ValueError if there are none.

    A restored array has at most 64 times the bytes of its planes.
    """
    found = dict(arrays)
    for name, shape in shapes.items():
        if name in arrays or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"{name} must be stored once, in a shape of whole numbers")
        size = math.prod(shape)
        kind = found.pop(f"{name}.values").dtype
        if kind not in KINDS:
            raise ValueError(f"{name}.values must have 64 bits, got {kind}")
        values = arrays[f"{name}.values"]
        if values.ndim != 1 or not values.size:
            raise ValueError(f"{name}.values must be one line of values, got {values.shape}")
        width = max(bits_for(values.size), 1)
        found.pop(f"{name}.numbers")
        planes = arrays[f"{name}.numbers"]
        if planes.dtype != np.uint8 or planes.shape != (width, -(-size // 8)):
            raise ValueError(f"{name}.numbers must be uint8 of {size} entries, got {planes.shape}")
        whole = np.empty(size, kind)
        for lo in range(0, size, BLOCK):
            block = slice(lo, min(lo + BLOCK, size))
            numbers = unpack_planes(planes, np.array([width]), block)[0]
            if numbers.max() >= values.size:
                raise ValueError(f"{name}.numbers must be less than {values.size}")
            whole[block] = values[numbers]
        found[name] = whole.reshape(shape)
    return found


def bits_for(count: int) -> int:
    """Bits that the numbers 0..count - 1 take.

    Examples
    --------
    >>> [bits_for(count) for count in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (count - 1).bit_length()


def pack_planes(numbers: Numbers, width: int) -> Bytes:
    """Planes of numbers (n,) below 2^width, uint8 (width, ceil(n / 8)).

    Plane b holds bit b. The first of eight numbers is the most significant bit of a byte.
    """
    planes = np.empty((width, -(-numbers.size // 8)), np.uint8)
    for b in range(width):
        planes[b] = np.packbits((numbers >> np.uint32(b)).astype(np.uint8) & np.uint8(1))
    return planes


def unpack_planes(planes: Bytes, widths: Ints, rows: slice) -> Numbers:
    """Some of the numbers of d columns whose planes follow each other, (d, m).

    widths: int64 (d,), planes of each column, at most 32. rows: begins at a multiple of 8.
    """
    size = rows.stop - rows.start
    part = planes[:, rows.start // 8 : -(-rows.stop // 8)]
    bits = np.unpackbits(part, axis=1, count=size) if part.size else np.empty((0, size), np.uint8)
    first = np.cumsum(widths) - widths
    numbers = np.zeros((widths.size, size), np.uint32)
    for b in range(int(widths.max())):
        wide = np.flatnonzero(widths > b)
        numbers[wide] |= np.left_shift(bits[first[wide] + b], b, dtype=np.uint32)
    return numbers
