"""Times of the flagship: fits by number of rows, means and deviations of new rows.

python -m bench.flagship_times    several minutes; writes bench/results/flagship_times.json

Fits are of a part of houseelectric_2007h1 and of all its 256,869 rows, test part included: they are
for the time alone.
"""

import json
import time

import numpy as np

from bench.data import load
from bench.measure import RESULTS, machine, slope
from triegp import TrieGPRegressor

DATA = "houseelectric_2007h1"
SIZES = (10_000, None)
NEW_ROWS, FEWER_ROWS = 100_000, 10_000
PATH = RESULTS / "flagship_times.json"


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def shortest(work, repeats=3):
    """Seconds of the shortest of some runs."""
    return min(timed(work)[0] for _ in range(repeats))


def growth():
    """Fit seconds of parts of the data, and of all of it."""
    parts = load(DATA, 0, "train", "valid", "test")
    X, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    rng = np.random.default_rng(0)
    mixed = rng.permutation(len(y))
    rows = []
    for size in SIZES:
        some = mixed[:size]
        model = TrieGPRegressor(random_state=0, keep_rows=False)
        seconds, _ = timed(lambda X=X[some], y=y[some], model=model: model.fit(X, y))
        residual = model.forests_[0].model.residual
        rows.append({"n": len(some), "fit": seconds, "residual": residual})
        print(json.dumps(rows[-1]), flush=True)
    return {"rows": rows, "slope": slope([r["n"] for r in rows], [r["fit"] for r in rows])}


def main():
    (X, y), (X_new, _) = load("kin40k", 0, "train", "test")
    few = slice(10_000)
    small = TrieGPRegressor(random_state=0, keep_rows=False)
    small.fit(X[:500], y[:500]).predict(X[:10], return_std=True)  # compiled now
    at_10000, _ = timed(lambda: small.fit(X[few], y[few]))
    repeated = np.tile(X_new, (-(-NEW_ROWS // len(X_new)), 1))[:NEW_ROWS]
    repeated = repeated + 1e-3 * np.random.default_rng(0).standard_normal(repeated.shape)
    small.predict(repeated[:100])
    mean = shortest(lambda: small.predict(repeated))
    fewer = repeated[:FEWER_ROWS]
    first, _ = timed(lambda: small.predict(fewer, return_std=True))  # blocks are computed now
    result = {
        "machine": machine(),
        "kin40k_10000_fit": at_10000,
        "means_100000": mean,
        "first_deviations_10000": first,
        "deviations_10000": shortest(lambda: small.predict(fewer, return_std=True)),
        "one_row": shortest(lambda: small.predict(repeated[:1], return_std=True), 20),
    }
    print(json.dumps(result), flush=True)
    result["growth"] = growth()
    PATH.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["growth"]))


if __name__ == "__main__":
    main()
