"""Streams: the cost of one more row, and a million rows in random batches against one batch.

    python -m bench.streams                  # one more row at 10^5 and 10^6 rows, then the million
    python -m bench.streams --part rows      # only the first table
    python -m bench.streams --part forget    # one more row of models that forget, at 10^5 rows
    python -m bench.streams --part memory    # bytes per row of 20,000 single rows

One more row is `partial_fit` of one row, then mean and deviation of another. "inserted" asks for
`n_rows_` in between, which inserts the row into every tree in O(n), as every prediction did before
mixtures looked ahead to waiting rows. Times are CPU milliseconds of this process, all threads.

Models that forget get an eighth of their rows once more, one by one: two steps of a window, ten of
a half life. The mean is that of all calls, so it includes the steps.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.measure import in_fresh_process, machine, resident_bytes
from triegp import BinaryTreeGPRegressor

N_FEATURES = 4
SETTINGS = {"n_candidates": 4, "max_iter": 5, "refit": False, "random_state": 0, "engine": "cpu"}
LARGEST_BATCH = 50_000
N_FIRST, N_ALL, N_ASKED = 100_000, 1_000_000, 5_000


def make_rows(n_rows: int, seed: int) -> tuple[Any, Any]:
    """Rows with a wave, an interaction, and noise that differs from place to place."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, N_FEATURES))
    X[:2] = np.array([[0.0], [1.0]])  # nothing later lies outside the box
    noise = (0.05 + 0.3 * X[:, 3]) * rng.standard_normal(n_rows)
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + noise


def fit(n_rows: int) -> BinaryTreeGPRegressor:
    """A default mixture with little training: the parameters stay as they are."""
    return BinaryTreeGPRegressor(**SETTINGS).fit(*make_rows(n_rows, 0))


def cpu_ms(work: Callable[[int], Any], n_calls: int) -> np.ndarray:
    """CPU milliseconds of work(i), (n_calls,)."""
    took = np.empty(n_calls)
    for i in range(n_calls):
        start = time.process_time()
        work(i)
        took[i] = 1e3 * (time.process_time() - start)
    return took


def one_more_row(n_rows: int, n_calls: int) -> None:
    """Print the cost of a row that is inserted, and of one that is not."""
    model, (X, y) = fit(n_rows), make_rows(2 * n_calls, 1)

    def add(i: int, inserted: bool) -> None:
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        if inserted:
            _ = model.n_rows_
        model.predict(X[n_calls + i : n_calls + i + 1], return_std=True)

    add(0, True)  # compiled, and in the cache
    add(0, False)
    members = len(model.ensembles_[0].members)
    for name, inserted, n in (("inserted", True, 10), ("along paths", False, n_calls)):
        took = cpu_ms(lambda i, inserted=inserted: add(i, inserted), n)
        half, most = np.quantile(took, (0.5, 0.99))
        print(f"n = {n_rows:9,}  {members} trees  {name:<12} median {half:9.2f}  p99 {most:9.2f}")
    _ = model.n_rows_
    waits = n_rows // 64
    more = make_rows(waits, 2)
    for first in range(0, waits, 256):  # one question for 256 rows
        model.partial_fit(*(part[first : first + 256] for part in more))
        model.predict(X[:1])
    start = time.process_time()
    _ = model.n_rows_
    took = 1e3 * (time.process_time() - start)
    print(
        f"n = {n_rows:9,}  inserting {waits:,} rows: {took:.0f} in all, {took / waits:.2f} per row"
    )


def one_more_row_forgetting(n_rows: int) -> None:
    """Print the cost of a row of models that forget nothing, rows of a window, or all slowly."""
    X, y = make_rows(n_rows + n_rows // 8, 0)
    for name, options in (
        ("nothing forgotten", {}),
        (f"window {n_rows:,}", {"window": n_rows}),
        (f"half life {n_rows // 10:,}", {"half_life": n_rows // 10}),
    ):
        model = BinaryTreeGPRegressor(**SETTINGS, **options).fit(X[:n_rows], y[:n_rows])
        members = len(model.ensembles_[0].members)

        def add(i: int, model: BinaryTreeGPRegressor = model) -> None:
            model.partial_fit(X[i : i + 1], y[i : i + 1])
            model.predict(X[i - 1 : i], return_std=True)

        add(2)
        took = cpu_ms(lambda k, add=add: add(n_rows + k), n_rows // 8)
        half, most = np.quantile(took, 0.5), took.max()
        print(
            f"n = {n_rows:9,}  {members} trees  {name:<18} mean {took.mean():6.2f}  "
            f"median {half:6.2f}  largest {most:9.1f}"
        )


def memory_of_stream(n_rows: int, n_added: int) -> None:
    """Print the bytes that Python holds more, per row that was added by itself and predicted."""
    model, (X, y) = fit(n_rows), make_rows(n_added, 1)
    before = 0
    for i in range(n_added):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        model.predict(X[i : i + 1], return_std=True)
        if i == 200:  # compiled, and in the cache
            _ = model.n_rows_
            gc.collect()
            tracemalloc.start()
        elif i > 200 and (i - 200) % ((n_added - 201) // 4) == 0:
            _ = model.n_rows_  # nothing waits
            gc.collect()
            held = tracemalloc.get_traced_memory()[0]
            print(f"{i - 200:7,} rows added: {held / (i - 200):6.0f} bytes per row", end="")
            print(f", {(held - before) / 1e6:6.2f} MB more, garbage {len(gc.garbage)}")
            before = held
    tracemalloc.stop()


def stream_all(how: str) -> None:
    """Print predictions and memory, as JSON, after a million rows in one batch or in many."""
    model, (X, y) = fit(N_FIRST), make_rows(N_ALL, 3)
    rng = np.random.default_rng(4)
    first, n_batches = N_FIRST, 0
    while first < N_ALL:
        size = int(np.exp(rng.uniform(0.0, np.log(LARGEST_BATCH)))) if how == "many" else N_ALL
        last = min(first + size, N_ALL)
        model.partial_fit(X[first:last], y[first:last])
        n_batches += 1
        if how == "many":
            model.predict(X[rng.integers(N_ALL, size=int(rng.integers(1, 100)))], return_std=True)
        first = last
    mean, std = model.predict(make_rows(N_ASKED, 5)[0], return_std=True)
    assert model.n_rows_ == N_ALL
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps is not the model's
    told = {"batches": n_batches, "bytes": resident_bytes(), "y": float(y.std())}
    print(json.dumps(told | {"mean": mean.tolist(), "std": std.tolist()}))


def compare() -> None:
    """Print how far a million rows in random batches are from one batch."""
    one, many = (in_fresh_process("bench.streams", "--part", how) for how in ("one", "many"))
    means, stds = (np.array([part[name] for part in (one, many)]) for name in ("mean", "std"))
    apart = np.abs(means[1] - means[0]).max() / one["y"], np.abs(stds[1] / stds[0] - 1.0).max()
    print(f"{N_ALL:,} rows, {many['batches']} batches after {N_FIRST:,}: means differ by at most")
    print(f"{apart[0]:.1e} deviations of y, deviations by {apart[1]:.1e} of themselves")
    sizes = [part["bytes"] / 2**30 for part in (one, many)]
    print(f"resident memory: {sizes[0]:.2f} GiB in one batch, {sizes[1]:.2f} GiB in many")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["rows", "forget", "memory", "million", "one", "many"]
    parser.add_argument("--part", choices=parts)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--calls", type=int, default=1_000)
    options = parser.parse_args()
    if options.part in ("one", "many"):
        stream_all(options.part)
        return
    print(json.dumps(machine()))
    for n_rows in options.rows if options.part in (None, "rows") else ():
        one_more_row(n_rows, options.calls)
    if options.part in (None, "forget"):
        one_more_row_forgetting(min(options.rows))
    if options.part in (None, "memory"):
        memory_of_stream(2_000, 20_001)
    if options.part in (None, "million"):
        compare()


if __name__ == "__main__":
    main()
