"""Arrays that grow at their end without a copy of what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np

GROWTH = 1.25


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
        self._ends = {0}  # where rows may be appended, unless a thread does that now

    def take(self, n_rows: int) -> Any:
        """The first rows, for the caller to fill in."""
        self._ends = {n_rows}
        return self._rows[:n_rows]

    def append(self, head: Any, tail: Any) -> Any:
        """`head` and `tail` in one array; None if there is no space, or `head` lies elsewhere."""
        n, last = len(head), len(head) + len(tail)
        if head.base is not self._rows or last > len(self._rows):
            return None
        try:
            self._ends.remove(n)  # atomic, without a lock that a forked child could not release
        except KeyError:
            return None
        self._rows[n:last] = tail
        self._ends.add(last)
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
