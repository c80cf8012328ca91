"""Memory that an evaluation needs and gives back: kept by each thread, not by the allocator.

Fresh pages cost more to fault in than a sweep takes to fill them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 1 << 25  # larger buffers are not kept: there the faults matter less, the memory more


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, npt.NDArray[np.uint8]] = {}


_buffers = _Buffers()


def borrow(name: str, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised array, valid until this thread borrows the same name again."""
    n_bytes = size * np.dtype(dtype).itemsize
    if n_bytes > KEPT_BYTES:
        return np.empty(size, dtype)
    kept = _buffers.by_name.get(name)
    if kept is None or kept.size < n_bytes:
        kept = _buffers.by_name[name] = np.empty(n_bytes, np.uint8)
    return kept[:n_bytes].view(dtype)


def release() -> None:
    """Give this thread's buffers back."""
    _buffers.by_name.clear()
