"""What a fit by Dask costs on a cluster, from costs measured here: `python -m bench.cluster_costs`.

Measures the CPU seconds and bytes of every step on one core of this machine, then adds them up for
more rows and workers than there are here. The assumptions are those of `simulate`.
"""

import json
import pickle
import time

import numpy as np

from bench.scaling import synthetic

PIECE_ROWS = 1_000_000
MEMBERS = 8
MOST_CELLS = 2**22
LATENCY = 0.005  # seconds per task: scheduler, messages, start
BANDWIDTH = 1e9  # bytes per second between two workers
READ = 50e6  # rows of 8 float32 features per second that a worker reads from Parquet, per core


def cpu_seconds(work):
    """CPU seconds of work(), and its result; the second of two runs."""
    for _ in range(2):
        start = time.process_time()
        found = work()
        spent = time.process_time() - start
    return spent, found


def measure():
    """CPU seconds and bytes of the steps, for a piece of a million rows."""
    from sklearn.base import clone

    from triegp import BinaryTreeGPRegressor
    from triegp.encoding.columns import plain_columns
    from triegp.encoding.layout import fit_layout
    from triegp.estimators.whole import Reader, _take, survey_piece
    from triegp.mixture.cells import cell_rows, condition_cells
    from triegp.mixture.whole import join_all, sum_piece
    from triegp.models.pieces import Piece

    X, y = synthetic(PIECE_ROWS)
    other, y_other = synthetic(PIECE_ROWS, seed=1)
    start = time.process_time()
    model = BinaryTreeGPRegressor(n_members=MEMBERS, random_state=0).fit(X[:200_000], y[:200_000])
    learning = time.process_time() - start
    members = model.ensembles_[0].members
    columns = plain_columns(X.shape[1])
    layout, _ = fit_layout(X, columns, y[:, None], None)
    scale = model.target_mean_, model.target_scale_
    reader = Reader(clone(model), columns, layout, (), *scale, (0,))
    low, high = model.encoders_[0].low_, model.encoders_[0].high_
    pieces = [Piece(0, np.clip(A, low, high), b, None) for A, b in ((X, y), (other, y_other))]
    take, _ = cpu_seconds(lambda: _take(pieces[0], clone(model), 1, 0.002))
    look, survey = cpu_seconds(lambda: survey_piece(pieces[0], reader))
    trees = [(one.encoder, one.order) for one in members]
    units = survey.units([0])
    own = [
        cpu_seconds(lambda piece=piece: sum_piece(piece, reader, trees, units, MOST_CELLS))
        for piece in pieces
    ]
    join, both = cpu_seconds(lambda: join_all(own[0][1], own[1][1], MOST_CELLS))
    n_cells = sum(one.n_cells for one in both.cells)

    def condition():
        for (_, order), cells in zip(trees, both.cells, strict=True):
            rows = cell_rows(cells, both.squares, units, unit=1.0, divided=False)
            condition_cells(cells, order, rows, 1e-5, np.float32)

    finish, _ = cpu_seconds(condition)
    return {
        "trees": len(trees),
        "take_per_row": take / PIECE_ROWS,
        "survey_per_row": look / PIECE_ROWS,
        "sum_per_row_and_tree": own[0][0] / PIECE_ROWS / len(trees),
        "join_per_cell": join / n_cells,
        "condition_per_cell": finish / n_cells,
        "bytes_per_cell": len(pickle.dumps(both)) / n_cells,
        "fit_of_200000_rows": learning,
    }


def simulate(costs, n_rows, n_workers, n_cores, *, n_trees=MEMBERS, learning=10.0):
    """Seconds of the stages of a fit.

    Pieces of a million rows are shared equally by all cores, tasks cost LATENCY each at the
    scheduler, one after the other. Cells are joined in a tree: pieces of one worker first, then the
    results of the workers, which travel at BANDWIDTH. Every record is taken to have MOST_CELLS
    cells per tree. Orders are learned from two million rows, in `learning` CPU seconds per tree,
    one tree per core. This process conditions and calibrates.
    """
    cores = n_workers * n_cores
    each = n_rows / cores
    n_pieces = -(-n_rows // PIECE_ROWS)
    cells = MOST_CELLS * n_trees
    latency = LATENCY * n_pieces
    read = each / READ
    on_workers = (n_pieces / cores - 1) * cells * costs["join_per_cell"]
    levels = int(np.ceil(np.log2(cores)))
    between = cells * (costs["join_per_cell"] + costs["bytes_per_cell"] / BANDWIDTH)
    return {
        "sample": read + each * costs["take_per_row"] + latency,
        "orders": learning * np.ceil(n_trees / cores),
        "survey": read + each * costs["survey_per_row"] + latency,
        "cells": read + each * n_trees * costs["sum_per_row_and_tree"] + latency,
        "joins on workers": max(on_workers, 0.0),
        "joins between workers": levels * between,
        "to this process": cells * costs["bytes_per_cell"] / BANDWIDTH,
        "conditioning here": cells * costs["condition_per_cell"],
    }


def main():
    costs = measure()
    print(json.dumps({name: float(f"{value:.3g}") for name, value in costs.items()}))
    for n_rows, n_workers, n_cores in ((10**8, 2, 1), (10**9, 32, 4)):
        stages = simulate(costs, n_rows, n_workers, n_cores)
        shown = {name: round(float(value), 1) for name, value in stages.items()}
        print(n_rows, n_workers, n_cores, json.dumps(shown), round(sum(stages.values())))


if __name__ == "__main__":
    main()
