"""Ctrl-C at every instruction of jobs, and of what keeps it from being raised."""

import signal

import pytest

from presses import press_everywhere
from triegp.mixture.lockstep import run_in_step
from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.run import GivenUp, keep_interrupts

BELOW = ["/threading.py", "/contextlib.py", "/queue.py"]


def test_jobs_end_after_ctrl_c_anywhere():
    heard = 0

    def work():
        watch = Stopwatch()
        return run_jobs(str, range(4), 2, watch), watch.interrupted

    for place, found in press_everywhere(work, ["models/jobs.py", *BELOW]):
        if found is KeyboardInterrupt:  # before the jobs began, or after they ended
            continue
        results, interrupted = found
        heard += interrupted
        assert all(r in (None, str(k)) for k, r in enumerate(results)), place
        assert interrupted or None not in results, place
    assert heard > 10


def test_jobs_in_lockstep_end_after_ctrl_c_anywhere():
    heard = 0

    def work():
        watch = Stopwatch()
        found = run_in_step(lambda k, ask: ask(k), range(3), lambda asked: asked, watch)
        return found, watch.interrupted

    for place, found in press_everywhere(work, ["mixture/lockstep.py", *BELOW]):
        if found is KeyboardInterrupt:
            continue
        results, interrupted = found
        heard += interrupted
        assert all(r in (None, k) for k, r in enumerate(results)), place
    assert heard > 10


def test_the_handler_is_restored_after_ctrl_c_anywhere():
    def work():
        watch = Stopwatch()
        with keep_interrupts(watch):
            pass
        return watch.interrupted

    for place, _ in press_everywhere(work, ["models/run.py", *BELOW]):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, place


@pytest.mark.parametrize("n_before", [1, 2])
def test_the_handler_is_restored_if_the_last_ctrl_c_comes_while_it_is(n_before):
    """`signal.signal` looks for signals before it sets a handler."""

    def work():
        watch = Stopwatch()
        try:
            with keep_interrupts(watch):
                for _ in range(n_before):
                    signal.raise_signal(signal.SIGINT)
        except GivenUp:
            raise KeyboardInterrupt from None

    raised = 0
    for place, found in press_everywhere(work, ["models/run.py"], ["keep_interrupts"]):
        raised += found is KeyboardInterrupt
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, place
    assert raised > 0


def test_a_ctrl_c_that_comes_while_another_is_recorded():
    """A handler may be interrupted by the next signal: it must not wait for itself."""

    def work():
        watch = Stopwatch()
        with keep_interrupts(watch):
            signal.raise_signal(signal.SIGINT)
        return watch.interrupted

    for place, found in press_everywhere(work, ["models/jobs.py", "/threading.py"]):
        assert found in (True, KeyboardInterrupt), place


def test_watches_of_several_targets_share_ctrl_c():
    now = [0.0]
    first = Stopwatch(10.0, clock=lambda: now[0])
    now[0] = 7.0
    second = first.again(5.0)
    assert (second.left(), second.stop) == (5.0, False)
    first.interrupt()
    assert second.interrupted
    assert not second.last().stop
    second.interrupt()
    assert second.last().stop
    assert not first.again(None).limited
