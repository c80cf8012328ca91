"""New rows: how trees and smooth part read them, and the posterior mean there.

With alpha = (K + noise)^-1 y, the mean at a new row is k(x, X) alpha. For a tree this is a sum over
the nodes on the row's path: the weight of each level times the sum of alpha below the node. For the
smooth part see `triegp.smooth`.

Outside the training box the smooth part goes on. A tree is read at the nearest row x' of the box,
and fades with the correlation rho of the smooth part between x and x': f_t(x) = rho f_t(x') + rest.
The rest is independent, with variance 1 - rho^2 times that of the tree. It has more if the prior
variance of f is below that of y: far from all rows, an observation has at least the variance of y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.model import ForestModel
from triegp.additive.nearby import stack_keys
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine, paths
from triegp.smooth.coordinates import coordinates_of
from triegp.smooth.kernel import correlate
from triegp.tree.trie import SortedKeys, Trie, insert_keys, sorted_keys

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]
Found = TypeVar("Found")

FEW_NEW = 64  # new rows that one thread reads, in all trees at once


@dataclass(frozen=True, eq=False)
class Points:
    """New rows, encoded for every tree.

    Rows are encoded once. More than 64 rows are also sorted once if both mean and variance are
    computed.

    Attributes
    ----------
    n_rows : int
        Number of rows, m.
    inner : int64 (k,)
        Rows inside the box; the others are unrelated to the data.
    codes : list of Codes
        Codes of the rows inside, one entry per tree.
    inputs : float64 (k, p)
        Inputs of the smooth part at the rows inside.
    anchors : float64 (k, p)
        The same at the nearest row of the box; `inputs` itself if no row differs.
    fade : float64 (k,)
        Correlation of each tree with its value at the nearest row of the box; 1 inside the box.
    smooth : object or None
        The rows inside as the smooth part reads them; None without smooth part.
    keys : list of SortedKeys or None
        The same rows in key order, one entry per tree; None if each use sorts them again.
    stacked : uint64 (k, w, T) or None
        Keys of the rows inside in all trees, if there are at most 64.
    known : dict
        What a model has predicted at these rows so far, by name; see `Points.once`.
    """

    n_rows: int
    inner: Ints
    codes: list[Codes]
    inputs: Floats
    anchors: Floats
    fade: Floats
    smooth: Any
    keys: list[SortedKeys] | None = None
    stacked: Words | None = None
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, compute: Callable[[], Found]) -> Found:
        """The result of `compute`, which is called once for each name.

        Targets that share a model share their variances, and their means take one pass. Points
        belong to the model that read them, so that nothing else changes the result.
        """
        if name not in self.known:
            self.known[name] = compute()
        found: Found = self.known[name]
        return found


def read_points(model: ForestModel, X: Array, *, sort: bool = False) -> Points:
    """Encode new rows for all trees in one pass; sort them if `sort`. O(m T (q + log m))."""
    engine = _engine_for(model, X.shape[0])
    codes = encode_grids(model.grids, X, engine)
    unrelated = codes[0].unrelated  # the box is the same for all trees
    inner = np.arange(X.shape[0])
    if unrelated is not None and unrelated.any():
        inner = np.flatnonzero(~unrelated)
        codes = [select_codes(part, inner) for part in codes]
    keys, stacked = None, None
    if 0 < inner.size <= FEW_NEW:
        stacked = paths.read_keys(model.key_bits, [part.packed for part in codes])
    elif sort and inner.size:
        keys = engine.each(lambda _, t: sorted_keys(model.forest.tries[t], codes[t]), _trees(model))
    inputs, anchors, fade = _read_inputs(model, X[inner])
    smooth = None
    if model.smooth is not None and inner.size:
        smooth = model.smooth.read(inputs)
    return Points(X.shape[0], inner, codes, inputs, anchors, fade, smooth, keys, stacked)


def _read_inputs(model: ForestModel, X: Array) -> tuple[Floats, Floats, Floats]:
    """Inputs of the smooth part at rows X and at the nearest rows of the box; fading of trees."""
    box = model.encoders[0]
    near = np.clip(X, box.low_, box.high_)
    anchors, smooth = coordinates_of(model.coordinates, near), model.forest.smooth
    fade = np.ones(X.shape[0])
    beyond = np.flatnonzero((near != X).any(axis=1))
    if smooth is None or not model.goes_on or not beyond.size:
        return anchors, anchors, fade
    inputs = anchors.copy()
    inputs[beyond] = coordinates_of(model.coordinates, X[beyond])
    apart = (inputs[beyond] - anchors[beyond]) / smooth.kernel.lengthscale
    fade[beyond] = correlate(smooth.kernel.name, np.square(apart).sum(axis=1))
    return inputs, anchors, fade


def forest_mean(model: ForestModel, points: Points) -> Floats:
    """Posterior mean of f at new rows, (m,), or (m, k) if there are several targets.

    0 for rows that are unrelated to the data. O(m (T (log n + k) + m_i^2 + m_i m_v^2)), with m_i
    inducing rows and m_v neighbours.
    """
    mean = np.zeros((points.n_rows, *model.alpha.shape[1:]))
    if points.inner.size:
        mean[points.inner] = (points.fade * _mean_inside(model, points).T).T
        if model.smooth is not None:
            mean[points.inner] += model.smooth.mean(points.smooth, model.prepared)
    return mean


def _mean_inside(model: ForestModel, points: Points) -> Floats:
    """Posterior mean of the sum of the trees at the rows inside, (m,) or (m, k)."""
    shape = (points.inner.size, *model.alpha.shape[1:])
    if points.stacked is not None:
        found = [paths.path_means(reader, points.stacked) for reader in model.readers]
        return np.stack(found, axis=-1).reshape(shape)

    def read(alone: Engine, t: int) -> Floats:
        trie, levels = model.forest.tries[t], model.forest.levels[t]
        query = keys_of(model, points, t)
        at = alone.locate(trie.links, model.keys[t], query.keys, query.row_idx)
        below, path = model.path_sums[t]
        left_out = levels[at.leaves_at] - levels[trie.links.depth[at.node]]
        out = np.empty(shape)
        out[at.row_idx] = path[at.node] - (left_out * below[at.node].T).T
        return out

    total: Floats = np.zeros(shape)
    for part in _engine_for(model, points.inner.size).each(read, _trees(model)):
        total += part
    return total


def find_rows(model: ForestModel, points: Points) -> Ints:
    """The training row that each point inside the box coincides with in all trees, -1 if none.

    With a smooth part, its inputs must be equal, too. Only rows that were observed once are found:
    others keep their run (`run_variances`). Trees after the first are asked only about points that
    coincide with a row in all trees before.
    """
    found = np.full(points.inner.size, -1, np.int64)
    some = np.arange(points.inner.size)
    for t, trie in enumerate(model.forest.tries):
        if not some.size:
            break
        if t == 0:
            query = keys_of(model, points, t)
        else:
            query = sorted_keys(trie, select_codes(points.codes[t], some))
        at = model.forest.engine.locate(trie.links, model.keys[t], query.keys, query.row_idx)
        n_levels = trie.links.n_levels
        ends = at.leaves_at == n_levels
        alone = ends & (at.node < trie.n_rows) & (at.above < n_levels)
        # Rows that share a key have no run in this tree; whether the row is one of them comes last.
        row = np.where(ends, -1, -2)
        row[alone] = trie.row_idx[at.node[alone]]
        here = np.empty(some.size, np.int64)
        here[at.row_idx] = row
        before = found[some]
        same = (here >= -1) & ((here == before) | (here == -1) | (before == -1))
        found[some] = np.where(same, np.maximum(here, before), -1)
        some = some[same]
    found = _same_keys(model, points, found)
    if model.smooth is not None:
        differ = (model.inputs[np.maximum(found, 0)] != points.inputs).any(axis=1)
        found = np.where(differ, -1, found)
    each = model.rows.weight if model.rows.copies is None else model.rows.copies
    if each is not None:
        found = np.where((found >= 0) & (each[np.maximum(found, 0)] > 1.0), -1, found)
    return found


def _same_keys(model: ForestModel, points: Points, found: Ints) -> Ints:
    """Rows found (k,) that have the key of their point in all trees; otherwise -1."""
    found = found.copy()
    for t, trie in enumerate(model.forest.tries):
        some = np.flatnonzero(found >= 0)
        if not some.size:
            break
        place = np.empty(trie.n_rows, np.int64)
        place[trie.row_idx] = np.arange(trie.n_rows)
        query = sorted_keys(trie, select_codes(points.codes[t], some))
        at = some[query.row_idx]
        differ = (query.keys != model.keys[t][place[found[at]]]).any(axis=1)
        found[at[differ]] = -1
    return found


def new_keys(model: ForestModel, points: Points) -> Words:
    """Keys of the new rows inside, in their order, in all trees, (k, w, T)."""
    m = points.inner.size
    if points.stacked is not None:
        return points.stacked
    engine, every = _engine_for(model, m), np.arange(m, dtype=np.int32)

    def read(_: Engine, t: int) -> Words:
        return engine.keys(points.codes[t].packed, model.forest.tries[t].bits, every)

    return stack_keys(engine.each(read, _trees(model)), m, model.key_bits.n_words)


def keys_of(model: ForestModel, points: Points, t: int) -> SortedKeys:
    """Keys of the points in tree t, in key order."""
    if points.keys is not None:
        return points.keys[t]
    return sorted_keys(model.forest.tries[t], points.codes[t])


def joint_trees(model: ForestModel, points: Points) -> Forest:
    """The trees over the training rows followed by the new rows inside. O((n + m) T).

    Without the smooth part.
    """

    def insert(_: Engine, t: int) -> Trie:
        return insert_keys(model.forest.tries[t], model.keys[t], keys_of(model, points, t))[0]

    tries = model.forest.engine.each(insert, _trees(model))
    return Forest(tuple(tries), model.forest.levels)


def _engine_for(model: ForestModel, n_new: int) -> Engine:
    """The engine that reads new rows: for few of them, threads cost more than they save."""
    return model.forest.engine if n_new > FEW_NEW else CpuEngine(n_threads=1)


def _trees(model: ForestModel) -> range:
    return range(len(model.orders))
