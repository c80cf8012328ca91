"""Times of the forest: fits by number of rows, and means of many rows.

python -m bench.forest_times    about 10 minutes; writes bench/results/forest_times.json

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
NEW_ROWS = 100_000


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


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
    mean = min(timed(lambda: small.predict(repeated))[0] for _ in range(3))
    print(json.dumps({"kin40k, 10,000 rows, fit": at_10000, "100,000 means": mean}), flush=True)
    result = {
        "machine": machine(),
        "n_trees": small.n_trees,
        "kin40k_10000_fit": at_10000,
        "means_100000": mean,
        "growth": growth(),
    }
    (RESULTS / "forest_times.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["growth"]))


if __name__ == "__main__":
    main()
