"""One thread pool per process, created on first use and again in a forked child."""

from __future__ import annotations

import _thread
import concurrent.futures.thread  # noqa: F401  (as in `compiler`: loaded before threads fork)
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from triegp.engines.cpu import scratch

Item = TypeVar("Item")
Result = TypeVar("Result")


BLOCK_ROWS = 1 << 14
MAX_BLOCKS = 64


class _Pool:
    """The thread pool of the process. It grows to the largest number of threads requested.

    KeyboardInterrupt may be raised anywhere in the calling thread. Pools of `concurrent` would
    then stay locked or shut down. Here every step is a single call of C: starting a thread, `put`
    and `get`. If one is interrupted, the pool has a thread more than it counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.size = 0

    def submit(self, task: Callable[[], None], n_threads: int) -> None:
        """Run `task`, which raises nothing, once on each of n_threads threads."""
        with self._lock:
            while self.size < n_threads:
                _thread.start_new_thread(self._serve, ())
                self.size += 1
        for _ in range(n_threads):
            self._tasks.put(task)

    def _serve(self) -> None:
        while True:
            self._tasks.get()()


_pool = _Pool()
_here = threading.local()  # .busy is True on a thread of the pool


def _new_pool() -> None:
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_pool)


def on_pool() -> bool:
    """Whether this is a thread of the pool."""
    return getattr(_here, "busy", False)


def available_cores() -> int:
    """Number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_blocks(n_rows: int) -> list[tuple[int, int]]:
    """Cut n_rows rows into blocks [(lo, hi), ...]. The cuts depend on n_rows alone."""
    size = max(BLOCK_ROWS, -(-n_rows // MAX_BLOCKS))
    return [(lo, min(lo + size, n_rows)) for lo in range(0, n_rows, size)]


def run_each(work: Callable[[Item], Result], items: Sequence[Item], n_threads: int) -> list[Result]:
    """Results of work(item) in the order of the items, on up to n_threads threads.

    Each thread takes the next item as soon as it is free. If called on a thread of the pool, all
    items are processed on that thread. After an exception in one item or Ctrl-C, no more items are
    started, and the exception is raised once the running items have ended: they write to arrays
    of the caller.
    """
    n_threads = min(n_threads, len(items))
    if n_threads < 2 or on_pool():
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    turns = itertools.count()  # next() on it is atomic in CPython, and so is `append`
    begun: list[bool] = []
    ended: list[bool] = []
    errors: list[BaseException] = []
    bell: SimpleQueue[None] = SimpleQueue()

    def take_turns() -> None:
        begun.append(True)
        _here.busy = True
        try:
            while not errors and (turn := next(turns)) < len(items):
                results[turn] = work(items[turn])
        except BaseException as error:
            errors.append(error)
        finally:
            _here.busy = False
            scratch.release()
            ended.append(True)
            bell.put(None)

    # A thread that begins after an error does nothing, so it is not waited for.
    submitted = finished = False
    while not finished:
        try:
            if not (submitted or errors):
                _pool.submit(take_turns, n_threads)
                submitted = True
            while len(ended) < len(begun) or (len(results) < len(items) and not errors):
                bell.get()
            finished = True
        except BaseException as error:  # Ctrl-C
            errors.append(error)
    if errors:
        raise errors[0]
    return [results[turn] for turn in range(len(items))]
