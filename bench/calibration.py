"""Coverage of intervals on data of known noise: `python -m bench calibration`.

A cell is a case with an estimator, over all its seeds: one JSON in bench/results/calibration. A
stored cell is not measured again. At the end docs/calibration.md is written from the stored cells.
"""

import json
import time

import numpy as np

from bench.calibration_cases import BY_NAME
from bench.measure import RESULTS, machine
from triegp import metrics

FOLDER = RESULTS / "calibration"
ESTIMATORS = ("B", "F")  # BinaryTreeGPRegressor, TrieGPRegressor
LEVELS = (50, 90, 99)  # per cent
OBSERVATIONS = 2_000  # fresh ones per seed and place
BETWEEN = 20  # inputs of a prediction between two batches
FIFTHS = 5


def new_estimator(name, seed):
    """An estimator with its default settings."""
    from triegp import BinaryTreeGPRegressor, TrieGPRegressor

    kind = {"B": BinaryTreeGPRegressor, "F": TrieGPRegressor}[name]
    return kind(random_state=seed)


def path_of(case, estimator):
    """File of a cell."""
    return FOLDER / f"{case}-{estimator}.json"


def read(case, estimator):
    """A stored cell, or None."""
    path = path_of(case, estimator)
    return json.loads(path.read_text()) if path.exists() else None


def seeds_of(case):
    """Few rows leave more to chance, and cost less."""
    return range(10 if case.n_rows <= 100 else 3 if case.n_rows <= 1_000 else 1)


def run_cell(case, estimator, *, again=False):
    """The cell, measured if it is not stored; "status" is "ok" or "failed"."""
    cell = read(case.name, estimator)
    if cell is not None and not again:
        return cell
    cell = {"case": case.name, "estimator": estimator, "status": "ok", "machine": machine()}
    cell["seeds"] = []
    try:
        for seed in seeds_of(case):
            cell["seeds"].append(measure(case, estimator, seed))
    except (ValueError, RuntimeError, ArithmeticError) as error:
        note = " ".join(str(error).split())
        cell |= {"status": "failed", "note": f"{type(error).__name__}: {note}"}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path_of(case.name, estimator).write_text(json.dumps(cell, indent=1) + "\n")
    return cell


def measure(case, estimator, seed, n_observations=OBSERVATIONS):
    """Fit with one seed, and count the fresh observations in the intervals."""
    rng = np.random.default_rng(seed)
    batches = case.draw(case.truth, rng)
    started = time.perf_counter()
    model = fit(batches, new_estimator(estimator, seed))
    fitted = time.perf_counter()
    new = case.ask(n_observations, rng)
    known = np.concatenate([X for X, _, _ in batches])
    known = rng.permutation(known)[:n_observations]
    both = np.concatenate([new, known])
    intervals = {c: model.predict_interval(both, coverage=c / 100) for c in LEVELS}
    mean, deviation = model.predict(new, return_std=True, latent=True)
    ended = time.perf_counter()
    at_new = {c: ends[: len(new)] for c, ends in intervals.items()}
    at_known = {c: ends[len(new) :] for c, ends in intervals.items()}
    return {
        "seed": seed,
        "n_observations": n_observations,
        "new": coverage(case.truth, new, at_new, n_observations, rng),
        "training": coverage(case.truth, known, at_known, n_observations, rng),
        "by_noise": by_noise(case.truth, new, at_new, n_observations, rng),
        "latent_ms": float(np.square(deviation).mean()),
        "error_ms": float(np.square(mean - case.truth.mean(new)).mean()),
        "fit_seconds": fitted - started,
        "predict_seconds": ended - fitted,
    }


def fit(batches, model):
    """Fit on the first batch and add the others, with a prediction after each."""
    (X, y, weight), *others = batches
    model.fit(X, y, sample_weight=weight)
    for more, targets, _ in others:
        model.predict(X[:BETWEEN], return_std=True)
        model.partial_fit(more, targets)
    return model


def coverage(truth, X, intervals, n_observations, rng):
    """Share of fresh observations in the intervals, by level; every input is observed as often."""
    times = -(-n_observations // len(X))
    y = np.stack([truth.observe(X, rng) for _ in range(times)], axis=1)
    return {
        str(c): metrics.coverage(y.ravel(), np.repeat(ends, times, axis=0))
        for c, ends in intervals.items()
    }


def by_noise(truth, X, intervals, n_observations, rng):
    """Coverage by fifth of the true deviation, or by its values if there are few of them."""
    deviation = truth.deviation(X)
    values = np.unique(deviation)
    if values.size == 1:
        return []
    if values.size <= FIFTHS:
        groups = [np.flatnonzero(deviation == value) for value in values]
    else:
        groups = np.array_split(np.argsort(deviation, kind="stable"), FIFTHS)
    return [
        {
            "deviation": float(deviation[rows].mean()),
            **coverage(
                truth,
                X[rows],
                {c: ends[rows] for c, ends in intervals.items()},
                n_observations,
                rng,
            ),
        }
        for rows in groups
    ]


def mean_coverage(parts):
    """Mean of coverages over seeds, in per cent, by level."""
    return {c: 100 * float(np.mean([part[str(c)] for part in parts])) for c in LEVELS}


def line_of(case, cell):
    """A cell in one line."""
    head = f"{case.name:24s} {cell['estimator']}"
    if cell["status"] != "ok":
        return f"{head} failed: {cell['note']}"
    texts = []
    for place in ("new", "training"):
        found = mean_coverage([seed[place] for seed in cell["seeds"]])
        texts.append(f"{place} " + " ".join(f"{value:5.1f}" for value in found.values()))
    took = sum(seed["fit_seconds"] + seed["predict_seconds"] for seed in cell["seeds"])
    return f"{head} {'  '.join(texts)}  {len(cell['seeds'])} fits {took:.0f} s"


def main(names=None, estimators=ESTIMATORS, again=False):
    """Measure the cases, one line each, and write the page."""
    from bench import calibration_page

    for name in names or BY_NAME:
        for estimator in estimators:
            cell = run_cell(BY_NAME[name], estimator, again=again)
            print(line_of(BY_NAME[name], cell), flush=True)
    calibration_page.main()
