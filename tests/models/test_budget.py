"""Watches with a clock of their own, Ctrl-C that is kept, and what fits into a time budget."""

import math
import signal
import sys

import numpy as np
import pytest

from triegp.additive.budget import (
    LEAST_ROWS,
    SOLVE_SHARE,
    TAIL_SHARE,
    fitting_rank,
    plan_forest,
    precondition_seconds,
    start_rows,
    tail_rows,
    tails_seconds,
)
from triegp.additive.model import rank_for
from triegp.mixture.settings import settings_of
from triegp.mixture.train import plan_ensemble, turn_seconds
from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.run import Run, keep_interrupts

UNIT = 5e-7  # seconds per row and column of a product


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

    with pytest.raises(KeyboardInterrupt), keep_interrupts(watch):
        for _ in range(3):
            run_jobs(lambda item: item, [0], 1, watch.last(), press)
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


def test_a_mixture_is_thinned_to_the_time_left():
    settings = settings_of("default", {})
    assert plan_ensemble(1e6, 0.01, 2, settings)[:2] == (30, 24)
    for left in (0.0, 0.5, 5.0, 50.0, 500.0):
        for seconds in (1e-4, 0.01, 0.1, 3.0):
            per_grid, n_members, later = plan_ensemble(left, seconds, 2, settings)
            assert 1 <= per_grid <= 30
            assert 1 <= n_members <= 24
            assert 0 <= later <= left / 2
            taken = per_grid * n_members * seconds / 2
            assert taken <= left / 3 + 1e-9 or per_grid == 1
            if n_members > 1:  # all of them can be trained
                assert left - taken - later >= 0.25 * n_members * 20 * seconds / 2
    one_grid = settings_of("paper-bte", {})
    per_grid, n_members, _ = plan_ensemble(10.0, 0.05, 2, one_grid)
    assert per_grid == int(10 / 3 * 2 / 0.05)
    assert n_members < 20


def test_members_share_the_time_left():
    assert turn_seconds(12.0, 2, 6) == 4.0
    assert turn_seconds(12.0, 2, 2) == turn_seconds(12.0, 4, 1) == 12.0
    assert turn_seconds(0.0, 2, 6) == 0.0


def test_a_forest_is_thinned_to_the_time_left():
    ample = plan_forest(1e6, UNIT, 20_000, 5_000, True)
    assert ample.train_rows == 5_000
    assert ample.tails == tails_seconds(20_000, 20_000, UNIT)
    for left in (0.0, 0.5, 5.0, 50.0):
        plan = plan_forest(left, UNIT, 20_000, 5_000, True)
        assert LEAST_ROWS <= plan.train_rows <= 5_000
        assert plan.solve <= SOLVE_SHARE * left
        assert plan.tails <= TAIL_SHARE * left
    assert plan_forest(0.5, UNIT, 20_000, 100, True).train_rows == 100
    assert plan_forest(50.0, UNIT, 20_000, 5_000, False).tails == 0.0
    assert plan_forest(50.0, 0.0, 20_000, 5_000, True).train_rows == 5_000


def test_preconditioner_start_and_tails_fit_the_time():
    assert fitting_rank(1e6, 20_000, UNIT) == rank_for(20_000)
    assert fitting_rank(0.0, 20_000, UNIT) == 0
    middle = fitting_rank(5.0, 20_000, UNIT)
    assert 0 < middle < rank_for(20_000)
    assert precondition_seconds(20_000, middle, UNIT) < 5.0
    assert start_rows(1e6, 20_000, UNIT) == 5_000
    assert start_rows(0.0, 20_000, UNIT) == 625
    assert start_rows(1.0, 300, UNIT) == 0
    rows = [tail_rows(left, 20_000, UNIT) for left in (0.0, 0.3, 1.0, 5.0, 1e6)]
    assert rows == sorted(rows)
    assert rows[0] == 0
    assert 0 < rows[1] < 20_000
    assert rows[-1] == 20_000
    for left, n in zip((0.3, 1.0, 5.0), rows[1:4], strict=True):
        assert tails_seconds(n, 20_000, UNIT) <= left
