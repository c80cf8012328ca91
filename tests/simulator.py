"""numba's CUDA simulator, made fast and fit for kernels whose threads wait for each other.

numba starts a thread of Python for each thread of a block, lets them all run at once and polls
them. That is slow, and two things go wrong: threads that come to a shared array at once can each
get one of their own, and one that leaves a device function takes `cuda` away from those still in
it. Here the threads of a block take turns: each runs until it waits for the others or ends. The
order turns round at every barrier and from block to block, so that where a barrier is missing one
order or the other shows it. Shared memory begins as nonsense, as it does on a card.
"""

import sys
import threading
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.np.numpy_support import as_dtype

_launching = threading.RLock()
_homes = {}  # by id: the globals of modules with kernels, and what they call `cuda`
_idle = []  # workers


def install():
    """Make numba's simulated kernels run here; before any kernel is made."""
    from numba.cuda.simulator.kernel import FakeCUDAKernel

    make = FakeCUDAKernel.__init__

    def init(self, fn, *args, **kwargs):
        make(self, fn, *args, **kwargs)
        names = [name for name, value in fn.__globals__.items() if value is cuda]
        _homes[id(fn.__globals__)] = (fn.__globals__, names)

    def call(self, *args):
        if self._device:
            return self.fn(*args)
        return launch(self.fn, self.grid_dim[0], self.block_dim[0], args)

    FakeCUDAKernel.__init__, FakeCUDAKernel.__call__ = init, call


def launch(function, n_blocks, n_threads, arguments):
    """Run a kernel, one block after the other."""
    with _launching, np.errstate(all="ignore"):  # overflow is no error on a card
        inside = Inside(n_blocks, n_threads)
        _set_cuda(inside)
        try:
            for number in range(n_blocks):
                Block(inside, number, lambda: function(*arguments)).run()
        finally:
            _set_cuda(cuda)


def _set_cuda(module):
    for names, own in _homes.values():
        for name in own:
            names[name] = module


class Inside:
    """What `cuda` is inside a kernel, for the thread whose turn it is."""

    def __init__(self, n_blocks, n_threads):
        self.gridDim, self.blockDim = SimpleNamespace(x=n_blocks), SimpleNamespace(x=n_threads)
        self.shared, self.atomic = Shared(), Atomic()
        self.local = SimpleNamespace(array=_nonsense)
        self.threads = [SimpleNamespace(x=t) for t in range(n_threads)]

    def begin_block(self, block):
        self.blockIdx = SimpleNamespace(x=block.number)
        self.shared.arrays = {}
        self.syncthreads, self.syncthreads_or = block.wait, block.vote

    def grid(self, ndim):
        assert ndim == 1
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x

    def gridsize(self, ndim):
        assert ndim == 1
        return self.gridDim.x * self.blockDim.x

    def threadfence(self):
        pass


class Shared:
    """A block's arrays, one for each line of source that asks for one."""

    def array(self, shape, dtype):
        caller = sys._getframe(1)
        line = (caller.f_code, caller.f_lineno)
        if line not in self.arrays:
            self.arrays[line] = _nonsense(shape, dtype)
        return self.arrays[line]


def _nonsense(shape, dtype):
    dtype = as_dtype(dtype)
    return np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).max // 3, dtype)


class Atomic:
    """Nobody is in between: threads take turns."""

    def add(self, array, index, value):
        old = array[index]
        array[index] += value
        return old

    def max(self, array, index, value):
        old = array[index]
        array[index] = max(old, value)
        return old

    def min(self, array, index, value):
        old = array[index]
        array[index] = min(old, value)
        return old


class Aborted(BaseException):
    """Another thread of the block has failed."""


class Block:
    """Threads that take turns. One that waits keeps its stack: the next then needs a worker."""

    def __init__(self, inside, number, work):
        n_threads = len(inside.threads)
        self.inside, self.number, self.work = inside, number, work
        self.fresh = set(range(n_threads))
        self.waiting, self.votes, self.error = [], {}, None
        self.backwards, self.n_barriers = number % 2 == 1, 0
        self.to_run = self._in_order(self.fresh)
        self.turns = [_locked() for _ in range(n_threads)]
        self.done = _locked()
        inside.begin_block(self)

    def run(self):
        """Run all threads, the first of them right here."""
        self.run_fresh(self.to_run.pop())
        self.done.acquire()
        if self.error is not None:
            raise self.error

    def run_fresh(self, thread, worker=None):
        """Run a thread that has not begun, and others as long as they have not, either."""
        while thread in self.fresh:
            self.fresh.discard(thread)
            self._begin_turn(thread)
            try:
                self.work()
            except Aborted:
                pass
            except BaseException as error:
                self.error = error
                self.to_run = [other for other in self.to_run if other not in self.fresh]
                self.fresh = set()
            thread = self._next()
        if worker is not None:
            _idle.append(worker)
        (self.done if thread is None else self.turns[thread]).release()

    def wait(self):
        """Wait until all threads that have not ended are here."""
        me = self.thread
        self.waiting.append(me)
        following = self._next()
        if following != me:
            if following in self.fresh:
                (_idle.pop() if _idle else Worker()).take(self, following)
            else:
                self.turns[following].release()
            self.turns[me].acquire()
        if self.error is not None:
            raise Aborted
        self._begin_turn(me)

    def vote(self, value):
        """Wait for all threads; whether any has said yes."""
        barrier = self.n_barriers
        self.votes[barrier] = self.votes.get(barrier, False) or bool(value)
        self.wait()
        return 1 if self.votes[barrier] else 0

    def _begin_turn(self, thread):
        self.thread, self.inside.threadIdx = thread, self.inside.threads[thread]

    def _next(self):
        """Whose turn it is; None if all threads have ended."""
        if not self.to_run and self.waiting:
            self.backwards, self.n_barriers = not self.backwards, self.n_barriers + 1
            self.to_run, self.waiting = self._in_order(self.waiting), []
        return self.to_run.pop() if self.to_run else None

    def _in_order(self, threads):
        return sorted(threads, reverse=not self.backwards)  # the last one is first


class Worker(threading.Thread):
    """A thread of Python for those that begin while others wait; kept for later."""

    def __init__(self):
        super().__init__(daemon=True)
        self.called = _locked()
        self.start()

    def take(self, block, thread):
        self.task = (block, thread)
        self.called.release()

    def run(self):
        np.seterr(all="ignore")
        while True:
            self.called.acquire()
            block, thread = self.task
            self.task = None
            block.run_fresh(thread, self)


def _locked():
    lock = threading.Lock()
    lock.acquire()
    return lock
