"""Times of a served model: start, load, first answer, single rows, batches, threads.

python -m bench.serving [N_ROWS ...]     minutes; writes nothing, prints a table

A start is a new Python process that imports triegp, loads a model file and predicts one row.
Kernels that were compiled before are read from numba's cache; "compiled anew" is with an empty one.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import triegp

N_FEATURES = 10
N_CALLS = 300
N_BATCH = 1_000
START = """
import sys, time
begin = time.perf_counter()
import triegp
model = triegp.load(sys.argv[1])
loaded = time.perf_counter() - begin
model.predict([[0.5] * 10], return_std=True)
print(loaded, time.perf_counter() - begin)
"""


def make_rows(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, N_FEATURES))
    X[:2] = [[0.0], [1.0]]  # so that no other row lies outside the training box
    return X, np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n_rows)


def start(path, cache):
    """Seconds to load and to the first answer, and of the whole process."""
    begin = time.perf_counter()
    found = subprocess.run(
        [sys.executable, "-c", START, str(path)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, answered = map(float, found.stdout.split())
    return loaded, answered, time.perf_counter() - begin


def single(call, X):
    """Median and 99th percentile of the milliseconds of one row."""
    call(X[:1])
    times = []
    for i in range(N_CALLS):
        row = X[i : i + 1]
        begin = time.perf_counter()
        call(row)
        times.append(1e3 * (time.perf_counter() - begin))
    return np.quantile(times, [0.5, 0.99])


def from_threads(call, X, n_threads):
    """Single rows per second, asked by several threads of one model."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda i: call(X[i : i + 1]), range(N_CALLS)))
    return N_CALLS / (time.perf_counter() - begin)


def measure(model, folder):
    """Print the times of a fitted model."""
    X, _ = make_rows(2 * N_BATCH, seed=1)
    path = Path(folder) / "model.triegp"
    model.save(path)
    print(f"  file {path.stat().st_size / 1e6:.2f} MB")
    cache = Path(folder) / "numba"
    for name in ("compiled anew", "compiled before"):
        loaded, answered, whole = start(path, cache)
        print(f"  start, {name}: loaded {loaded:.2f} s, answered {answered:.2f}, all {whole:.2f}")
    calls = {
        "mean": model.predict,
        "mean and deviation": lambda rows: model.predict(rows, return_std=True),
        "90 % interval": model.predict_interval,
    }
    for name, call in calls.items():
        median, late = single(call, X)
        begin = time.perf_counter()
        call(X[:N_BATCH])
        batch = time.perf_counter() - begin
        print(
            f"  {name}: {median:.2f} ms per single row, 99 % within {late:.2f}; "
            f"{1e3 * batch:.0f} ms per {N_BATCH}; "
            f"{from_threads(call, X, 1):.0f} and {from_threads(call, X, 4):.0f} rows/s "
            "by 1 and 4 threads"
        )


def main(sizes):
    for n_rows in sizes:
        X, y = make_rows(n_rows)
        for kind in (triegp.BinaryTreeGPRegressor, triegp.TrieGPRegressor):
            model = kind(random_state=0).fit(X, y)
            print(f"{kind.__name__}, {n_rows:,} rows of {N_FEATURES} features", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                measure(model, folder)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [10_000])
