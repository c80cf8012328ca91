"""Model files and pickles of a mixture, on synthetic rows: `python -m bench.files 100000 1000000`.

A pickle holds the sorted keys of every member. Training
is cut short: it does not change what a row takes. Times are CPU seconds, of all threads together.
"""

import os
import pickle
import sys
import tempfile
import time

import numpy as np

import triegp

N_FEATURES = 10
QUICK = {"n_candidates": 1, "max_iter": 3, "random_state": 0, "keep_rows": False, "engine": "cpu"}
KINDS = {
    "calibrated": {},
    "24 members of equal weight": {"mixture": "softmax", "temperature": 1e9},
}
HEAD = ("rows", "mixture", "members", "file, MB", "pickle, MB", "save", "load", "dumps", "loads")


def synthetic(n, seed=0):
    """Rows, and targets whose noise differs from place to place."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, N_FEATURES))
    noise = 0.2 * (1 + X[:, 3]) * rng.standard_normal(n)
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + noise


def cpu_seconds(work):
    """Result of work(), and the processor time that it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def measure(n, kind):
    """One row of the table."""
    model = triegp.BinaryTreeGPRegressor(**QUICK, **KINDS[kind]).fit(*synthetic(n))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        _, saved = cpu_seconds(lambda: model.save(path))
        size = os.path.getsize(path)
        dumped, dumps = cpu_seconds(lambda: pickle.dumps(model))
        n_members = len(model.ensembles_[0].members)
        new, _ = synthetic(1000, seed=1)
        expected = model.predict(new)
        _, loads = cpu_seconds(lambda: pickle.loads(dumped))
        loaded, load = cpu_seconds(lambda: triegp.load(path))
        assert (loaded.predict(new) == expected).all()
    sizes = (f"{size / 1e6:.3g}", f"{len(dumped) / 1e6:.3g}")
    times = (f"{seconds:.3g}" for seconds in (saved, load, dumps, loads))
    return f"{n:,}", kind, n_members, *sizes, *times


def main():
    print("|", " | ".join(HEAD), "|")
    print("|---" * len(HEAD) + "|")
    measure(3000, "calibrated")  # compiles
    for n in map(int, sys.argv[1:]):
        for kind in KINDS:
            print("|", " | ".join(map(str, measure(n, kind))), "|", flush=True)


if __name__ == "__main__":
    main()
