"""Jobs side by side on threads, that can be stopped and lose nothing."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
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
        """Ask all jobs to stop, because of Ctrl-C."""
        self.interrupted = True
        self._asked.set()

    def halt(self) -> None:
        """Ask all jobs to stop, for any other reason: one has failed, a callback said so."""
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
    watch themselves. Ctrl-C stops the watch and is remembered there. An error of a job stops the
    watch, too, and is raised when the jobs that run have ended. `progress` is called with the
    number of jobs done, in the calling thread.
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

    # Ctrl-C may come anywhere in this loop. Neither pools nor Thread.join keep count then: a thread
    # is done when it says so, and one that was only just started finds the watch stopped.
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
