"""Jobs in lockstep: each runs on its own thread, and their function evaluations are batched.

An engine that evaluates many orders at once needs one call with the orders of all optimisers. An
optimiser such as scipy's calls its objective with one order. So each optimiser runs on its own
thread. When all of them wait for a likelihood, the calling thread evaluates one batch for all.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from triegp.models.jobs import POLL_SECONDS, Stopwatch

Item = TypeVar("Item")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Abandoned(BaseException):
    """Raised in a job whose question will not be answered."""


class Rendezvous(Generic[Question, Answer]):
    """Collects one question from each job, and returns the answers to all of them.

    Jobs call `ask` and `leave` from their own threads. One coordinating thread calls the other
    methods. KeyboardInterrupt may be raised anywhere in the coordinating thread. A question that is
    not marked as answered is then answered again, and the second answer is ignored.

    Parameters
    ----------
    n_jobs : int
        Number of jobs, with indices 0..n_jobs-1. Every job is waited for until it leaves.
    """

    def __init__(self, n_jobs: int) -> None:
        self._calls: list[_Call[Question, Answer] | None] = [None] * n_jobs
        self._left = [False] * n_jobs
        self._abandoned = False
        # `put` and `get` of SimpleQueue are atomic.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def ask(self, job: int, question: Question) -> Answer:
        """Wait until every other job asks or has left, and return the answer.

        Raises Abandoned if there will be no answer.
        """
        call: _Call[Question, Answer] = _Call(question)
        self._calls[job] = call
        if self._abandoned:  # read after storing the call, so `abandon` cannot miss it
            raise Abandoned
        self._bell.put(None)
        answer = call.box.get()
        if not answer:
            raise Abandoned
        return answer[0]

    def leave(self, job: int) -> None:
        """End a job: the others no longer wait for it. May be called twice."""
        self._left[job] = True
        self._bell.put(None)

    @property
    def empty(self) -> bool:
        """Whether all jobs have left."""
        return all(self._left)

    def wait(self, seconds: float) -> list[int]:
        """Wait until all jobs that have not left ask; return their indices in ascending order.

        Returns an empty list if nothing happens for `seconds`.
        """
        while not self._all_here():
            try:
                self._bell.get(timeout=seconds)
            except Empty:
                return []
        return [job for job, left in enumerate(self._left) if not left]

    def answer(self, jobs: Sequence[int], work: Callable[[list[Question]], list[Answer]]) -> None:
        """Compute work(questions) for the jobs that `wait` returned, and resume them.

        Jobs are resumed one at a time, each up to its next question. Threads that all wake at once
        would spend most of their time waiting for the interpreter lock.
        """
        calls = [(job, call) for job in jobs if (call := self._calls[job]) is not None]
        answers = work([call.question for _, call in calls])
        for (job, call), answer in zip(calls, answers, strict=True):
            call.box.put((answer,))
            call.answered = True
            while self._calls[job] is call and not self._left[job]:
                self._bell.get()

    def abandon(self) -> None:
        """Raise Abandoned in all jobs that wait or ask from now on. May be called twice."""
        self._abandoned = True
        for call in self._calls:
            if call is not None and not call.answered:
                call.box.put(())
                call.answered = True

    def _all_here(self) -> bool:
        """Whether all jobs that have not left wait for an answer."""
        return all(
            left or (call is not None and not call.answered)
            for left, call in zip(self._left, self._calls, strict=True)
        )


class _Call(Generic[Question, Answer]):
    """A question, and a queue for the answer: (answer,), or () if there will be none."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.box: SimpleQueue[tuple[Answer] | tuple[()]] = SimpleQueue()
        self.answered = False


def run_in_step(
    work: Callable[[Item, Callable[[Question], Answer]], Result],
    items: Sequence[Item],
    answer: Callable[[list[Question]], list[Answer]],
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Result | None]:
    """Compute work(item, ask) for all items in parallel; results are in the order of the items.

    Jobs may call ask(question) any number of times. When all jobs that have not ended wait, their
    questions are answered by one call of `answer` in the calling thread, in the order of the items.
    So the batches do not depend on timing.

    As in `run_jobs`, the result is None for items that had not begun when the watch stopped, and
    running jobs have to check the watch themselves. Ctrl-C stops the watch and sets
    `watch.interrupted`; a batch that was interrupted is answered again. An exception in a job, in
    `answer` or in `progress` stops the watch too, and is raised once all jobs have ended. After an
    exception in `answer` or `progress`, no more questions are answered. `progress` is called in the
    calling thread with the number of finished jobs.
    """
    n_jobs = len(items)
    results: list[Result | None] = [None] * n_jobs
    meeting: Rendezvous[Question, Answer] = Rendezvous(n_jobs)
    begun, given_up = [False] * n_jobs, [False] * n_jobs
    done: list[int] = []
    errors: list[BaseException] = []
    failed: list[bool] = []

    def run(job: int) -> None:
        begun[job] = True
        try:
            if not (given_up[job] or watch.stop):
                results[job] = work(items[job], lambda question: meeting.ask(job, question))
                done.append(job)
        except Abandoned:
            pass  # the error that caused it is in `errors`
        except BaseException as error:
            errors.append(error)
            watch.halt()
        finally:
            meeting.leave(job)

    # As in `run_jobs`, KeyboardInterrupt may be raised anywhere in this loop. If that happens while
    # a thread is being started, it is unknown whether the thread runs. So a job that has not begun
    # when the watch stops is removed here, and also returns at once if its thread does run.
    waiting = list(range(n_jobs))
    finished = not waiting
    while not finished:
        try:
            while waiting and not watch.stop:
                _thread.start_new_thread(run, (waiting.pop(),))
            if watch.stop:
                for job in range(n_jobs):
                    given_up[job] = True
                    if not begun[job]:
                        meeting.leave(job)
            if failed:
                meeting.abandon()
            jobs = meeting.wait(POLL_SECONDS)
            if jobs:
                meeting.answer(jobs, answer)
            finished = meeting.empty
            progress(len(done))
        except KeyboardInterrupt:
            watch.interrupt()
        except BaseException as error:
            errors.append(error)
            failed.append(True)
            watch.halt()
    if errors:
        raise errors[0]
    return results
