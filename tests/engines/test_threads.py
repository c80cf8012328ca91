"""The same bits whatever the number of threads, and no trouble from threads of our own."""

import itertools
import multiprocessing
import pickle
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from triegp.encoding import Codes
from triegp.engines import CpuEngine
from triegp.engines.cpu import threads
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.cuts import default_cuts
from triegp.tree import (
    BitOrder,
    build_trie,
    condition,
    draw_samples,
    factorize,
    joint_posterior,
    leave_one_out,
    level_products,
    likelihood,
    predict,
    product,
    solve,
    uniform_weights,
    whiten,
)


def everything(n_threads, n=70_000):
    rng = np.random.default_rng(0)
    codes = Codes(rng.integers(0, 256, (n, 4), dtype=np.uint8), np.full(4, 8))
    codes.packed[: n // 4] = codes.packed[n // 4 : 2 * (n // 4)]  # some twins
    new = Codes(rng.integers(0, 256, (40_000, 4), dtype=np.uint8), np.full(4, 8))
    y = rng.standard_normal(n)
    order = BitOrder.from_weights(rng.permutation(32), uniform_weights(32, last=0.2))
    trie = build_trie(codes, order, engine=CpuEngine(n_threads=n_threads))
    assert trie.links.starts.size >= 3
    assert trie.links.spine.size > 0
    value = likelihood(trie, order, y, 0.01, row_gradients=True)
    posterior = condition(trie, codes, order, y, 0.01)
    factor = factorize(trie, order, 0.01)
    few = Codes(new.packed[:500], new.precision)
    return [
        np.array(value.nll),
        value.gradient.by_level,
        np.array(value.gradient.by_noise),
        value.gradient.by_target,
        *predict(posterior, new),
        *leave_one_out(posterior),
        product(trie, order.levels, y),
        solve(factor, y),
        whiten(factor, y),
        level_products(trie, y),
        np.array(factor.log_det),
        draw_samples(joint_posterior(posterior, few), 2, np.random.default_rng(1)),
    ]


def test_same_bits_for_any_number_of_threads():
    one, *others = (everything(k) for k in (1, 2, 5))
    for other in others:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_cuts_depend_on_the_number_of_rows_alone():
    np.testing.assert_array_equal(default_cuts(40_000), [0, 16384, 32768])
    assert default_cuts(10**8).size <= 64
    assert thread_blocks(0) == []
    blocks = thread_blocks(10**7)
    assert blocks[0][0] == 0
    assert blocks[-1][1] == 10**7
    assert all(a[1] == b[0] for a, b in itertools.pairwise(blocks))


def test_results_come_in_order_and_errors_get_out():
    assert run_each(lambda k: k * k, range(100), 4) == [k * k for k in range(100)]

    def fail(k):
        if k == 7:
            raise KeyError("seven")
        return k

    with pytest.raises(KeyError, match="seven"):
        run_each(fail, range(20), 3)


def test_after_a_failure_nothing_runs_on():
    begun, ended = [], []

    def work(k):
        begun.append(k)
        if k == 0:
            raise KeyError("first")
        ended.append(k)

    with pytest.raises(KeyError, match="first"):
        run_each(work, range(10_000), 3)
    n_begun = len(begun)
    assert n_begun < 10_000
    assert len(ended) == n_begun - 1  # all that had begun have ended
    assert run_each(lambda k: k, range(5), 3) == [0, 1, 2, 3, 4]
    assert len(begun) == n_begun


def test_work_inside_work_does_not_wait_for_itself():
    def inner(k):
        return sum(run_each(lambda j: j * k, range(10), 2))

    assert run_each(inner, range(8), 2) == [45 * k for k in range(8)]


def test_one_pool_whatever_is_asked_for():
    before = threads._pool.size  # the largest number that earlier tests asked for
    seen = set()
    for n_threads in (2, 5, 3, 4):
        run_each(lambda k: seen.add(threading.get_ident()), range(50), n_threads)
    assert threads._pool.size == max(before, 5)
    assert 1 <= len(seen) <= threads._pool.size


def test_tries_and_posteriors_can_be_pickled():
    rng = np.random.default_rng(0)
    codes = Codes(rng.integers(0, 256, (50, 2), dtype=np.uint8), np.full(2, 8))
    order = BitOrder.from_phi(rng.standard_normal(16))
    posterior = condition(build_trie(codes, order), codes, order, rng.standard_normal(50), 0.1)
    again = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(predict(again, codes).mean, predict(posterior, codes).mean)


def _child(queue):
    queue.put(everything(2, n=40_000)[0])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
def test_a_forked_child_makes_threads_of_its_own():
    expected = everything(2, n=40_000)[0]  # the pool exists before the fork
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == expected
    child.join()
    assert child.exitcode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_kernels_that_are_being_compiled():
    compiling, forked = threading.Event(), threading.Event()

    def compile_slowly():
        with global_compiler_lock:
            compiling.set()
            forked.wait(1.0)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    assert compiling.wait(60)
    child = multiprocessing.get_context("fork").Process(target=_compile)
    child.start()
    forked.set()
    child.join(60)
    child.kill()  # if it waits for ever
    assert child.exitcode == 0
    thread.join()
    _compile()


def _compile():
    assert numba.njit(lambda x: x + 1)(1) == 2


def test_numba_threading_layer_is_not_used():
    code = (
        "import numpy as np; from triegp.encoding import Codes; "
        "from triegp.tree import BitOrder, build_trie, likelihood; "
        "c = Codes(np.random.default_rng(0).integers(0, 256, (99, 2), dtype=np.uint8), "
        "np.full(2, 8)); o = BitOrder.from_phi(np.arange(16.0)); "
        "likelihood(build_trie(c, o), o, np.zeros(99), 1.0); "
        "import numba.np.ufunc.parallel as p; print(p._is_initialized)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
