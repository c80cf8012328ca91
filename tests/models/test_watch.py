"""Watches with a clock that tests set, and Ctrl-C that is kept."""

import errno
import io
import math
import signal
import sys

import numpy as np
import pytest

from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.run import Run, keep_interrupts, progress_bars


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_parts_of_a_watch_end_earlier_and_share_its_requests():
    clock = Clock()
    watch = Stopwatch(10.0, clock)
    clock.now += 2.0
    before, within, last = watch.before(3.0), watch.within(1.5), watch.last()
    assert [part.left() for part in (watch, before, within, last)] == [8.0, 5.0, 1.5, 9.0]
    assert watch.within(100.0).left() == 8.0
    clock.now += 5.0
    assert before.stop
    assert within.out_of_time
    assert not watch.stop
    clock.now += 3.5
    assert watch.left() == 0.0
    assert watch.stop
    assert not last.stop
    other = Stopwatch(10.0, clock)
    part = other.before(1.0)
    part.interrupt()
    assert other.interrupted
    assert other.stop


def test_a_watch_without_a_budget_never_ends_by_itself():
    watch = Stopwatch(clock=Clock())
    for part in (watch, watch.before(1e9), watch.last()):
        assert part.left() == math.inf
        assert not part.limited
        assert not part.stop
    assert watch.within(1.0).limited


@pytest.mark.parametrize(("keep", "patience"), [(True, 2), (False, 1)])
def test_what_has_to_finish_stops_at_the_second_ctrl_c(keep, patience):
    run = Run(np.random.default_rng(0), 1, Stopwatch(), keep=keep)
    last = run.last_watch
    run.watch.halt()
    assert not last.stop
    for k in range(patience):
        assert not last.stop, k
        run.watch.interrupt()
    assert last.stop


def test_the_grace_of_what_has_to_finish_grows_with_the_budget():
    clock = Clock()
    assert Stopwatch(2.0, clock).last().left() == 3.0
    assert Stopwatch(100.0, clock).last().left() == pytest.approx(110.0)


def test_what_is_left_out_is_recorded_once():
    run = Run(np.random.default_rng(0), 1, Stopwatch())
    for what in ("3 of 24 members", "the tails", "3 of 24 members"):
        run.leave_out(what)
    assert run.left_out == ["3 of 24 members", "the tails"]


class Broken(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


class Redirected:
    """What a logger or a window puts there: it can be written to, and no more."""

    def write(self, text):
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize("stderr", [lambda: None, closed, Broken, Redirected])
def test_progress_that_nobody_can_read_is_not_shown(monkeypatch, capsys, stderr):
    """A program without a console has None, one whose reader was ended a broken pipe."""
    monkeypatch.setattr(sys, "stderr", stderr())
    show = progress_bars(1)
    for done in range(4):
        show("steps", done, 3)
    if sys.platform != "win32":
        with keep_interrupts(Stopwatch(clock=Clock()), 1):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().out == ""


windows = pytest.mark.skipif(sys.platform == "win32", reason="raise_signal(SIGINT) kills there")


@windows
@pytest.mark.parametrize("verbose", [0, 1])
def test_ctrl_c_stops_the_watch_and_is_answered(capsys, verbose):
    clock = Clock()
    watch = Stopwatch(clock=clock)
    with keep_interrupts(watch, verbose):
        signal.raise_signal(signal.SIGINT)
        assert watch.stop
        assert not watch.last().stop
        signal.raise_signal(signal.SIGINT)
        assert watch.last().stop
        clock.now += 3.0  # too late to give up
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    said = capsys.readouterr().err
    assert ("being finished" in said) == ("at once" in said) == bool(verbose)


@windows
def test_a_third_ctrl_c_soon_after_the_second_raises_even_from_jobs():
    watch = Stopwatch(clock=Clock())

    def press(done):
        signal.raise_signal(signal.SIGINT)

    def press_three_times():
        with keep_interrupts(watch):
            for _ in range(3):
                run_jobs(lambda item: item, [0], 1, watch.last(), press)

    with pytest.raises(KeyboardInterrupt):
        press_three_times()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@windows
def test_a_handler_of_the_program_stays():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with keep_interrupts(Stopwatch()):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
