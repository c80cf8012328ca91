"""New rows appended to the smooth part, with the factorisation of the old rows kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import nearest
from triegp.smooth.buffers import append
from triegp.smooth.division import cut
from triegp.smooth.factor import Factor, regress_blocks
from triegp.smooth.induced import (
    Induced,
    find_cells,
    find_neighbours,
    project,
    remainder,
    scale_inputs,
)

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

GROUPED_SHARE = 0.8  # of the centres: with fewer of them in groups, all are grouped again


def extend(induced: Induced, X_new: Any) -> Induced:
    """Append new rows (m, d), which come last in the order of the factorisation.

    Those that belong to the same block become a block of their own. If the factorisation of the old
    rows is at hand, it is kept. Then each new block costs as much as an old one; places in the
    order take O(n). `induced` remains as it is.

    Parameters
    ----------
    induced : Induced
        Training rows.
    X_new : array-like (m, d)
        New rows.
    """
    X_new = np.ascontiguousarray(X_new, dtype=np.float64)
    if not len(X_new):
        return induced
    n, n_blocks = induced.n_rows, induced.starts.size - 1
    buffers = dict(induced.__dict__.get("_buffers", {}))

    def grow(name: str, head: Any, tail: Any) -> Any:
        buffers[name], joined = append(buffers.get(name), head, tail)
        return joined

    parts = _divide(induced, scale_inputs(induced.kernel, X_new))
    added, sizes = np.concatenate(parts), np.array([part.size for part in parts])
    order = grow("order", induced.order, n + added)
    starts = grow("starts", induced.starts, n + np.cumsum(sizes))
    extended = replace(induced, X=grow("X", induced.X, X_new), order=order, starts=starts)
    kept = extended.__dict__
    kept["_buffers"] = buffers
    if "factor" not in induced.__dict__:
        return extended
    scaled = np.ascontiguousarray(scale_inputs(induced.kernel, X_new[added]))
    phi = np.empty((added.size, induced.inducing.size), induced.phi.dtype)
    project(induced, scaled, phi)
    kept["root"], kept["scaled_inducing"] = induced.root, induced.scaled_inducing
    kept["scaled"] = grow("scaled", induced.scaled, scaled)
    kept["phi"] = grow("phi", induced.phi, phi)
    centres = nearest.find_centres(scaled, np.append(0, np.cumsum(sizes)))
    kept["centres"] = np.hstack([induced.centres, centres])
    if induced.n_neighbours and induced.groups.blocks.size > GROUPED_SHARE * (starts.size - 1):
        kept["groups"] = induced.groups
    fresh = np.arange(n_blocks, starts.size - 1)
    near = grow("neighbours", induced.neighbours, find_neighbours(extended, fresh, fresh))
    kept["neighbours"], old = near, induced.factor
    blocks = (starts, near, partial(remainder, extended), extended.jitter)
    weights, roots = regress_blocks(*blocks, n_blocks, induced.n_threads)
    width = max(roots.shape[1], old.roots.shape[1])
    roots, old_roots = _widen(roots, width), _widen(old.roots, width)
    grown = (grow("weights", old.weights, weights), grow("roots", old_roots, roots))
    kept["factor"] = Factor(order, starts, near, *grown)
    return extended


def _divide(induced: Induced, scaled: Floats) -> list[Ids]:
    """Scaled inputs (m, d) in blocks: those that belong to the same block of the old rows."""
    if not induced.n_neighbours:
        return list(np.arange(len(scaled))[:, None])
    cell = find_cells(induced, scaled)
    order = np.argsort(cell, kind="stable")
    by_cell = np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)
    return [part for rows in by_cell for part in cut(rows)]


def _widen(roots: Any, width: int) -> Any:
    """Roots with columns of 0 behind them; as they are if they are as wide."""
    if roots.shape[1] == width:
        return roots
    return np.pad(roots, ((0, 0), (0, width - roots.shape[1])))
