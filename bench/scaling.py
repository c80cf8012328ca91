"""Time and memory against n, on synthetic rows of 8 features: `python -m bench scaling`.

One JSON per (method, n) in bench/results/scaling, each measured in a process of its own. A method
that ran out of time or memory at some n is not tried at more rows.
"""

import json
import subprocess
import sys
import time

import numpy as np

from bench.cells import LIMIT, measure_task
from bench.measure import RESULTS, machine, seconds, slope
from bench.methods import METHODS, Task, missing
from bench.plan import PEERS

FOLDER = RESULTS / "scaling"
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
N_FEATURES = 8
NEW_ROWS = 10_000
EVALUATION = "evaluation"  # one likelihood with gradient, new keys and sort included
KEPT = (
    "rmse",
    "fit_seconds",
    "predict_seconds_per_million",
    "memory_before",
    "memory_peak",
    "gpu_memory_peak",
    "machine",
)
ALL = (EVALUATION, "triegp", *PEERS)


def synthetic(n, seed=0):
    """Rows, and targets from a smooth function of three features with noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, N_FEATURES))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n)


def measure_evaluation(n):
    """One likelihood with gradient at a new order, on all cores."""
    from triegp import BitEncoder
    from triegp.tree import BitOrder, build_trie, likelihood, random_bits, uniform_weights

    X, y = synthetic(n)
    codes = BitEncoder(precision=8).fit(X).encode(X)
    rng = np.random.default_rng(0)
    weights = uniform_weights(codes.n_bits, last=0.5)

    def evaluate():
        order = BitOrder.from_weights(random_bits(codes.precision, rng), weights)
        likelihood(build_trie(codes, order), order, y, 1e-3, gradient=True)

    evaluate()
    return {"method": EVALUATION, "n": n, "status": "ok", "fit_seconds": seconds(evaluate)}


def measure_fit(method, n):
    """Fit and prediction of a method, as in a cell."""
    new, valid = synthetic(NEW_ROWS, seed=1), synthetic(max(n // 5, 200), seed=2)
    task = Task(*synthetic(n), *valid, 0)
    (cell,) = measure_task(task, *new, "synthetic", method, "synthetic")
    return {"method": method, "n": n, "status": "ok", **{name: cell[name] for name in KEPT}}


def run(method, n, limit):
    """The measurement, made if it is not stored or timed out under a lower limit."""
    path = FOLDER / f"{method}-{n}.json"
    if path.exists():
        row = json.loads(path.read_text())
        if row.get("limit_s", limit) >= limit:
            return row
    command = [sys.executable, "-m", "bench.scaling", method, str(n)]
    facts = {"method": method, "n": n}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
        else:
            note = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            found = {**facts, "status": "error", "note": note}
    except subprocess.TimeoutExpired:
        found = {**facts, "status": "time-out", "limit_s": limit}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return found


def read():
    """{method: measurements by rising n}."""
    found = {}
    for path in FOLDER.glob("*.json"):
        row = json.loads(path.read_text())
        found.setdefault(row["method"], []).append(row)
    return {name: sorted(rows, key=lambda row: row["n"]) for name, rows in found.items()}


def growth(rows, key="fit_seconds", least=10_000):
    """Slope of log seconds over log n from `least` rows on, or None if there are too few."""
    good = [row for row in rows if row["status"] == "ok" and row["n"] >= least]
    if len(good) < 2:
        return None
    return slope([row["n"] for row in good], [row[key] for row in good])


def main(limit=LIMIT, methods=ALL):
    for method in methods:
        if method != EVALUATION and missing(METHODS[method]):
            print(f"{method}: needs {', '.join(missing(METHODS[method]))}")
            continue
        for n in SIZES:
            start = time.perf_counter()
            row = run(method, n, limit)
            spent = time.perf_counter() - start
            print(method, n, row["status"], f"{row.get('fit_seconds', spent):.3f} s", flush=True)
            if row["status"] != "ok":
                break


if __name__ == "__main__":
    if len(sys.argv) == 3:
        name, size = sys.argv[1], int(sys.argv[2])
        made = measure_evaluation(size) if name == EVALUATION else measure_fit(name, size)
        print(json.dumps(made))
    else:
        main()
