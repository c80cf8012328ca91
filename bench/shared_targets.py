"""Several targets of the flagship, with a model each and with one for all: times and errors.

python -m bench.shared_targets              about ten minutes on two cores
python -m bench.shared_targets --quick      16 trees and 50 steps

Synthetic rows: 6 features, of which targets use four. Related targets are linear combinations of
three functions, with noise of 10 % of their deviation. Unrelated ones each use features of their
own. Everything runs in one process, after kernels are compiled.
"""

import argparse
import json
import time

import numpy as np

from bench.measure import RESULTS, machine
from triegp import TrieGPRegressor

N_ROWS, N_NEW, N_FEATURES = 3_000, 2_000, 6
COUNTS = (1, 4, 10)
SETTINGS = {"quick": {"n_trees": 16, "max_iter": 50}, "default": {}}
PATH = RESULTS / "shared_targets.json"


def related(n_targets, seed=0):
    """Rows and targets that are made of the same three functions."""
    rng = np.random.default_rng(seed)
    X = rng.random((N_ROWS + N_NEW, N_FEATURES))
    parts = np.stack(
        [np.sin(6.0 * X[:, 0]) * X[:, 1], np.where(X[:, 2] > 0.6, 1.0, 0.0), np.square(X[:, 3])],
        axis=1,
    )
    parts = (parts - parts.mean(axis=0)) / parts.std(axis=0)
    return X, with_noise(parts @ rng.standard_normal((3, n_targets)), rng)


def unrelated(n_targets, seed=0):
    """Rows and targets of which each depends on two features of its own, smooth or by steps."""
    rng = np.random.default_rng(seed)
    X = rng.random((N_ROWS + N_NEW, N_FEATURES))
    columns = []
    for t in range(n_targets):
        a, b = X[:, t % N_FEATURES], X[:, (t + 1 + t // N_FEATURES) % N_FEATURES]
        columns.append(np.sin(8.0 * a) + b if t % 2 else np.floor(4.0 * a) * (b > 0.5))
    return X, with_noise(np.stack(columns, axis=1), rng)


def with_noise(f, rng):
    return f / f.std(axis=0) + 0.1 * rng.standard_normal(f.shape)


def measure(X, Y, **options):
    """Seconds of a fit and of predictions with deviations, and nll and rmse at new rows.

    Wall clock and CPU: on a shared machine, the latter are steadier.
    """
    train, new = slice(N_ROWS), slice(N_ROWS, None)
    model = TrieGPRegressor(random_state=0, keep_rows=False, **options)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X[train], Y[train])
    fitted, used = time.perf_counter(), time.process_time()
    mean, _ = model.predict(X[new], return_std=True)
    return {
        "fit": fitted - began,
        "fit_cpu": used - cpu,
        "predict": time.perf_counter() - fitted,
        "predict_cpu": time.process_time() - used,
        "nll": float(-model.log_density(X[new], Y[new]).mean()),
        "rmse": float(np.sqrt(np.mean(np.square(mean - Y[new])))),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="16 trees and 50 steps")
    names = ["quick"] if parser.parse_args().quick else list(SETTINGS)
    X, Y = related(2)
    TrieGPRegressor(n_trees=4, max_iter=2, multi_target="shared").fit(X[:1200], Y[:1200])
    result = json.loads(PATH.read_text()) if PATH.exists() else {}
    result["machine"] = machine()
    for name in names:
        rows = []
        for make in (related, unrelated):
            for k in COUNTS:
                X, Y = make(k)
                for sharing in ("shared", "own"):
                    found = measure(X, Y, multi_target=sharing, **SETTINGS[name])
                    rows.append({"targets": make.__name__, "k": k, "multi_target": sharing} | found)
                    print(name, json.dumps(rows[-1]), flush=True)
        result[name] = rows
    PATH.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
