"""Parallel jobs on threads that can be stopped early without losing finished results."""

from __future__ import annotations

import _thread
import copy
import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol, Self, TypeVar

Item = TypeVar("Item")
Shared = TypeVar("Shared")
Result = TypeVar("Result")

POLL_SECONDS = 0.1  # longest wait between calls of `progress`
GRACE_SECONDS, GRACE_SHARE = 1.0, 0.1  # what `Stopwatch.last` may take over the time budget


class Stopwatch:
    """Signals jobs to stop: after a time budget, or on request.

    A part of the work gets a watch of its own from `before`, `within`, `again` or `last`. All of
    them share the requests to stop, and the clock.

    Parameters
    ----------
    time_budget : float, optional
        Seconds; no limit by default.
    clock : callable, optional
        Returns the time in seconds; `time.monotonic` by default.

    Attributes
    ----------
    started : float
        Time of the clock at the beginning.
    """

    def __init__(
        self, time_budget: float | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock or (lambda: time.monotonic())
        self.started = self._clock()
        self._budget = math.inf if time_budget is None else time_budget
        self._requests = _Requests()
        self._patience = 0  # a watch of `last` stops at this many Ctrl-C

    def interrupt(self) -> None:
        """Request that all jobs stop, because of Ctrl-C; a second time, also what has to finish."""
        self._requests.n_interrupts += 1
        self._requests.asked = True

    def halt(self) -> None:
        """Request that all jobs stop for another reason, such as an error in one of them."""
        self._requests.asked = True

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._requests.n_interrupts > 0

    @property
    def limited(self) -> bool:
        """Whether there is a time budget."""
        return self._budget < math.inf

    @property
    def out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self.limited and self.elapsed() >= self._budget

    @property
    def stop(self) -> bool:
        """Whether jobs should end now and return their best result so far."""
        if self._patience:
            return self._requests.n_interrupts >= self._patience or self.out_of_time
        return self._requests.asked or self.out_of_time

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self.started

    def left(self) -> float:
        """Seconds left, >= 0; infinite without a time budget. Requests do not change it."""
        return max(0.0, self._budget - self.elapsed()) if self.limited else math.inf

    def before(self, seconds: float) -> Self:
        """Watch that stops so many seconds before this one, to reserve them for what follows."""
        part = copy.copy(self)
        part._budget = self._budget - seconds
        return part

    def within(self, seconds: float) -> Self:
        """Watch that stops with this one, but after so many seconds from now at the latest."""
        part = copy.copy(self)
        part._budget = min(self._budget, self.elapsed() + seconds)
        return part

    def again(self, time_budget: float | None) -> Self:
        """Watch that begins now, with a time budget of its own."""
        part = copy.copy(self)
        part.started = self._clock()
        part._budget = math.inf if time_budget is None else time_budget
        return part

    def last(self, n_interrupts: int = 2) -> Self:
        """Watch for work without which there is no model, such as the last solve.

        It stops at the second Ctrl-C, or the given one. It may exceed the time budget by a tenth,
        or by one second if that is more.
        """
        part = copy.copy(self)
        part._patience = n_interrupts
        part._budget = self._budget + max(GRACE_SECONDS, GRACE_SHARE * self._budget)
        return part


class Pool(Protocol):
    """Workers elsewhere, such as those of a cluster, that run jobs."""

    def run(
        self,
        work: Callable[[Shared, Item], Result],
        shared: Shared,
        items: Sequence[Item],
        progress: Callable[[int], None],
    ) -> list[Result]:
        """Compute work(shared, item) for all items; results are in the order of the items.

        work, shared and items must be picklable. `shared` is sent to each worker once. `progress`
        is called with the number of finished jobs. Raises RuntimeError if workers are lost and no
        other can take over.
        """
        ...


class _Requests:
    """Requests to stop, shared by a watch and those made from it.

    Signal handlers make them, and may interrupt each other: there is no lock.
    """

    def __init__(self) -> None:
        self.asked = False
        self.n_interrupts = 0


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
    bell: SimpleQueue[None] = SimpleQueue()

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
            bell.put(None)

    # KeyboardInterrupt may be raised anywhere in this loop. What `threading` and `concurrent` are
    # made of would stay locked if it came inside: starting a thread and waiting are single calls
    # of C here. Each thread records its own end in `ended`. One whose start was interrupted finds
    # the watch stopped and ends.
    n_workers = min(n_jobs, len(items))
    n_started = 0
    finished = not n_workers
    while not finished:
        try:
            while n_started < n_workers and not watch.stop:
                _thread.start_new_thread(take_turns, ())
                n_started += 1
            with suppress(Empty):
                bell.get(timeout=POLL_SECONDS)
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
