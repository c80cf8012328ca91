"""What a real card adds: its memory runs out, other processes share it, and streams overlap.

All of it needs a card (`make card-test`). TRIEGP_CARD_CASES is the number of random moments at
which memory runs out, for each kind of work.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor, TrieGPRegressor

pytestmark = pytest.mark.card

CASES = int(os.environ.get("TRIEGP_CARD_CASES", "4"))
WAIT = 240  # seconds until a process or a thread counts as stuck


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 4))
    X[:2] = [[0.0] * 4, [1.0] * 4]  # nothing later lies outside the training box
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def mixture(n=4_000, **parameters):
    few = {"n_members": 4, "n_candidates": 4, "max_iter": 10, "random_state": 0, "refit": False}
    return BinaryTreeGPRegressor(engine="cuda", **(few | parameters)).fit(*draw(n))


def forest():
    return TrieGPRegressor(engine="cuda", n_trees=8, max_iter=4, random_state=0).fit(*draw(3_000))


def ask(model, X):
    """Mean, deviation and interval, on the host."""
    low_high = model.predict_interval(X)
    return np.column_stack([*model.predict(X, return_std=True), low_high])


# Memory that runs out


class Crowded:
    """Allocations of CuPy, one of which fails as if the card were full."""

    def __init__(self, cupy):
        self._cupy, self._real = cupy, cupy.get_default_memory_pool().malloc
        self.n_calls, self.fails_at = 0, None

    def allocate(self, size):
        self.n_calls += 1
        if self.n_calls == self.fails_at:
            raise self._cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return self._real(size)

    @contextlib.contextmanager
    def failing(self, call=None):
        self.n_calls, self.fails_at = 0, call
        self._cupy.cuda.set_allocator(self.allocate)
        try:
            yield
        finally:
            self._cupy.cuda.set_allocator(self._cupy.get_default_memory_pool().malloc)


def insert(model):
    X, y = draw(300, seed=3)
    model.partial_fit(X[2:], y[2:])


WORK = {
    "fit of a mixture": (None, lambda model: model.fit(*draw(2_000, seed=5))),
    "fit of trees and a smooth part": (forest, lambda model: model.fit(*draw(2_500, seed=5))),
    "rows that are inserted": (mixture, insert),
    "mean and deviation": (mixture, lambda model: None),
    "joint samples": (mixture, lambda model: model.sample_y(draw(50, seed=4)[0])),
    "leave-one-out": (mixture, lambda model: model.loo_predict()),
    "a model that is moved to the card": (
        lambda: mixture().set_params(engine="cpu"),
        lambda model: model.set_params(engine="cuda"),
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_memory_may_run_out_at_any_moment(name):
    """The work fails with a MemoryError or is done; the model then answers as one or the other."""
    cupy = pytest.importorskip("cupy")
    make, work = WORK[name]
    make = make or mixture
    new, crowded = draw(200, seed=1)[0], Crowded(cupy)
    before = ask(make(), new)
    whole = make()
    with crowded.failing():
        work(whole)
        after = ask(whole, new)
    n_calls = crowded.n_calls
    assert n_calls > 3
    rng = np.random.default_rng(len(name))
    moments = np.unique(np.append(rng.integers(1, n_calls + 1, CASES), [1, n_calls]))
    n_failed = 0
    for moment in moments.tolist():
        model = make()
        ask(model, new[:5])
        with crowded.failing(moment):
            try:
                work(model)
                ask(model, new)
            except MemoryError:
                n_failed += 1
        found = ask(model, new)
        same = [np.array_equal(found, one) for one in (before, after)]
        assert any(same), (name, moment, np.abs(found - after).max())
        np.testing.assert_array_equal(ask(model, new), found)
        model.fit(*draw(2_000, seed=5))
        assert np.isfinite(ask(model, new)).all()
    print(f"{name}: {n_calls} allocations, {len(moments)} failed one, {n_failed} errors")
    assert n_failed > 0


def test_a_pool_with_a_limit():
    cupy = pytest.importorskip("cupy")
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    X, y = draw(400_000)
    model = mixture()
    before = ask(model, X[:100])
    pool.set_limit(size=pool.total_bytes() + (8 << 20))
    try:
        with pytest.raises(MemoryError, match=r"out of memory|on the device"):
            model.fit(X, y)
        np.testing.assert_array_equal(ask(model, X[:100]), before)
    finally:
        pool.set_limit(size=0)
    assert ask(model.fit(X, y), X[:100]).shape == (100, 4)


FILL = """
import sys
import cupy
cupy.cuda.set_allocator(None)
leave, held = int(sys.argv[1]), []
block = 1 << 30
while block >= 1 << 20:
    free = cupy.cuda.runtime.memGetInfo()[0]
    if free - block > leave:
        try:
            held.append(cupy.cuda.alloc(block))
            continue
        except (MemoryError, RuntimeError):  # of CuPy, and of CUDA
            pass
    block //= 2
print(cupy.cuda.runtime.memGetInfo()[0], flush=True)
sys.stdin.read()
"""

SMALL = """
import json, sys
import numpy as np
sys.path[:0] = ["tests", "tests/engines"]
import test_card_limits as limits
from triegp import BinaryTreeGPRegressor
X, y = limits.draw(600_000)
said = {}
for engine in ("cuda", "auto"):
    few = {"n_members": 2, "n_candidates": 12, "max_iter": 2, "random_state": 0}
    model = BinaryTreeGPRegressor(engine=engine, **few)
    try:
        model.fit(X, y)
        said[engine] = "host" if model.ensembles_[0].on_host else "card"
    except (MemoryError, RuntimeError) as error:
        said[engine] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@contextlib.contextmanager
def filled(leave):
    """Another process holds all of the card's memory but so many bytes."""
    with subprocess.Popen(
        [sys.executable, "-c", FILL, str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(WAIT)


@pytest.mark.parametrize("leave", [1 << 20, 1 << 29, 900 << 20, 3 << 30])
def test_a_card_that_another_process_has_filled(leave):
    """engine="cuda" says that there is no memory, or trains; "auto" trains somewhere."""
    cupy = pytest.importorskip("cupy")
    cupy.get_default_memory_pool().free_all_blocks()
    with filled(leave) as free:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SMALL],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    print(f"{free / 2**20:.0f} MiB free: {said}")
    assert said["cuda"] == "card" or "memory" in said["cuda"].lower(), said
    assert said["auto"] in ("host", "card"), said


# Several processes

BOTH = """
import sys
sys.path[:0] = ["tests", "tests/engines"]
import numpy as np
import test_card_limits as limits
X, y = limits.draw(20_000)
new = limits.draw(5_000, seed=1)[0]
first = None
for _ in range(int(sys.argv[1])):
    model = limits.mixture(20_000)
    found = limits.ask(model, new)
    model.partial_fit(*limits.draw(500, seed=2))
    found = np.concatenate([found, limits.ask(model, new)])
    assert first is None or np.array_equal(first, found)
    first = found
import hashlib
print(hashlib.sha256(first.tobytes()).hexdigest())
"""


def test_processes_that_share_a_card():
    def start(n):
        command = [sys.executable, "-W", "ignore", "-c", BOTH, str(n)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    (alone,) = (one.communicate(timeout=WAIT)[0] for one in [start(1)])
    together = [start(3) for _ in range(3)]
    found = [one.communicate(timeout=WAIT)[0] for one in together]
    assert [one.returncode for one in together] == [0, 0, 0]
    assert alone.strip()
    assert set(found) == {alone}


# Streams


@pytest.fixture(scope="module")
def models():
    return {"on the card": mixture(), "on the host": mixture().set_params(engine="cpu")}


@pytest.mark.parametrize("place", ["on the card", "on the host"])
def test_tensors_of_another_stream(models, place):
    """X is written by a stream that has a lot to do before; results are used on that stream."""
    torch = pytest.importorskip("torch")
    model, cpu = models[place], draw(3_000, seed=1)[0]
    expected = ask(model, cpu)
    stream, ready = torch.cuda.Stream(), torch.as_tensor(cpu, device="cuda")
    torch.cuda.synchronize()
    for _ in range(5):
        with torch.cuda.stream(stream):
            X = torch.full_like(ready, 0.5)
            torch.cuda._sleep(200_000_000)  # about a tenth of a second
            X.copy_(ready)
            mean, std = model.predict(X, return_std=True)
            interval = model.predict_interval(X)
            X.fill_(0.25)
            torch.cuda._sleep(50_000_000)
            found = torch.column_stack([mean, std, interval]).clone()
            del mean, std, interval
        model.predict(draw(3_000, seed=2)[0])  # may use the memory of what was deleted
        stream.synchronize()
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", ["on the card", "on the host"])
def test_cupy_arrays_of_another_stream(models, place):
    cupy = pytest.importorskip("cupy")
    model, cpu = models[place], draw(3_000, seed=1)[0]
    expected, ready = ask(model, cpu), cupy.asarray(cpu)
    slow = cupy.RawKernel(
        'extern "C" __global__ void wait(long long n) {'
        " long long end = clock64() + n; while (clock64() < end) {} }",
        "wait",
    )
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(5):
        with stream:
            X = cupy.full_like(ready, 0.5)
            slow((1,), (1,), (np.int64(200_000_000),))
            X[...] = ready
            mean, std = model.predict(X, return_std=True)
            interval = model.predict_interval(X)
            X.fill(0.25)
            found = cupy.column_stack([mean, std, interval]).copy()
            del mean, std, interval
        model.predict(draw(3_000, seed=2)[0])
        stream.synchronize()
        np.testing.assert_allclose(found.get(), expected, rtol=1e-12, atol=1e-12)


def test_a_fit_on_another_stream():
    """Its threads work on the default stream, after what the other stream was given."""
    cupy = pytest.importorskip("cupy")
    X, y = draw(60_000)
    expected = mixture(60_000)
    with cupy.cuda.Stream(non_blocking=True):
        there = cupy.asarray(X), cupy.asarray(y)
        model = mixture(100).set_params(**expected.get_params()).fit(*there)
    new = draw(1_000, seed=1)[0]
    np.testing.assert_array_equal(ask(model, new), ask(expected, new))


def test_threads_with_streams_of_their_own():
    """Eight threads ask, each on its stream, while another adds rows: before or after."""
    cupy = pytest.importorskip("cupy")
    new = draw(500, seed=1)[0]
    batches = [draw(200, seed=10 + k) for k in range(6)]
    replay, legal = mixture(), []
    legal.append(ask(replay, new))
    for X, y in batches:
        replay.partial_fit(X[2:], y[2:])
        legal.append(ask(replay, new))
    model, done, wrong = mixture(), threading.Event(), []

    def read():
        at = 0
        with cupy.cuda.Stream(non_blocking=True):
            rows = cupy.asarray(new)
            while not done.is_set():
                mean, std = model.predict(rows, return_std=True)
                found = np.column_stack([mean.get(), std.get()])
                fits = [k for k in range(at, len(legal)) if close(found, legal[k][:, :2])]
                if not fits:
                    wrong.append(np.abs(found - legal[at][:, :2]).max())
                    return
                at = fits[0]

    def close(one, two):
        return np.allclose(one, two, rtol=1e-9, atol=1e-9)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for X, y in batches:
        model.partial_fit(X[2:], y[2:])
        ask(model, new)
    done.set()
    for thread in threads:
        thread.join(WAIT)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)
    np.testing.assert_allclose(ask(model, new), legal[-1], rtol=1e-9, atol=1e-9)
