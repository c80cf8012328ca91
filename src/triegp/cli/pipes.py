"""Streams of bytes that end when a signal comes.

pyarrow reads a stream on a thread of its own, and the main thread waits for it where no signal
reaches it. If the stream stalls, Ctrl-C would do nothing. So the reading thread also waits for
signals, of which Python writes a byte to a pipe.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO


class Pipe(io.RawIOBase):
    """A file descriptor that is read until its end, or until a signal comes."""

    def __init__(self, number: int, wake: int) -> None:
        self._number, self._wake = number, wake

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, as soon as there are any; 0 at the end."""
        ready, _, _ = select.select([self._number, self._wake], [], [])
        if self._wake in ready:
            raise InterruptedError("a signal came")
        data = os.read(self._number, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_pipe(path: str) -> Iterator[BinaryIO]:
    """Open a pipe or device for reading; "-" is standard input."""
    is_file = path != "-"
    if os.name == "nt":  # select is for sockets there
        with open(path, "rb") if is_file else nullcontext(sys.stdin.buffer) as file:
            yield file
        return
    try:
        number = os.open(path, os.O_RDONLY) if is_file else sys.stdin.buffer.fileno()
    except io.UnsupportedOperation:  # in the place of standard input is something else
        yield sys.stdin.buffer
        return
    wake, signalled = os.pipe()
    os.set_blocking(signalled, False)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.set_wakeup_fd(signalled) if is_main else -1
    try:
        yield io.BufferedReader(Pipe(number, wake), 1 << 16)
    finally:
        if is_main:
            signal.set_wakeup_fd(before)
        for each in (wake, signalled, *([number] if is_file else [])):
            os.close(each)


class Peeked(io.RawIOBase):
    """A stream whose beginning was read already, from its beginning."""

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        part = self._head[: len(buffer)]
        self._head = self._head[len(part) :]
        if not part:
            part = memoryview(self._rest.read(len(buffer)))
        buffer[: len(part)] = part
        return len(part)
