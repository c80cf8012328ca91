"""Parallel jobs on threads that can be stopped early without losing finished results."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

POLL_SECONDS = 0.1  # longest wait between calls of `progress`


class Stopwatch:
    """Signals jobs to stop: after a time budget, or on request.

    Attributes
    ----------
    interrupted : bool
        Whether the reason was Ctrl-C.
    """

    def __init__(self, time_budget: float | None = None) -> None:
        self.started = time.monotonic()
        self._deadline = None if time_budget is None else self.started + time_budget
        self._asked = threading.Event()
        self.interrupted = False

    def interrupt(self) -> None:
        """Request that all jobs stop, because of Ctrl-C."""
        self.interrupted = True
        self._asked.set()

    def halt(self) -> None:
        """Request that all jobs stop for another reason, such as an error in one of them."""
        self._asked.set()

    @property
    def out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def stop(self) -> bool:
        """Whether jobs should end now and return their best result so far."""
        return self._asked.is_set() or self.out_of_time


def run_jobs(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Result | None]:
    """Compute work(item) for all items on n_jobs threads; results are in the order of the items.

    The result is None for items that had not begun when the watch stopped. Running jobs have to
    check the watch themselves. Ctrl-C stops the watch and sets `watch.interrupted`. An exception in
    a job stops the watch too; it is raised once all running jobs have ended. `progress` is called
    in the calling thread with the number of finished jobs.
    """
    results: list[Result | None] = [None] * len(items)
    turns = itertools.count()
    done: list[int] = []
    begun: list[bool] = []
    ended: list[bool] = []
    errors: list[BaseException] = []
    bell = threading.Semaphore(0)

    def take_turns() -> None:
        begun.append(True)
        try:
            while not watch.stop and (turn := next(turns)) < len(items):
                results[turn] = work(items[turn])
                done.append(turn)
        except BaseException as error:
            errors.append(error)
            watch.halt()
        finally:
            ended.append(True)
            bell.release()

    # KeyboardInterrupt may be raised anywhere in this loop. Thread pools and Thread.join can lose
    # track of threads then, so each thread records its own end in `ended`. A thread whose start was
    # interrupted finds the watch stopped and ends.
    n_workers = min(n_jobs, len(items))
    waiting = [threading.Thread(target=take_turns, daemon=True) for _ in range(n_workers)]
    n_started = 0
    finished = not waiting
    while not finished:
        try:
            while waiting and not watch.stop:
                waiting.pop().start()
                n_started += 1
            bell.acquire(timeout=POLL_SECONDS)
            finished = len(ended) >= max(n_started, len(begun))
            progress(len(done))
        except KeyboardInterrupt:
            watch.interrupt()
        except BaseException as error:
            errors.append(error)
            watch.halt()
    if errors:
        raise errors[0]
    return results
