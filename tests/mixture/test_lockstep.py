"""Jobs in step: who is answered with whom, ends of different lengths, errors, Ctrl-C, no deadlock.

Events say who waits for whom, not a clock; a test that hangs is ended by its own watchdog.
"""

import faulthandler
import signal
import sys
import threading

import pytest

from triegp.mixture.lockstep import Abandoned, Rendezvous, run_in_step
from triegp.models.jobs import Stopwatch

PATIENCE = 30  # seconds after which a test that hangs fails


@pytest.fixture(autouse=True)
def _watchdog():
    faulthandler.dump_traceback_later(4 * PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def count_up(item, ask):
    """Ask `item` times, for the double of what came last; 1 at first."""
    value = 1
    for _ in range(item):
        value = ask(value)
    return value


def double(questions):
    return [2 * question for question in questions]


@pytest.mark.parametrize("lengths", [[3], [0, 0], [4, 1, 0, 2], [1] * 40])
def test_jobs_of_different_lengths_are_answered_together(lengths):
    batches = []

    def answer(questions):
        batches.append(list(questions))
        return double(questions)

    seen = []
    results = run_in_step(count_up, lengths, answer, Stopwatch(), seen.append)
    assert results == [2**length for length in lengths]
    # Round k has the questions of all jobs that ask more than k times, and of nobody else.
    rounds = max(lengths)
    assert batches == [[2**k] * sum(n > k for n in lengths) for k in range(rounds)]
    assert seen[-1] == len(lengths)
    assert seen == sorted(seen)


def test_questions_come_in_the_order_of_the_items():
    batches = []

    def answer(questions):
        batches.append(questions)
        return questions

    def work(item, ask):
        return [ask((item, k)) for k in range(item)]

    run_in_step(work, [3, 1, 2], answer, Stopwatch())
    assert batches == [[(3, 0), (1, 0), (2, 0)], [(3, 1), (2, 1)], [(3, 2)]]


def test_answers_are_made_in_the_calling_thread_and_jobs_have_their_own():
    here = threading.current_thread()
    threads = set()

    def work(item, ask):
        threads.add(threading.current_thread())
        return ask(item)

    def answer(questions):
        assert threading.current_thread() is here
        return questions

    assert run_in_step(work, range(5), answer, Stopwatch()) == list(range(5))
    assert len(threads) == 5
    assert here not in threads


def test_no_items():
    def fail(*args):
        raise AssertionError("there is nothing to do")

    assert run_in_step(fail, [], fail, Stopwatch(), fail) == []


def test_no_time_begins_nothing():
    def fail(*args):
        raise AssertionError("there is no time")

    assert run_in_step(fail, range(3), fail, Stopwatch(0.0)) == [None] * 3


def test_a_stop_by_the_watch_is_for_the_jobs_to_see():
    watch = Stopwatch()

    def work(item, ask):
        n = 0
        while not watch.stop:
            ask(item)
            n += 1
        return n

    def answer(questions):
        if len(rounds) == 2:
            watch.halt()
        rounds.append(len(questions))
        return questions

    rounds = []
    results = run_in_step(work, range(4), answer, watch)
    assert results == [3] * 4
    assert rounds == [4] * 3
    assert not watch.interrupted


@pytest.mark.parametrize("n_rounds", [0, 2])
def test_an_error_of_one_job_gets_out_and_the_others_end(n_rounds):
    watch = Stopwatch()
    ended = []

    def work(item, ask):
        k = 0
        while not watch.stop:
            if item == 1 and k == n_rounds:
                raise ZeroDivisionError("job 1")
            k = ask(k + 1)
        ended.append(item)

    with pytest.raises(ZeroDivisionError, match="job 1"):
        run_in_step(work, range(3), lambda questions: questions, watch)
    assert watch.stop
    assert not watch.interrupted
    assert 1 not in ended


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_error_of_the_answer_gets_out_and_ends_all_jobs(error):
    watch = Stopwatch()
    caught = []

    def work(item, ask):
        try:
            ask(item)
        except Abandoned:
            caught.append(item)
            ask(item)  # abandoned for good

    def answer(questions):
        raise error("no memory")

    with pytest.raises(error, match="no memory"):
        run_in_step(work, range(3), answer, watch)
    assert sorted(caught) == [0, 1, 2]
    assert watch.stop


def test_an_error_of_the_callback_gets_out_and_ends_all_jobs():
    watch = Stopwatch()

    def work(item, ask):
        while True:
            ask(item)

    def fail(done):
        raise RuntimeError("no screen")

    with pytest.raises(RuntimeError, match="no screen"):
        run_in_step(work, range(3), lambda questions: questions, watch, fail)
    assert watch.stop


def test_an_answer_too_few_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        run_in_step(count_up, [1, 1], lambda questions: questions[:1], Stopwatch())


def add_one(questions):
    return [n + 1 for n in questions]


def until_stopped(watch):
    def work(item, ask):
        n = 0
        while not watch.stop:
            n = ask(n)
        return n

    return work


@pytest.mark.parametrize("where", ["answer", "progress"])
def test_ctrl_c_is_remembered_and_what_was_asked_is_answered(where):
    watch = Stopwatch()
    rounds = []

    def answer(questions):
        rounds.append(questions)
        if where == "answer" and len(rounds) == 2:
            raise KeyboardInterrupt
        return [n + 1 for n in questions]

    def press(done):
        if where == "progress" and len(rounds) == 2 and not watch.stop:
            raise KeyboardInterrupt

    results = run_in_step(until_stopped(watch), range(3), answer, watch, press)
    assert watch.interrupted
    assert len(set(results)) <= 2  # a job may look at the watch just before or after the callback
    assert min(results) >= 2
    if where == "answer":
        assert rounds[2] == rounds[1] == [1, 1, 1]
        assert results == [2, 2, 2]


@pytest.mark.skipif(sys.platform == "win32", reason="raise_signal(SIGINT) kills there")
@pytest.mark.parametrize("begin", [0, 1, 5])
def test_a_real_signal(begin):
    """From a job, when it has asked so often; at 0 while the others are still being started."""
    watch = Stopwatch()

    def work(item, ask):
        n = 0
        while not watch.stop:
            if item == 2 and n == begin:
                signal.raise_signal(signal.SIGINT)  # Python hands it to the main thread
            n = ask(n)
        return n

    results = run_in_step(work, range(3), add_one, watch)
    assert watch.interrupted
    assert results[2] is not None
    assert results[2] >= begin
    assert begin == 0 or None not in results


@pytest.mark.skipif(sys.platform == "win32", reason="raise_signal(SIGINT) kills there")
def test_signals_anywhere_lose_no_job():
    """A hundred runs, each interrupted wherever it happens to be: all end, all give a result."""
    for k in range(100):
        watch = Stopwatch()
        begun = threading.Semaphore(0)

        def work(item, ask, watch=watch, begun=begun):
            begun.release()
            n = 0
            while not watch.stop:
                n = ask(n)
            return n

        def press(k=k, begun=begun):
            for _ in range(3):
                assert begun.acquire(timeout=PATIENCE)
            for _ in range(100 * k):  # a little later every time
                pass
            signal.raise_signal(signal.SIGINT)

        finger = threading.Thread(target=press)
        finger.start()
        results = []
        try:
            results = run_in_step(
                work, range(3), lambda questions: [n + 1 for n in questions], watch
            )
        finally:
            finger.join()
        assert watch.interrupted
        assert None not in results


def test_a_rendezvous_waits_for_all_that_have_not_left():
    meeting = Rendezvous(3)
    answers = {}

    def party(job):
        answers[job] = meeting.ask(job, 10 * job)
        meeting.leave(job)

    threads = [threading.Thread(target=party, args=(job,), daemon=True) for job in (0, 2)]
    for thread in threads:
        thread.start()
    assert meeting.wait(0.05) == []  # job 1 is still expected
    assert not answers
    meeting.leave(1)
    while not (jobs := meeting.wait(PATIENCE)):
        pass
    assert jobs == [0, 2]
    assert not meeting.empty
    meeting.answer(jobs, double)
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == {0: 0, 2: 40}
    assert meeting.empty
    assert meeting.wait(PATIENCE) == []


def test_an_abandoned_rendezvous_answers_nobody():
    meeting = Rendezvous(1)
    meeting.abandon()
    with pytest.raises(Abandoned):
        meeting.ask(0, 1)
