"""Jobs on threads: order, stopping, Ctrl-C, errors. Events say who waits for whom, not a clock."""

import signal
import sys
import threading

import pytest

from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.run import progress_bars

N_JOBS = (1, 2, 5)
PATIENCE = 30  # seconds after which a test that hangs fails


@pytest.mark.parametrize("n_jobs", [*N_JOBS, 50])
def test_results_come_in_the_order_of_the_items(n_jobs):
    seen = []
    results = run_jobs(lambda item: item * item, range(20), n_jobs, Stopwatch(), seen.append)
    assert results == [item * item for item in range(20)]
    assert seen[-1] == 20
    assert seen == sorted(seen)


def test_jobs_run_side_by_side_in_other_threads():
    meeting = threading.Barrier(3)

    def work(item):
        meeting.wait(PATIENCE)  # all three must be running at once
        return threading.current_thread() is threading.main_thread()

    assert run_jobs(work, range(3), 3, Stopwatch()) == [False] * 3


def test_later_items_may_end_first():
    second_done = threading.Event()

    def work(item):
        if item == 0:
            assert second_done.wait(PATIENCE)
        else:
            second_done.set()
        return item

    assert run_jobs(work, [0, 1], 2, Stopwatch()) == [0, 1]


def test_no_items():
    def fail(done):
        raise AssertionError("there is nothing to tell")

    assert run_jobs(lambda item: item, [], 2, Stopwatch(), fail) == []


@pytest.mark.parametrize("n_jobs", N_JOBS)
def test_no_time_begins_nothing(n_jobs):
    watch = Stopwatch(0.0)
    assert run_jobs(lambda item: item, range(4), n_jobs, watch) == [None] * 4
    assert watch.stop
    assert watch.out_of_time
    assert not watch.interrupted


def test_the_time_budget_counts_from_the_start(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("triegp.models.jobs.time.monotonic", lambda: now[0])
    watch, free = Stopwatch(10.0), Stopwatch()
    assert not watch.stop
    now[0] = 109.9
    assert not watch.stop
    now[0] = 110.0
    assert watch.stop
    assert watch.out_of_time
    assert not free.stop


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_out_of_time_jobs_begun_are_kept_and_others_left_out(n_jobs, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("triegp.models.jobs.time.monotonic", lambda: now[0])
    watch = Stopwatch(1.0)
    together = threading.Barrier(n_jobs)

    def work(item):
        together.wait(PATIENCE)
        now[0] = 2.0
        together.wait(PATIENCE)
        return item

    results = run_jobs(work, range(6), n_jobs, watch)
    assert results == [*range(n_jobs), *[None] * (6 - n_jobs)]


@pytest.mark.parametrize("n_jobs", N_JOBS)
def test_ctrl_c_is_remembered_and_running_jobs_finish(n_jobs):
    """A progress callback stands for the calling thread, where Ctrl-C arrives."""
    watch = Stopwatch()
    begun = threading.Semaphore(0)
    pressed = threading.Event()

    def work(item):
        begun.release()
        assert pressed.wait(PATIENCE)
        return item

    def press(done):
        if watch.stop:  # jobs go on only after the interrupt has been seen
            pressed.set()
            return
        for _ in range(n_jobs):
            assert begun.acquire(timeout=PATIENCE)
        raise KeyboardInterrupt

    results = run_jobs(work, range(10), n_jobs, watch, press)
    assert watch.interrupted
    assert watch.stop
    assert results == [*range(n_jobs), *[None] * (10 - n_jobs)]


@pytest.mark.skipif(sys.platform == "win32", reason="raise_signal(SIGINT) kills there")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_real_signal(at_once):
    """At once: while the other workers are still being started."""
    watch = Stopwatch()
    all_begun = threading.Barrier(2)

    def work(item):
        if not at_once:
            all_begun.wait(PATIENCE)
        if item == 0:
            signal.raise_signal(signal.SIGINT)  # Python hands it to the main thread
        while not watch.stop:
            threading.Event().wait(0.001)
        return item

    results = run_jobs(work, range(4), 2, watch)
    assert watch.interrupted
    assert results[0] == 0
    assert results[1] in ((None, 1) if at_once else (1,))
    assert results[2:] == [None, None]


@pytest.mark.parametrize("n_jobs", N_JOBS)
def test_an_error_of_a_job_gets_out_and_stops_the_rest(n_jobs):
    watch = Stopwatch()
    begun = []

    def work(item):
        begun.append(item)
        if item == 0:
            raise ZeroDivisionError("job 0")
        while not watch.stop:
            threading.Event().wait(0.001)

    with pytest.raises(ZeroDivisionError, match="job 0"):
        run_jobs(work, range(50), n_jobs, watch)
    assert watch.stop
    assert not watch.interrupted  # nobody pressed anything
    assert len(begun) <= n_jobs


def test_an_error_of_the_callback_gets_out_and_stops_the_jobs():
    watch = Stopwatch()

    def work(item):
        while not watch.stop:
            threading.Event().wait(0.001)

    def fail(done):
        raise RuntimeError("no screen")

    with pytest.raises(RuntimeError, match="no screen"):
        run_jobs(work, range(10), 2, watch, fail)
    assert watch.stop


def test_an_error_is_not_lost_to_ctrl_c():
    """Both at once: the error gets out."""
    watch = Stopwatch()

    def work(item):
        raise ZeroDivisionError

    def press(done):
        raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError):
        run_jobs(work, [0], 1, watch, press)
    assert watch.interrupted


def test_progress_is_silent_unless_asked(capsys):
    show = progress_bars(0)
    show("fits", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_names_stages_and_counts(capsys):
    show = progress_bars(1)
    for done in (0, 1, 1, 3, 3):  # the last one twice: a bar that is closed already
        show("candidates", done, 3)
    show("fits", 0, 2)
    show("fits", 2, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "candidates" in err
    assert "fits" in err
    assert "3/3" in err
    assert "2/2" in err
