"""Threads of our own: a pool a size, made when first used, made anew in a forked child."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK_ROWS = 1 << 14
MAX_BLOCKS = 64


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="triegp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def row_blocks(n_rows: int) -> list[tuple[int, int]]:
    """Cut n_rows rows into blocks; the cut depends on n_rows alone."""
    size = max(BLOCK_ROWS, -(-n_rows // MAX_BLOCKS))
    return [(lo, min(lo + size, n_rows)) for lo in range(0, n_rows, size)]


def run_each(work: Callable[[Item], Result], items: Sequence[Item], n_threads: int) -> list[Result]:
    """Results of work(item) in the order of the items, on up to n_threads threads.

    Each thread takes the next item as soon as it is free.
    """
    n_threads = min(n_threads, len(items))
    if n_threads < 2:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    turns = itertools.count()  # next() on it is one step for the interpreter

    def take_turns() -> None:
        while (turn := next(turns)) < len(items):
            results[turn] = work(items[turn])

    for worker in [_pool(n_threads).submit(take_turns) for _ in range(n_threads)]:
        worker.result()
    return [results[turn] for turn in range(len(items))]
