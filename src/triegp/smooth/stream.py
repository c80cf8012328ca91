"""New rows appended to the smooth part, with the factorisation of the old rows kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import blocked
from triegp.smooth.buffers import append
from triegp.smooth.factor import Factor, regress_blocks
from triegp.smooth.induced import MOST_ROWS, Induced, fill_phi, scale_inputs

Ids = npt.NDArray[np.int64]


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
    n, n_blocks = induced.n_rows, induced.starts.size - 1
    buffers = dict(induced.__dict__.get("_buffers", {}))

    def grow(name: str, head: Any, tail: Any) -> Any:
        buffers[name], joined = append(buffers.get(name), head, tail)
        return joined

    parts = _divide(induced, X_new)
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
    fill_phi(induced, scaled, phi)
    kept["root"], kept["scaled_inducing"] = induced.root, induced.scaled_inducing
    kept["scaled"] = grow("scaled", induced.scaled, scaled)
    kept["phi"] = grow("phi", induced.phi, phi)
    here = np.append(0, np.cumsum(sizes))
    kept["centres"] = np.hstack([induced.centres, blocked.find_centres(scaled, here)])
    fresh = np.arange(n_blocks, starts.size - 1)
    near = grow("neighbours", induced.neighbours, extended.nearest(fresh, fresh))
    kept["neighbours"], old = near, induced.factor
    given = (order, starts, near, extended.left, extended.jitter, n_blocks, induced.n_threads)
    weights, roots = regress_blocks(*given)
    width = max(roots.shape[1], old.roots.shape[1])
    roots = _widen(roots, width)
    old_roots = old.roots if old.roots.shape[1] == width else _widen(old.roots, width)
    kept["factor"] = Factor(
        order,
        starts,
        near,
        grow("weights", old.weights, weights),
        grow("roots", old_roots, roots),
    )
    return extended


def _divide(induced: Induced, X_new: Any) -> list[Ids]:
    """The new rows (m, d) in blocks: those that belong to the same block of the old rows."""
    if not induced.n_neighbours:
        return list(np.arange(len(X_new))[:, None])
    scaled = scale_inputs(induced.kernel, X_new)
    cell = blocked.nearest_centres(induced.centres, scaled, induced.n_threads)
    order = np.argsort(cell, kind="stable")
    first = np.flatnonzero(np.diff(cell[order])) + 1
    parts = list[Ids]()
    for part in np.split(order, first):
        parts += np.array_split(part, -(-part.size // MOST_ROWS))
    return parts


def _widen(roots: Any, width: int) -> Any:
    return np.pad(roots, ((0, 0), (0, width - roots.shape[1])))
