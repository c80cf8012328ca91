"""Arrays that grow at their end without a copy of what they hold."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

GROWTH = 1.25

_appending = threading.Lock()  # held while it is decided who appends


def _new_lock() -> None:
    """In a forked child, the thread that held the lock is gone."""
    global _appending
    _appending = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


class Buffer:
    """Rows with space behind them.

    Arrays that share a buffer hold its first rows, so that appending to the longest of them copies
    nothing. Appending to a shorter one copies it to a buffer of its own. Space that was never
    written to takes no memory, at least on Linux.
    """

    def __init__(self, n_rows: int, like: Any) -> None:
        """Space for n_rows rows and some more, of the row shape and the dtype of `like`."""
        shape = (int(GROWTH * n_rows) + 16, *like.shape[1:])
        self._rows = np.empty(shape, dtype=like.dtype)
        self._used = 0

    def take(self, n_rows: int) -> Any:
        """The first rows, for the caller to fill in."""
        self._used = n_rows
        return self._rows[:n_rows]

    def append(self, head: Any, tail: Any) -> Any:
        """`head` and `tail` in one array; None if there is no space, or `head` lies elsewhere."""
        n, last = len(head), len(head) + len(tail)
        if head.base is not self._rows:
            return None
        with _appending:
            if self._used != n or last > len(self._rows):
                return None
            self._used = last
        self._rows[n:last] = tail
        return self._rows[:last]


def append(buffer: Buffer | None, head: Any, tail: Any) -> tuple[Buffer, Any]:
    """`head` and `tail` in one array, and the buffer that holds it.

    buffer: what held `head`, None if there is none. O(len(tail)) on average.
    """
    joined = None if buffer is None else buffer.append(head, tail)
    if buffer is None or joined is None:
        buffer = Buffer(len(head) + len(tail), head)
        own = buffer.take(len(head))
        own[:] = head
        joined = buffer.append(own, tail)
    return buffer, joined
