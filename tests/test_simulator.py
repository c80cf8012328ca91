"""What the tests' simulator promises of threads, barriers, shared memory and failures."""

import numpy as np
import pytest
from numba import cuda, float64, int32

from on_card import ON_CARD

pytestmark = pytest.mark.skipif(ON_CARD, reason="there is a card")


def run(function, n_blocks, n_threads, *arguments):
    cuda.jit(function)[n_blocks, n_threads](*arguments)


def test_threads_wait_for_each_other():
    def rotate(x):
        room = cuda.shared.array(5, float64)
        t = cuda.threadIdx.x
        room[t] = x[cuda.grid(1)]
        for _ in range(3):
            cuda.syncthreads()
            right = room[(t + 1) % cuda.blockDim.x]
            cuda.syncthreads()
            room[t] = right
        x[cuda.grid(1)] = room[t]

    x = np.arange(15.0)
    run(rotate, 3, 5, x)
    assert np.array_equal(x, np.roll(np.arange(15.0).reshape(3, 5), -3, axis=1).ravel())


def test_threads_that_end_are_not_waited_for():
    def some(counts, agreed):
        t = cuda.grid(1)
        for turn in range(t):
            agreed[t] += cuda.syncthreads_or(turn == 1)
            cuda.atomic.add(counts, turn, 1)

    counts, agreed = np.zeros(4, np.int32), np.zeros(4, np.int32)
    run(some, 1, 4, counts, agreed)
    assert counts.tolist() == [3, 2, 1, 0]
    assert agreed.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("step", [-1, 1])
def test_a_missing_barrier_shows(step):
    def shift(out):
        room = cuda.shared.array(4, int32)
        t = cuda.threadIdx.x
        room[t] = t
        out[cuda.grid(1)] = room[(t + step) % 4]

    out = np.zeros(8, np.int32)
    run(shift, 2, 4, out)
    assert not np.array_equal(out, np.roll(np.arange(8).reshape(2, 4), -step, axis=1).ravel() % 4)


@pytest.mark.parametrize("failing", range(4))
def test_a_failure_ends_the_kernel(failing):
    def fail(out):
        cuda.syncthreads()
        if cuda.threadIdx.x == failing:
            out[4] = 1.0
        cuda.syncthreads()
        out[cuda.threadIdx.x] = 1.0

    out = np.zeros(4)
    with pytest.raises(IndexError):
        run(fail, 2, 4, out)
    assert not out.any()
    with pytest.raises(IndexError):
        run(lambda x: x[cuda.threadIdx.x + failing], 2, 4, out[:3])
