"""Jobs side by side on threads, that can be stopped and lose nothing."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

POLL_SECONDS = 0.1


class Stopwatch:
    """Says when to stop: after a time budget, or because someone asked.

    Attributes
    ----------
    interrupted : bool
        Whether someone pressed Ctrl-C.
    """

    def __init__(self, time_budget: float | None = None) -> None:
        self.started = time.monotonic()
        self._deadline = None if time_budget is None else self.started + time_budget
        self._asked = threading.Event()
        self.interrupted = False

    def interrupt(self) -> None:
        """Ask all jobs to stop."""
        self.interrupted = True
        self._asked.set()

    @property
    def out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def stop(self) -> bool:
        """Whether jobs should end now with what they have."""
        return self._asked.is_set() or self.out_of_time


def run_jobs(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Result | None]:
    """work(item) for all items on n_jobs threads, results in the order of the items.

    Items not begun when the watch says stop give None; jobs that run are expected to look at the
    watch themselves. Ctrl-C stops the watch and is remembered there. `progress` is called with the
    number of jobs done, in the calling thread.
    """
    results: list[Result | None] = [None] * len(items)
    turns = itertools.count()
    done = itertools.count(1)
    n_done = 0

    def take_turns() -> None:
        nonlocal n_done
        while not watch.stop and (turn := next(turns)) < len(items):
            results[turn] = work(items[turn])
            n_done = next(done)

    if not items:
        return results
    with ThreadPoolExecutor(min(n_jobs, len(items)), "triegp-job") as pool:
        running = {pool.submit(take_turns) for _ in range(min(n_jobs, len(items)))}
        while running:
            try:
                finished, running = wait(running, POLL_SECONDS, return_when=FIRST_COMPLETED)
                for worker in finished:
                    worker.result()
                progress(n_done)
            except KeyboardInterrupt:
                watch.interrupt()
            except BaseException:
                watch.interrupt()
                raise
    return results
