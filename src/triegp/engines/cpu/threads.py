"""One thread pool per process, created on first use and again in a forked child."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from triegp.engines.cpu import scratch

Item = TypeVar("Item")
Result = TypeVar("Result")


BLOCK_ROWS = 1 << 14
MAX_BLOCKS = 64


class _Pool:
    """The thread pool of the process. It grows to the largest number of threads requested."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._size = 0
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], None], n_threads: int) -> list[Future[None]]:
        """Start `work` once on each of n_threads threads."""
        with self._lock:
            if self._threads is None or n_threads > self._size:
                if self._threads is not None:
                    self._threads.shutdown(wait=False)
                self._size = n_threads
                self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="triegp")
            return [self._threads.submit(work) for _ in range(n_threads)]


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
    started, and the exception is raised once the running items have ended.
    """
    n_threads = min(n_threads, len(items))
    if n_threads < 2 or on_pool():
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    turns = itertools.count()  # next() on it is atomic in CPython
    stop = threading.Event()

    def take_turns() -> None:
        _here.busy = True
        try:
            while not stop.is_set() and (turn := next(turns)) < len(items):
                results[turn] = work(items[turn])
        except BaseException:
            stop.set()
            raise
        finally:
            _here.busy = False
            scratch.release()

    workers = _pool.submit(take_turns, n_threads)
    try:
        wait(workers)
    except BaseException:  # Ctrl-C: wait until no thread writes to the caller's arrays any more
        stop.set()
        wait(workers)
        raise
    for worker in workers:
        worker.result()
    return [results[turn] for turn in range(len(items))]
