"""Jobs in step: each runs on a thread of its own, and what they ask is answered together.

An engine that takes many candidates at once wants one call with the orders of all fits, not many
calls with one each; an optimiser wants to call its objective. Here every optimiser keeps a thread
to itself, and when all of them wait for a likelihood, the calling thread answers them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from triegp.models.jobs import POLL_SECONDS, Stopwatch

Item = TypeVar("Item")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Abandoned(BaseException):
    """Raised in a job whose question will not be answered any more."""


class Rendezvous(Generic[Question, Answer]):
    """Where jobs meet: each asks and waits, and when all that have not left wait, all go on.

    Jobs call `ask` and `leave` from threads of their own; one other thread calls the rest. Ctrl-C
    may come anywhere in that one: a question not marked as answered is answered again, and nobody
    looks at a second answer.

    Parameters
    ----------
    n_jobs : int
        Jobs, named 0..n_jobs-1; all are waited for until they leave.
    """

    def __init__(self, n_jobs: int) -> None:
        self._calls: list[_Call[Question, Answer] | None] = [None] * n_jobs
        self._left = [False] * n_jobs
        self._abandoned = False
        # To put into these queues, and to take, is one step for the interpreter.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def ask(self, job: int, question: Question) -> Answer:
        """Wait until all others ask, too, or have left; and return the answer.

        Raises Abandoned where there will be none.
        """
        call: _Call[Question, Answer] = _Call(question)
        self._calls[job] = call
        if self._abandoned:  # looked at after the call is there: `abandon` sees it, or we see that
            raise Abandoned
        self._bell.put(None)
        answer = call.box.get()
        if not answer:
            raise Abandoned
        return answer[0]

    def leave(self, job: int) -> None:
        """A job asks no more: the others need not wait for it. May be said twice."""
        self._left[job] = True
        self._bell.put(None)

    @property
    def empty(self) -> bool:
        """Whether all have left."""
        return all(self._left)

    def wait(self, seconds: float) -> list[int]:
        """Jobs that ask, in their order, as soon as all do that have not left.

        None of them where that does not happen for so many seconds.
        """
        while not self._all_here():
            try:
                self._bell.get(timeout=seconds)
            except Empty:
                return []
        return [job for job, left in enumerate(self._left) if not left]

    def answer(self, jobs: Sequence[int], work: Callable[[list[Question]], list[Answer]]) -> None:
        """Give these jobs, found by `wait`, what work(questions) says; and let them go on.

        One at a time, up to its next question: threads that all wake at once would spend more on
        waiting for the interpreter than on their work.
        """
        calls = [(job, call) for job in jobs if (call := self._calls[job]) is not None]
        answers = work([call.question for _, call in calls])
        for (job, call), answer in zip(calls, answers, strict=True):
            call.box.put((answer,))
            call.answered = True
            while self._calls[job] is call and not self._left[job]:
                self._bell.get()

    def abandon(self) -> None:
        """Let all that wait, and all that ask from now on, raise Abandoned. May be said twice."""
        self._abandoned = True
        for call in self._calls:
            if call is not None and not call.answered:
                call.box.put(())
                call.answered = True

    def _all_here(self) -> bool:
        """Whether all ask that have not left."""
        return all(
            left or (call is not None and not call.answered)
            for left, call in zip(self._left, self._calls, strict=True)
        )


class _Call(Generic[Question, Answer]):
    """A question, and where the answer is put: (answer,), or () if there is none."""

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
    """work(item, ask) for all items at once, results in the order of the items.

    Jobs call ask(question) as often as they like. When all that have not ended wait, their
    questions, in the order of the items, are answered by one call of `answer` in the calling
    thread, and all go on: who is asked what, and together with whom, does not depend on timing.

    As in `run_jobs`, items give None where the watch says stop before they begin, and jobs that run
    are expected to look at the watch themselves. Ctrl-C stops the watch and is remembered there;
    what was being answered is answered again, so that no job is left without. An error of a job, of
    `answer` or of `progress` stops the watch, too, and is raised when all jobs have ended; after
    one of the last two no question is answered any more. `progress` is called with the number of
    jobs done, in the calling thread.
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
            pass  # what it was abandoned for is known
        except BaseException as error:
            errors.append(error)
            watch.halt()
        finally:
            meeting.leave(job)

    # As in `run_jobs`, Ctrl-C may come anywhere in this loop, also while a thread is being started:
    # then nobody knows whether it was. A job not begun when the watch has stopped is given up here
    # or gives up itself, or both.
    waiting = [threading.Thread(target=run, args=(job,), daemon=True) for job in range(n_jobs)]
    finished = not waiting
    while not finished:
        try:
            while waiting and not watch.stop:
                waiting.pop().start()
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
