"""One cell of the comparison: a method on a data set with a seed, in a process of its own.

A cell is one JSON in bench/results/cells/PART/DATA/METHOD-SEED.json. A cell that is stored is
not run again, so an interrupted run resumes where it stopped.
"""

import json
import subprocess
import sys
import time
import traceback

import numpy as np

from bench.data import DataError, load
from bench.distributions import score
from bench.measure import RESULTS, machine, peak_bytes, resident_bytes
from bench.methods import METHODS, Task, missing

FOLDER = RESULTS / "cells"
LIMIT = 600.0  # seconds that a cell may take
WARM_ROWS = 200
PREDICTIONS = 3  # of which the median time counts
MANY_ROWS = 100_000  # are predicted once
LONG = 5.0  # seconds; a prediction that takes longer is made once


def path_of(part, data, method, seed):
    """File of a cell."""
    return FOLDER / part / data / f"{method}-{seed}.json"


def read(part, data, method, seeds=(0, 1, 2)):
    """The stored cells, one per seed."""
    paths = [path_of(part, data, method, seed) for seed in seeds]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def run_cell(part, data, method, seed, *, limit=LIMIT, again=False, apart=True):
    """The cell, run if it is not stored; "status" is "ok" or what went wrong.

    If apart, it runs in a process of its own; otherwise it has no time limit and no memory figures.
    """
    path = path_of(part, data, method, seed)
    if path.exists() and not again:
        cell = json.loads(path.read_text())
        if cell.get("limit_s", limit) >= limit:  # a time-out under a lower limit is tried again
            return cell
    names = {"data": data, "method": method, "seed": seed, "part": part}
    absent = missing(METHODS[method])
    if absent:
        return {**names, "status": "missing", "note": f"needs {', '.join(absent)}"}
    found = _run_apart(names, limit) if apart else _measure_here(names)
    for cell in found:
        if cell["status"] == "missing":  # not stored: the module may be installed later
            continue
        own = path_of(part, data, cell["method"], seed)
        if cell["method"] == method or again or not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(json.dumps(cell, indent=1) + "\n")
    return next(cell for cell in found if cell["method"] == method)


def _measure_here(names):
    """Result of `measure_cell` in this process."""
    return measure_cell(*(names[key] for key in ("part", "data", "method", "seed")), apart=False)


def _predictors(fitted, method):
    """{name: new rows -> prediction}."""
    return fitted if isinstance(fitted, dict) else {method: fitted}


def _run_apart(names, limit):
    """What `python -m bench.cells` prints last, or how it failed."""
    part, data, method, seed = (str(names[key]) for key in ("part", "data", "method", "seed"))
    command = [sys.executable, "-m", "bench.cells", part, data, method, seed]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return [{**names, "status": "time-out", "limit_s": limit, "machine": machine()}]
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    # Killed, most likely for lack of memory.
    note = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return [{**names, "status": "error", "note": note, "machine": machine()}]


def measure_cell(part, data, method, seed, *, apart=True):
    """Fit, predict and score, in this process; one result per prediction of the method.

    If not apart, the process may hold memory of other cells, so memory is not reported.
    """
    train, valid, *new = load(data, seed, "train", "valid", *(["test"] if part == "test" else []))
    X_new, y_new = new[0] if new else valid
    task = Task(*train, *valid, seed)
    return measure_task(task, X_new, y_new, data, method, part, apart=apart)


def measure_task(task, X_new, y_new, data, method, part, *, apart=True):
    """Results of a method on rows that are loaded."""
    chosen, unit = METHODS[method], task.y.std(ddof=1)
    task = task.thinned(chosen.most_rows)
    if chosen.warms:  # compiling is neither fitting nor predicting
        few = slice(WARM_ROWS)
        small = Task(task.X[few], task.y[few], task.X_valid[few], task.y_valid[few], 0)
        for predict in _predictors(chosen.fit(small), method).values():
            predict(X_new[few])
    _forget_gpu_peak()
    before = resident_bytes()
    start = time.perf_counter()
    fitted = chosen.fit(task)
    seconds = time.perf_counter() - start
    results = []
    for name, predict in _predictors(fitted, method).items():
        predict_seconds = []
        for _ in range(PREDICTIONS if len(y_new) < MANY_ROWS else 1):
            start = time.perf_counter()
            predicted = predict(X_new)
            predict_seconds.append(time.perf_counter() - start)
            if predict_seconds[0] > LONG:
                break
        peak = peak_bytes()  # before scoring
        results.append(
            {
                "data": data,
                "method": name,
                "seed": task.seed,
                "part": part,
                "status": "ok",
                **score(predicted, y_new, unit),
                "fit_seconds": seconds,
                "predict_seconds_per_million": float(np.median(predict_seconds)) / len(y_new) * 1e6,
                "memory_before": before if apart else None,
                "memory_peak": peak if apart else None,
                "gpu_memory_peak": _gpu_peak(),
                "n_train": len(task.y),
                "n_features": task.X.shape[1],
                "machine": machine(chosen.needs),
            }
        )
    return results


def _forget_gpu_peak():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _gpu_peak():
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_allocated())


def mean_error(values):
    """Mean and two standard errors of the values that are not None."""
    values = np.array([v for v in values if v is not None], float)
    if not values.size:
        return None
    error = 2 * values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return float(values.mean()), float(error)


def main():
    part, data, method, seed = sys.argv[1:]
    try:
        print(json.dumps(measure_cell(part, data, method, int(seed))))
    except (MemoryError, ValueError, RuntimeError, ArithmeticError) as error:
        traceback.print_exc()
        facts = {"data": data, "method": method, "seed": int(seed), "part": part}
        status = "missing" if isinstance(error, DataError) else "error"
        note = f"{type(error).__name__}: {error}"
        facts |= {"status": status, "note": note, "machine": machine(METHODS[method].needs)}
        print(json.dumps([facts]))


if __name__ == "__main__":
    main()
