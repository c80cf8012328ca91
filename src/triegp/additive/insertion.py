"""Adding rows to a conditioned forest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import SOLVED_NOISE, make_smooth, solve_targets
from triegp.additive.exact import is_exact
from triegp.additive.forest import Forest
from triegp.additive.model import ForestModel
from triegp.additive.nearby import Nearby, insert_nearby, nearby_weights
from triegp.additive.points import Points, forest_mean, new_keys, read_points
from triegp.additive.start import row_noise
from triegp.additive.variance import Known, with_factor
from triegp.encoding.grids import encode_grids
from triegp.engines import Engine
from triegp.tree.rows import Rows, join_rows
from triegp.tree.trie import SortedKeys, Trie, insert_keys, insert_rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

FEW_NEW = 32  # rows that are inserted one by one
PENDING_SHARE = 0.02  # of the rows: with more rows since the last solve, it begins again


def insert_into_forest(model: ForestModel, rows: Rows) -> ForestModel:
    """The model conditioned on more rows; they are inserted into every trie and the smooth part.

    A few rows correct the solution only where they are felt (`_correct`). Otherwise, and once there
    are many of them, the solve begins again from alpha.
    """
    counts = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
    new = rows.select(np.flatnonzero(counts))
    present = np.append(model.present, counts)
    if not new.n_rows:
        return replace(model, present=present)
    n, k = model.rows.n_rows, new.n_rows
    noisy = replace(row_noise(new, model.orders, model.noise), X=None)
    pending = model.n_pending + k
    if not model.exact and k <= FEW_NEW and pending <= PENDING_SHARE * n:
        alpha = model.alpha
        for i in range(k):
            one = np.array([i])
            points = read_points(model, new.features[one])
            alpha, near = _correct(model, points, noisy.select(one))
            model = _grow(model, new.features[one], noisy.select(one), points)
            n_clustered = near.n_clustered
            model = replace(model, alpha=alpha, known_nearby=near, n_clustered=n_clustered)
        return replace(model, present=present, n_pending=pending)
    leaves = model.exact and not is_exact(n + k)
    if leaves:  # variances are no longer exact
        model = with_factor(model, Known(np.arange(n), model.exact_diagonal, False))
    points = read_points(model, new.features)
    model = _grow(model, new.features, noisy, points)
    if leaves:
        model = _solve_by_steps(model)
    start = np.concatenate([model.alpha, np.zeros_like(new.y)])
    return replace(solve_again(model, start), present=present)


def solve_again(model: ForestModel, start: Floats) -> ForestModel:
    """The model with the solution for its rows, from a start of the shape of the targets."""
    process = None if model.exact else model.nearby.process
    rows = (model.forest, model.rows, model.seed)
    made, solution, _, _ = solve_targets(*rows, start, process=process)
    return replace(
        model,
        alpha=solution.x,
        residual=float(solution.residual.max()),
        n_pending=0,
        known_preconditioner=made,
    )


def _solve_by_steps(model: ForestModel) -> ForestModel:
    """The model with what conjugate gradients need: a smooth part in linear time, enough noise."""
    forest, rows = model.forest, model.rows
    more = max(SOLVED_NOISE * forest.prior_variance - model.noise, 0.0)
    if forest.smooth is not None:
        given = (forest.smooth.kernel, model.inputs, model.seed, forest.engine)
        forest = replace(forest, smooth=make_smooth(*given))
    rows = replace(rows, noise=rows.total_noise + more)
    return replace(model, forest=forest, rows=rows, noise=model.noise + more)


def _grow(model: ForestModel, X: Array, noisy: Rows, points: Points) -> ForestModel:
    """The model with more rows in its tries and its smooth part; alpha is that of before.

    points: the rows X, read by the model.
    """
    grown, inputs = _grow_tries(model, X, points), points.inputs
    smooth = None if model.smooth is None else model.smooth.extend(inputs)
    return replace(
        model,
        forest=Forest(tuple(trie for trie, _ in grown), model.forest.levels, smooth),
        keys=tuple(keys for _, keys in grown),
        rows=join_rows([model.rows, noisy]),
        inputs=np.concatenate([model.inputs, inputs]),
        n_clustered=model.rows.n_rows + noisy.n_rows,
        known_nearby=None,
        known_preconditioner=None,
    )


def _grow_tries(model: ForestModel, X: Array, points: Points) -> list[tuple[Trie, Words]]:
    """Each trie and its keys with more rows; a single row inside the box is not encoded again."""
    engine, trees = model.forest.engine, range(len(model.orders))
    if points.stacked is None or not X.shape[0] == points.inner.size == 1:
        codes = encode_grids(model.grids, X, engine)
        return engine.each(
            lambda _, t: insert_rows(model.forest.tries[t], model.keys[t], codes[t]), trees
        )
    stacked, first, no_lcp = points.stacked, np.zeros(1, np.int32), np.full(1, -1, np.int32)

    def insert(_: Engine, t: int) -> tuple[Trie, Words]:
        keys = np.ascontiguousarray(stacked[:, : model.keys[t].shape[1], t])
        new = SortedKeys(first, no_lcp, keys)
        return insert_keys(model.forest.tries[t], model.keys[t], new)

    return engine.each(insert, trees)


def _correct(model: ForestModel, points: Points, row: Rows) -> tuple[Floats, Nearby]:
    """Alpha (n + 1, ...) after one more row, corrected at rows near it; and these rows in cells.

    With A_NN of the near rows N, k their covariance with the new row and r its residual, the
    correction is that of these rows alone: r / s at the new row, s = k0 + noise - k' A_NN^-1 k, and
    -A_NN^-1 k r / s at the near rows.
    """
    keys, inputs = new_keys(model, points), model.scale_inputs(points.inputs)
    members, weights, var = nearby_weights(model.nearby, inputs, keys)
    own = float(np.broadcast_to(row.variance, (1,))[0])
    last = (row.y - forest_mean(model, points)) / (var + own)
    alpha = np.concatenate([model.alpha, last])
    alpha[members] -= np.multiply.outer(weights, last[0])
    return alpha, insert_nearby(model.nearby, inputs, keys, np.array([own]))
