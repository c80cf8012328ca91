"""Small numbers as bit planes: bit b of eight numbers per byte, in as few planes as they need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]


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
