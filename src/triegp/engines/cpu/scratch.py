"""Temporary arrays of an evaluation, kept per thread instead of returned to the allocator.

Page faults on fresh memory cost more than a sweep that fills it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 1 << 25  # larger buffers are not kept: memory then matters more than page faults


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, npt.NDArray[np.uint8]] = {}


_buffers = _Buffers()


def borrow(name: str, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised array (size,), valid until this thread borrows the same name again."""
    n_bytes = size * np.dtype(dtype).itemsize
    if n_bytes > KEPT_BYTES:
        return np.empty(size, dtype)
    kept = _buffers.by_name.get(name)
    if kept is None or kept.size < n_bytes:
        kept = _buffers.by_name[name] = np.empty(n_bytes, np.uint8)
    return kept[:n_bytes].view(dtype)


def release() -> None:
    """Free this thread's buffers."""
    _buffers.by_name.clear()


def return_memory() -> None:
    """Return freed memory to the operating system, in milliseconds; nothing without glibc.

    Arrays of up to 32 MB lie in heaps of the threads, which glibc keeps: after the training of a
    mixture on a million rows, 0.2 GB in which no array lies.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
