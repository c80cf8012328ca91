"""Long arrays of few distinct values in a file: the values, and the number of each entry's value.

Weights, counts, targets that were rounded: 64 bits per entry say much less. Values are compared by
their bits, so that they come back as they were.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.files.contents import check_array
from triegp.files.planes import bits_for, pack_planes, unpack_planes

Arrays = dict[str, npt.NDArray[Any]]

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
        `name.numbers`, uint8 (w, ceil(n / 8)), the number of every entry's value (`planes.py`),
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
        planes = check_array(arrays, f"{name}.numbers", np.uint8, (width, -(-size // 8)))
        whole = np.empty(size, kind)
        for lo in range(0, size, BLOCK):
            block = slice(lo, min(lo + BLOCK, size))
            numbers = unpack_planes(planes, np.array([width]), block)[0]
            if numbers.max() >= values.size:
                raise ValueError(f"{name}.numbers must be less than {values.size}")
            whole[block] = values[numbers]
        found[name] = whole.reshape(shape)
    return found
