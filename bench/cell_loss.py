"""What fewer cells cost, and save: `python -m bench.cell_loss DATA ROWS [CELLS ...]`.

DATA is "synthetic" or a data set of bench.data; rows are drawn at random, and so are the 60,000
rows at which models are judged. Prints a line of JSON per model.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import root_mean_squared_error

from bench.data import read
from bench.measure import in_fresh_process, resident_bytes
from bench.scaling import synthetic
from triegp import BinaryTreeGPRegressor, load
from triegp.metrics import nll

NEW_ROWS = 60_000


def draw(data, n_rows):
    """Rows to train on, and rows to judge by; targets are standardised."""
    if data == "synthetic":
        X, y = synthetic(n_rows + NEW_ROWS, seed=7)
    else:
        X, y = read(data)
        y = y.astype(float)
        mixed = np.random.default_rng(0).permutation(len(y))[: n_rows + NEW_ROWS]
        X, y = X[mixed], y[mixed]
    y = (y - y[:n_rows].mean()) / y[:n_rows].std()
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def measure(X, y, new, target, max_cells):
    began = time.process_time()
    model = BinaryTreeGPRegressor(max_cells=max_cells, keep_rows=False, random_state=0).fit(X, y)
    fit = time.process_time() - began
    began = time.process_time()
    found = model.predict_distribution(new)
    predict = time.process_time() - began
    facts = {
        "max_cells": max_cells,
        "largest": max(one.posteriors[0].n_rows for one in model.ensembles_[0].members),
        "members": len(model.ensembles_[0].members),
        "nll": round(nll(target, found), 4),
        "rmse": round(root_mean_squared_error(target, found.mean()), 4),
        "fit_cpu_seconds": round(fit, 1),
        "predict_cpu_seconds_per_million": round(predict / len(new) * 1e6, 1),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tgp"
        model.save(path)
        facts["file_mb"] = round(path.stat().st_size / 1e6, 1)
        facts |= in_fresh_process("bench.cell_loss", "--load", path)
    return facts


def load_file(path):
    """Memory of a model from a file, in a process that has done nothing else."""
    BinaryTreeGPRegressor(n_members=1, n_candidates=1, max_iter=1).fit(*synthetic(1_000))
    before = resident_bytes()
    model = load(path)
    print(json.dumps({"memory_mb": round((resident_bytes() - before) / 1e6)}))
    del model


def main(arguments):
    if arguments[0] == "--load":
        return load_file(arguments[1])
    data, n_rows = arguments[0], int(float(arguments[1]))
    rows = draw(data, n_rows)
    cells = [int(float(one)) for one in arguments[2:]] or [n_rows // k for k in (1, 2, 4, 8, 16)]
    for max_cells in cells:
        print(json.dumps({"data": data, "n": n_rows, **measure(*rows, max_cells)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
