"""Pace of the flagship beside LightGBM's, by number of rows: `python -m bench pace`.

An additive function of seven of eight uniform features, with a jump and noise of deviation 0.2.
Each number of rows has a process of its own, in which fits of both alternate. Writes
bench/results/pace.json; `python -m bench pace --sizes N` measures some sizes again.
"""

import json
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from bench.measure import RESULTS, in_fresh_process, machine, peak_bytes

PATH = RESULTS / "pace.json"
SIZES = (300, 1_000, 10_000, 100_000, 1_000_000)
REPEATS, SINGLE_ROWS = 3, 200
LARGE = 1_000_000  # from so many rows on, there is one fit
N_FEATURES, NOISE = 8, 0.2
BLOCK = 10_000
BOOSTING = {"n_estimators": 500, "learning_rate": 0.05, "num_leaves": 63}


def function(X):
    """The truth."""
    waves = np.sin(6 * X[:, 0]) + np.cos(4 * X[:, 3]) + 0.5 * np.sin(10 * X[:, 6])
    return waves + X[:, 1] ** 2 + (X[:, 2] > 0.5) + X[:, 4] + np.sqrt(X[:, 5])


def draw(n, seed):
    """Rows and noisy targets."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, N_FEATURES))
    return X, function(X) + NOISE * rng.standard_normal(n)


def timed(work, *arguments):
    """Wall-clock and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu


def errors(*models):
    """RMSE of each against the truth."""
    X = draw(BLOCK, 2)[0]
    return [float(np.sqrt(np.mean((model.predict(X) - function(X)) ** 2))) for model in models]


def measure(n):
    """Fits by turns, predictions of the last one."""
    from lightgbm import LGBMRegressor

    from triegp import TrieGPRegressor

    cores = len(os.sched_getaffinity(0))
    compiled = TrieGPRegressor(random_state=0).fit(*draw(2_500, 9))
    compiled.predict(draw(10, 8)[0], return_std=True)
    X, y = draw(n, 0)
    ours, theirs, missed = [], [], []
    before = peak_bytes()
    last = (REPEATS if n < LARGE else 1) - 1
    for seed in range(last + 1):
        Path("/proc/self/clear_refs").write_text("5")  # forget the highest size so far
        model = TrieGPRegressor(random_state=seed)
        ours.append((*timed(model.fit, X, y), peak_bytes()))
        boosting = LGBMRegressor(**BOOSTING, n_jobs=cores, verbosity=-1)
        theirs.append(timed(boosting.fit, X, y))
        if seed < last:  # after the last fit, predictions are timed before anything else is asked
            missed.append(errors(model, boosting))
    wall, cpu, memory = np.median(ours, axis=0)
    their_wall, their_cpu = np.median(theirs, axis=0)
    found = {"n": n, "fit": wall, "fit_cpu": cpu, "memory": memory, "memory_before": before}
    found |= {"lightgbm": their_wall, "lightgbm_cpu": their_cpu}
    blocks = np.split(draw(4 * BLOCK, 1)[0], 4)
    for name, std, pair in (("mean", False, blocks[:2]), ("std", True, blocks[2:])):
        predict = partial(model.predict, return_std=std)
        found[f"first_{name}"], found[name] = (1e6 * timed(predict, X)[1] / BLOCK for X in pair)
        single = [timed(predict, row[None])[0] for row in pair[0][:SINGLE_ROWS]]
        found[f"one_{name}"] = 1e3 * float(np.median(single))
    missed.append(errors(model, boosting))
    found["rmse"], found["lightgbm_rmse"] = np.mean(missed, axis=0)
    return {key: value if key == "n" else float(value) for key, value in found.items()}


def main(sizes=SIZES):
    stored = json.loads(PATH.read_text())["rows"] if PATH.exists() else []
    rows = {row["n"]: row for row in stored}
    for n in sizes:
        rows[n] = in_fresh_process("bench.pace", n)
        print(json.dumps(rows[n]), flush=True)
        ordered = [rows[size] for size in sorted(rows)]
        result = {"machine": machine(("lightgbm",)), "rows": ordered}
        PATH.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of rows outside the box, and names of features
    print(json.dumps(measure(int(sys.argv[1]))))
