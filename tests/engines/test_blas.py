"""One BLAS thread inside a block, whichever thread enters it; the limit of before at the end."""

import multiprocessing
import os
import sys
import threading

import pytest
import scipy.linalg  # noqa: F401  (it comes with a BLAS library of its own)
from threadpoolctl import threadpool_info, threadpool_limits

from triegp.engines import one_blas_thread
from triegp.engines.cpu import blas


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def two_blas_threads():
    """A limit of 2, set by the main thread; threadpoolctl then ignores other threads."""
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("BLAS here does not take a limit of 2 threads")
        yield
        assert set(blas_threads()) == {2}


class Visitor(threading.Thread):
    """Enters a block at once, leaves it on `leave`."""

    def __init__(self):
        super().__init__()
        self.entered, self.leave = threading.Event(), threading.Event()
        self.seen = []
        self.start()
        assert self.entered.wait(60)

    def run(self):
        with one_blas_thread():
            self.seen = blas_threads()
            self.entered.set()
            self.leave.wait(60)

    def end(self):
        self.leave.set()
        self.join(60)


def test_a_thread_other_than_the_first_gets_one_blas_thread():
    visitor = Visitor()
    visitor.end()
    assert set(visitor.seen) == {1}


def test_the_last_thread_to_leave_restores_the_limit():
    first, second = Visitor(), Visitor()
    with one_blas_thread():
        first.end()
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {1}  # the second is still inside
    second.end()
    assert set(blas_threads()) == {2}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have():
    visitor = Visitor()

    def in_child():
        with one_blas_thread():
            inside = blas_threads()
        assert (set(inside), set(blas_threads())) == ({1}, {2})

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(60)
    child.kill()  # if it waits for ever
    assert child.exitcode == 0
    visitor.end()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_inside_a_block_leaves_it_too():
    with one_blas_thread():
        pid = os.fork()
    if pid == 0:
        try:
            right = set(blas_threads()) == {2}
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_block_that_was_never_left_does_not_last():
    """Two Ctrl-C within the lines that leave a block can skip them."""
    block = blas._Block()
    blas._enter(block)
    assert set(blas_threads()) == {1}
    del block
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}
