"""Ctrl-C at every instruction of the thread pool, and of the limit of BLAS threads."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from presses import press_everywhere
from triegp.engines import one_blas_thread
from triegp.engines.cpu import threads
from triegp.engines.cpu.threads import run_each

BELOW = ["/threading.py", "concurrent/futures", "/contextlib.py"]


def test_the_pool_works_after_ctrl_c_anywhere(monkeypatch):
    """Also while it is made, and while it grows."""
    monkeypatch.setattr(threads, "_pool", threads._pool)  # other tests keep theirs

    def work():
        threads._new_pool()
        return run_each(str, range(5), 2) + run_each(str, range(5), 3)

    expected, pressed = work(), 0
    for place, found in press_everywhere(work, ["cpu/threads.py", *BELOW]):
        pressed += found is KeyboardInterrupt
        assert found in (KeyboardInterrupt, expected), place
        assert run_each(str, range(5), 2) == expected[:5], place
    assert pressed > 10


def test_ctrl_c_waits_for_items_that_run(monkeypatch):
    """They write to arrays of the caller."""
    begun, ended = [], []

    def work():
        begun.clear()
        ended.clear()

        def item(k):
            begun.append(k)
            ended.append(k)

        run_each(item, range(8), 2)

    for place, _ in press_everywhere(work, ["cpu/threads.py"], ["run_each"]):
        n_begun = len(begun)
        assert len(ended) == n_begun, place
        run_each(str, range(8), 2)  # whoever was late has had a turn
        assert len(begun) == n_begun, place


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_limit_of_blas_is_restored_after_ctrl_c_anywhere():
    def inside():
        return "x"

    nested = one_blas_thread()(one_blas_thread()(inside))
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("BLAS here does not take a limit of 2 threads")
        pressed = 0
        for place, found in press_everywhere(nested, ["cpu/blas.py", *BELOW], every=3):
            pressed += found is KeyboardInterrupt
            assert set(blas_threads()) == {2}, place
        assert pressed > 10
