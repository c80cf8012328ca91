"""Reading of safetensors files: a length, a JSON header, then the arrays without gaps.

The sizes that a header claims are known before anything else is read. The reader of safetensors
itself maps the file and copies every array, and without memory it ends in a panic of Rust, which is
no `Exception`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

DTYPES = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(np.bool_),
}
LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
LARGE = 2**26  # bytes of a file from which on holes are counted
LEAST_ON_DISK = 1e-3  # share of a large file: zeros of a model may be holes, but not all of it


@dataclass(frozen=True)
class StoredArray:
    """What the header of a file says of an array. start: bytes between the header and the array."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        """Size in the file and in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_top(file: IO[bytes]) -> tuple[dict[str, str], dict[str, Any], int]:
    """Metadata, entries of the arrays, and bytes of the arrays; the file is left at the first.

    Raises ValueError, TypeError, AttributeError or RecursionError if there is no such header.
    """
    n_left = os.fstat(file.fileno()).st_size - 8
    length = int.from_bytes(file.read(8), "little")
    if not length <= min(n_left, LONGEST_HEADER):
        raise ValueError(f"a header of {length:,} bytes in a file of {n_left + 8:,}")
    entries = json.loads(file.read(length).decode())
    metadata = entries.pop("__metadata__", {})
    if not all(isinstance(text, str) for text in metadata.values()):
        raise TypeError("metadata must be texts")
    return metadata, entries, n_left - length


def lay_out(entries: dict[str, Any], n_bytes: int) -> list[StoredArray]:
    """The arrays of a file in their order.

    Raises ValueError, TypeError, LookupError or AttributeError unless they fill so many bytes.
    """
    arrays = [_parse_entry(name, entry) for name, entry in entries.items()]
    arrays.sort(key=lambda array: (array.start, array.n_bytes))
    end = 0
    for array in arrays:
        if array.start != end:
            raise ValueError(f"{array.name:.80} begins at byte {array.start}, expected {end}")
        end += array.n_bytes
    if end != n_bytes:
        raise ValueError(f"arrays of {end:,} bytes, {n_bytes:,} are there")
    return arrays


def refuse_holes(file: IO[bytes]) -> None:
    """Raise ValueError for a large sparse file of which next to nothing is on disk.

    It would cost memory and time for the size that it claims. Looks at nothing but on Linux.
    """
    number = file.fileno()
    size, place = os.fstat(number).st_size, os.lseek(number, 0, os.SEEK_CUR)
    if sys.platform != "linux" or size < LARGE:
        return
    end = n_stored = 0
    try:
        while end < size and n_stored < LEAST_ON_DISK * size:
            begin = os.lseek(number, end, os.SEEK_DATA)
            end = os.lseek(number, begin, os.SEEK_HOLE)
            n_stored += end - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that there are no more data
            return
    finally:
        os.lseek(number, place, os.SEEK_SET)
    if n_stored < LEAST_ON_DISK * size:
        raise ValueError(f"{n_stored:,} of {size:,} bytes are on disk, the rest are holes")


def read_arrays(file: IO[bytes], arrays: list[StoredArray]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an open file that stands at the first of them, by name."""
    contents = {}
    for stored in arrays:
        array = np.empty(stored.shape, stored.dtype)
        if file.readinto(array.reshape(-1).view(np.uint8)) != stored.n_bytes:  # type: ignore[attr-defined]
            raise ValueError(f"{stored.name:.80} ends early")
        contents[stored.name] = array
    return contents


def _parse_entry(name: str, entry: dict[str, Any]) -> StoredArray:
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in [*shape, *offsets]):
        raise ValueError(f"{name:.80} must have whole numbers as shape and offsets")
    array = StoredArray(name, DTYPES[entry["dtype"]], tuple(shape), offsets[0])
    if offsets != [array.start, array.start + array.n_bytes]:
        raise ValueError(
            f"{name:.80} must have {array.n_bytes:,} bytes, got offsets {offsets!r:.80}"
        )
    return array
