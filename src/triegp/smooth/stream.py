"""New rows appended to the smooth part, with the factorisation of the old rows kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import nearest
from triegp.smooth.buffers import append
from triegp.smooth.copies import first_equal
from triegp.smooth.factor import Factor, places_of
from triegp.smooth.induced import (
    Induced,
    Searched,
    copied_neighbours,
    is_left,
    project,
    regress,
    row_numbers,
    scale_inputs,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

RECENT = 0.1  # of the rows in the search index: with more rows since, it is built again
RECENT_ROWS = 1_024  # but not with fewer than these


def extend(induced: Induced, X_new: Any) -> Induced:
    """Append new rows (m, d), which come last in the order of the factorisation.

    If the factorisation of the old rows is at hand, it is kept. Then each new row costs
    O(m_i^2 + m_i m_v^2 + m_v^3), as for `read`; places in the order take O(n). `induced` remains as
    it is.

    Parameters
    ----------
    induced : Induced
        Training rows.
    X_new : array-like (m, d)
        New rows.
    """
    X_new = np.ascontiguousarray(X_new, dtype=np.float64)
    n, m = induced.n_rows, X_new.shape[0]
    buffers = dict(induced.__dict__.get("_buffers", {}))

    def grow(name: str, head: Any, tail: Any) -> Any:
        buffers[name], joined = append(buffers.get(name), head, tail)
        return joined

    new_rows = np.arange(n, n + m)
    X, order = grow("X", induced.X, X_new), grow("order", induced.order, new_rows)
    extended = replace(induced, X=X, order=order)
    kept = extended.__dict__
    kept["_buffers"] = buffers
    if "factor" not in induced.__dict__:
        return extended
    scaled = scale_inputs(induced.kernel, X_new)
    phi = project(induced, scaled)
    live = is_left(induced.kernel, phi)
    copied = _copied_rows(induced, scaled)
    kept["root"] = induced.root
    kept["scaled"] = grow("scaled", induced.scaled, scaled)
    kept["phi"] = grow("phi", induced.phi, phi)
    kept["copied"] = grow("copied", induced.copied, copied)
    useful = live & (copied < 0)
    searched = _add_rows(induced, new_rows[useful], scaled[useful], grow)
    kept["searched"] = searched

    neighbours = np.full((m, induced.n_neighbours), -1, dtype=np.int32)
    neighbours[:, :1] = copied_neighbours(copied, live)
    places = np.arange(searched.rows.size - np.count_nonzero(useful), searched.rows.size)
    args = (searched.index, searched.scaled, scaled[useful], induced.n_neighbours)
    found = nearest.nearest_rows(*args, induced.n_threads, limits=places)
    neighbours[useful] = row_numbers(searched, found)
    weights, variances = np.zeros(neighbours.shape), np.zeros(m)
    regress(extended, phi, scaled, np.arange(m), neighbours, weights, variances)
    old = induced.factor
    place = np.append(old.place, new_rows.astype(np.int32))
    kept["factor"] = Factor(
        order,
        grow("neighbours", old.neighbours, places_of(place, neighbours)),
        grow("weights", old.weights, weights),
        grow("variances", old.variances, variances),
    )
    return extended


def _copied_rows(induced: Induced, scaled: Floats) -> Ints:
    """The row that each new row is a copy of, of the old rows or of the new; -1 if none. (m,).

    Old rows that cannot be neighbours are not searched: a new row like them cannot be one either.
    """
    first = first_equal(scaled)
    out = np.where(first < np.arange(first.size), induced.n_rows + first, -1).astype(np.int32)
    searched = induced.searched
    args = (searched.index, searched.scaled, scaled, 1, induced.n_threads)
    found = row_numbers(searched, nearest.nearest_rows(*args))[:, 0]
    equal = (found >= 0) & (induced.scaled[found] == scaled).all(axis=1)
    out[equal] = found[equal]
    return out


def _add_rows(induced: Induced, rows: Ids, scaled: Floats, grow: Any) -> Searched:
    """The rows that can be neighbours, with new ones; a new index if there are many of them."""
    old = induced.searched
    live: Ints = grow("live", old.rows, rows.astype(np.int32))
    scaled = grow("live_scaled", old.scaled, scaled)
    index = old.index
    recent = len(live) - index.n_rows
    if recent > max(RECENT * index.n_rows, RECENT_ROWS):
        index = nearest.build_index(scaled, seed=induced.seed, n_threads=induced.n_threads)
    return Searched(live, scaled, index)
