"""Seconds per function drawn: a mixture fitted to many rows, evaluated at many more.

python -m bench.draws [n_train] [n_new]
"""

import sys
import time

import numpy as np

from triegp import BinaryTreeGPRegressor


def clock(work):
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def main(n_train=100_000, n_new=1_000_000):
    rng = np.random.default_rng(0)
    X = rng.random((n_train, 8))
    y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2] * X[:, 3] + 0.1 * rng.standard_normal(n_train)
    model, wall, cpu = clock(lambda: BinaryTreeGPRegressor(random_state=0).fit(X, y))
    print(f"fit of {n_train:,} rows: {wall:.1f} s, {cpu:.1f} s of CPU")
    new = rng.random((n_new, 8))
    few = new[: 1 << 10]
    model.sample_functions(17)(few), model.predict(few, return_std=True)  # compiles
    _, wall, cpu = clock(lambda: model.predict(new, return_std=True, latent=True))
    print(f"mean and deviation of {n_new:,} rows: {wall:.1f} s, {cpu:.1f} s of CPU")
    for k in (1, 16, 64):
        draws = model.sample_functions(k)
        _, wall, cpu = clock(lambda draws=draws: draws(new))
        print(f"{k} functions at {n_new:,} rows: {wall:.1f} s, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
