"""Milliseconds of a prediction of one row, beside LightGBM in the same run.

    python -m bench.latency [--rows 10000] [--calls 1000]

One thread of Python asks for one row after another; every call has a row of its own. When
`TrieGPRegressor` is asked for a deviation for the first time near some rows, it factorises them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from triegp import BinaryTreeGPRegressor, TrieGPRegressor

N_FEATURES = 8


def make_rows(n_rows: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows with a step, a wave and noise that differs from place to place."""
    X = rng.random((n_rows, N_FEATURES))
    y = 3 * np.sin(6 * X[:, 0]) + (X[:, 2] > 0.5) + (0.1 + X[:, 1]) * rng.standard_normal(n_rows)
    return X, y


def measure(name: str, ask: Callable[[Any], Any], new: Any) -> None:
    """Print the median and the 99th percentile over all rows."""
    for row in new[:20]:
        ask(row[None])
    took = []
    for row in new:
        start = time.perf_counter()
        ask(row[None])
        took.append(time.perf_counter() - start)
    half, most = 1e3 * np.quantile(took, (0.5, 0.99))
    print(f"{name:<42} p50 {half:7.3f} ms   p99 {most:7.3f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, y = make_rows(options.rows, rng)
    new = rng.random((options.calls, N_FEATURES))
    for model in (BinaryTreeGPRegressor(random_state=0), TrieGPRegressor(random_state=0)):
        model.fit(X, y)
        name = type(model).__name__
        with_std = partial(model.predict, return_std=True)
        measure(f"{name}, mean", model.predict, new)
        measure(f"{name}, std, rows asked first", with_std, new)
        measure(f"{name}, std, rows asked again", with_std, new)
        measure(f"{name}, interval", model.predict_interval, new)
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        print("LightGBM is not installed: pip install 'triegp[bench]'")
        return
    boosted = LGBMRegressor(verbose=-1).fit(X, y)
    measure("LightGBM, mean", boosted.predict, new)
    measure("LightGBM, mean, the booster itself", boosted.booster_.predict, new)


if __name__ == "__main__":
    main()
