"""Fits of the flagship on a card: `python -m bench.flagship_card`; fills bench/results/card.

The seven data sets of the paper, seed 0, defaults; the wall-clock time of a fit, compiled before,
beside the CPU's shortest over the seeds of bench/results/cells. Errors of the means come
first; likelihoods follow, as long as there is time. Predictions run on the host's CPU.
"""

import argparse
import cProfile
import json
import pstats
import time

from sklearn.metrics import root_mean_squared_error

from bench.card import FOLDER, card_machine
from bench.cells import read
from bench.data import SEVEN, load
from bench.distributions import score
from triegp import TrieGPRegressor

METHOD = "triegp-flagship"
PATH = FOLDER / "flagship_fits.json"
WARM_ROWS = 4_000  # more than are solved exactly
LIMIT = 10.0  # times as fast as two cores


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def make_model(**parameters):
    return TrieGPRegressor(random_state=0, keep_rows=False, engine="cuda", **parameters)


def warm_up(name):
    """Compile everything: a short fit."""
    ((X, y),) = load(name, 0, "train")
    few = slice(WARM_ROWS)
    seconds, model = timed(lambda: make_model(max_iter=2).fit(X[few], y[few]))
    print(f"compiled, {seconds:.1f} s", flush=True)
    seconds, _ = timed(lambda: model.predict(X[:10], return_std=True))
    print(f"and predicts, {seconds:.1f} s", flush=True)


def measure_fit(name, repeats):
    """One row of the table, and the model."""
    (X, y), (X_new, y_new) = load(name, 0, "train", "test")
    model = make_model()
    seconds = [timed(lambda: model.fit(X, y))[0] for _ in range(repeats)]
    cells = [cell for cell in read("test", name, METHOD) if cell["status"] == "ok"]
    cpu = min(cell["fit_seconds"] for cell in cells)
    took, mean = timed(lambda: model.predict(X_new))
    row = {
        "data": name,
        "n": len(y),
        "d": X.shape[1],
        "fit_seconds": min(seconds),
        "all_fit_seconds": seconds,
        "cpu_fit_seconds": cpu,
        "times_as_fast": cpu / min(seconds),
        "limit_times": LIMIT,
        "rmse": float(root_mean_squared_error(y_new, mean) / y.std(ddof=1)),
        "cpu_rmse": cells[0]["rmse"],
        "cpu_nll": cells[0]["nll"],
        "mean_seconds": took,
        "diverged": model.diverged_,
    }
    return row, model


def measure_nll(name, model):
    """Likelihood of the test targets, and the time it took."""
    (_, y), (X_new, y_new) = load(name, 0, "train", "test")
    seconds, got = timed(lambda: model.predict_distribution(X_new))
    found = score(got, y_new, y.std(ddof=1))
    return {"nll": found["nll"], "crps": found["crps"], "variance_seconds": seconds}


def keep(rows):
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = {"machine": card_machine(), "rows": list(rows.values())}
    PATH.write_text(json.dumps(found, indent=1) + "\n")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(SEVEN), choices=SEVEN)
    parser.add_argument("--seconds", type=float, default=150.0, help="for all of it, about")
    parser.add_argument("--repeats", type=int, default=1, help="fits of each, the least counts")
    parser.add_argument("--profile", action="store_true", help="of one more fit, the last")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    left = lambda: options.seconds - (time.perf_counter() - start)  # noqa: E731
    warm_up(options.only[0])
    rows, models = {}, {}
    for name in options.only:
        if left() < 0:
            print(f"no time for {name}", flush=True)
            continue
        rows[name], models[name] = measure_fit(name, options.repeats)
        print(json.dumps(rows[name]), flush=True)
        keep(rows)
    if options.profile:
        profile(options.only[-1])
    for name, model in models.items():
        cells = read("test", name, METHOD)
        likely = 1e-6 * cells[0]["predict_seconds_per_million"] * len(load(name, 0, "test")[0][1])
        if left() < 0.5 * likely:  # the host has more cores than those were measured on
            print(f"no time for the likelihood of {name}", flush=True)
            continue
        rows[name].update(measure_nll(name, model))
        print(name, json.dumps({k: rows[name][k] for k in ("nll", "cpu_nll")}), flush=True)
        keep(rows)
    print(f"{options.seconds - left():.1f} s in all", flush=True)


def profile(name):
    """Where the time of a fit goes, function by function, with what is called."""
    ((X, y),) = load(name, 0, "train")
    profiler = cProfile.Profile()
    profiler.runcall(make_model().fit, X, y)
    for order in ("cumulative", "tottime"):
        pstats.Stats(profiler).sort_stats(order).print_stats(35)


if __name__ == "__main__":
    main()
