"""Attributes that are computed once: threads wait for each other, forks and the pool for nobody."""

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from triegp.engines import computed_once
from triegp.engines.cpu.threads import run_each
from triegp.smooth import buffers

forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
forked = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested


class Slow:
    """An attribute whose computation waits for an event."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.n_computed = 0

    @computed_once
    def value(self):
        """A new object."""
        self.n_computed += 1
        self.begun.set()
        assert self.go_on.wait(60)
        return object()


def run_in_child(work):
    """Run in a forked process, which is killed if it does not end."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    child.kill()
    child.join()
    return child.exitcode


def test_threads_wait_for_the_first_and_get_its_value():
    one = Slow()
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(lambda: one.value) for _ in range(4)]
        assert one.begun.wait(60)
        one.go_on.set()
        found = {job.result() for job in jobs}
    assert found == {one.value}
    assert one.n_computed == 1
    assert Slow.value.__doc__ == "A new object."


def test_an_error_leaves_the_attribute_to_the_next():
    class Failing:
        n = 0

        @computed_once
        def value(self):
            self.n += 1
            if self.n == 1:
                raise KeyError("first")
            return self.n

    one = Failing()
    with pytest.raises(KeyError, match="first"):
        _ = one.value
    assert (one.value, one.value) == (2, 2)


def test_instances_do_not_wait_for_each_other():
    one, other = Slow(), Slow()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: one.value)
        assert one.begun.wait(60)
        other.go_on.set()
        assert other.value is not None
        one.go_on.set()
        job.result()


def test_the_pool_does_not_wait_for_a_thread_that_waits_for_the_pool():
    """All threads of the pool need a value, and whoever computes it needs the pool."""
    busy, begun = threading.Barrier(3), threading.Event()

    class Both:
        @computed_once
        def value(self):
            begun.set()
            return sum(run_each(lambda k: k, [1, 2], 2))

    one = Both()

    def need(_):
        busy.wait(60)
        assert begun.wait(60)
        return one.value

    with ThreadPoolExecutor(2) as others:
        asked = others.submit(run_each, need, [0, 1], 2)
        busy.wait(60)  # the pool has two threads, unless other tests made it larger
        value = others.submit(lambda: one.value)
        assert asked.result(60) == [3, 3]
        assert value.result(60) == 3


@forks
@forked
def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have():
    one = Slow()
    thread = threading.Thread(target=lambda: one.value)
    thread.start()
    assert one.begun.wait(60)

    def work():
        one.go_on.set()
        other = Slow()
        other.go_on.set()
        assert other.value is not one.value

    assert run_in_child(work) == 0
    one.go_on.set()
    thread.join()


def test_a_buffer_is_used_only_by_what_lies_in_it():
    """Two threads may have filled a buffer each, of which one stays."""
    buffer, other = (buffers.Buffer(4, np.zeros((0, 2))) for _ in range(2))
    head = buffer.take(4)
    other.take(4)[:] = 7.0
    head[:] = 1.0
    found, joined = buffers.append(other, head, np.full((1, 2), 2.0))
    assert found is not other
    np.testing.assert_array_equal(joined, [[1, 1]] * 4 + [[2, 2]])
    again, longer = buffers.append(found, joined, np.full((1, 2), 3.0))
    assert again is found
    assert longer.base is joined.base
