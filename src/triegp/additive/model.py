"""A forest conditioned on data, and its posterior mean.

With alpha = (K + noise)^-1 y, the mean at a new row is a sum over trees and over the nodes on the
row's path: the weight of each level times the sum of alpha below the node. It needs no training
features. Variances need solves; see `triegp.additive.variance`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import Nystrom, make_preconditioner
from triegp.additive.solve import Solution, Tell, solve_forest
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows
from triegp.tree.trie import SortedKeys, Trie, insert_keys, sorted_keys

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

RANK = 400
BASIS_FLOATS = 1 << 25  # largest n * rank of a preconditioner
TOLERANCE = 1e-5  # relative residual of alpha


@dataclass(frozen=True, eq=False)
class ForestModel:
    """A forest conditioned on its training rows.

    Attributes
    ----------
    encoders : tuple of BitEncoder
        One per tree, each with its own grid.
    orders : tuple of BitOrder
        One per tree.
    noise : float
        Noise variance that all rows share, nuggets not included.
    forest : Forest
        The tries over the rows whose weight is not 0, and their levels.
    keys : tuple of uint64 (n, w)
        Sorted keys of each trie.
    rows : Rows
        Targets, noise (n,) and weights of the rows whose weight is not 0.
    present : bool (n_all,)
        Whether each of all rows is one of these n, that is, has a weight other than 0.
    alpha : float64 (n,)
        (K + noise)^-1 y.
    residual : float
        Relative residual of alpha.
    variance_by : {"auto", "exact", "samples", "cheap"}
        How variances are computed.
    variance_error : float
        Relative standard error of a variance from samples.
    seed : int
        Seed of the samples and of the preconditioner's rows.
    known_diagonal : float64 (n,) or None
        Diagonal of (K + noise)^-1, if it has been computed.
    known_preconditioner : Nystrom or None
        Preconditioner for solves with these rows, if it has been computed; not stored in files.
    """

    encoders: tuple[BitEncoder, ...]
    orders: tuple[BitOrder, ...]
    noise: float
    forest: Forest
    keys: tuple[Words, ...]
    rows: Rows
    present: npt.NDArray[np.bool_]
    alpha: Floats
    residual: float
    variance_by: str
    variance_error: float
    seed: int
    known_diagonal: Floats | None = None
    known_preconditioner: Nystrom | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        names = {field.name for field in fields(self)}
        kept = {name: value for name, value in self.__dict__.items() if name in names}
        return {**kept, "known_preconditioner": None}

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return int(self.present.size)

    @property
    def n_samples(self) -> int:
        """Samples S for `variance_error`: the relative standard error is sqrt(2 / S)."""
        return max(2, int(np.ceil(2.0 / self.variance_error**2)))

    @property
    def new_noise(self) -> float:
        """Variance of a new observation given f: noise and nuggets."""
        return self.noise + sum(order.nugget_variance for order in self.orders)

    @property
    def variance(self) -> Floats:
        """Variance of each row's target given f, (n,)."""
        return np.broadcast_to(self.rows.variance, self.rows.y.shape)

    @cached_property
    def preconditioner(self) -> Nystrom:
        """Preconditioner for solves with these rows, computed on first use."""
        if self.known_preconditioner is not None:
            return self.known_preconditioner
        return precondition(self.forest, self.variance, self.seed)

    @cached_property
    def paths(self) -> list[tuple[Floats, Floats]]:
        """For each tree: sum of alpha below each id, and the mean accumulated on the path to it."""

        def walk(alone: Engine, t: int) -> tuple[Floats, Floats]:
            trie = self.forest.tries[t]
            return alone.path_sums(trie.links, self.forest.levels[t], trie.sort(self.alpha))

        return self.forest.engine.each(walk, _trees(self))


def precondition(
    forest: Forest,
    variance: Floats,
    seed: int,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
    rank: int | None = None,
) -> Nystrom:
    """Preconditioner of the rank that `rank_for` returns, or the given one."""
    rank = rank_for(forest.n_rows) if rank is None else rank
    return make_preconditioner(forest, variance, rank, np.random.default_rng(seed), watch, tell)


def rank_for(n_rows: int) -> int:
    """Rank of a preconditioner: 400, less for many rows to bound its memory, but at least 32."""
    return min(RANK, max(32, BASIS_FLOATS // n_rows))


def solve_rows(
    model: ForestModel,
    b: Floats,
    tolerance: float,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
) -> Solution:
    """(K + noise)^-1 b, for b (n,) or (n, k), in the memory of the model's engine."""
    return solve_forest(
        model.forest,
        model.variance,
        model.forest.engine.hold(b),
        preconditioner=model.preconditioner,
        tolerance=tolerance,
        watch=watch,
        tell=tell,
    )


@dataclass(frozen=True, eq=False)
class Points:
    """New rows, encoded for every tree.

    Rows are encoded once. They are also sorted once if both mean and variance are computed.

    Attributes
    ----------
    n_rows : int
        Number of rows, m.
    inner : int64 (k,)
        Rows inside the box; the others are unrelated to the data.
    codes : list of Codes
        Codes of the rows inside, one entry per tree.
    keys : list of SortedKeys or None
        The same rows in key order, one entry per tree; None if each use sorts them again.
    """

    n_rows: int
    inner: Ints
    codes: list[Codes]
    keys: list[SortedKeys] | None = None


def read_points(model: ForestModel, X: Array, *, sort: bool = False) -> Points:
    """Encode new rows for all trees in one pass; sort them if `sort`. O(m T (q + log m))."""
    engine = model.forest.engine
    codes = encode_grids(model.encoders, X, engine)
    unrelated = codes[0].unrelated  # the box is the same for all trees
    inner = np.arange(X.shape[0])
    if unrelated is not None and unrelated.any():
        inner = np.flatnonzero(~unrelated)
        codes = [select_codes(part, inner) for part in codes]
    keys = None
    if sort and inner.size:
        keys = engine.each(lambda _, t: sorted_keys(model.forest.tries[t], codes[t]), _trees(model))
    return Points(X.shape[0], inner, codes, keys)


def forest_mean(model: ForestModel, points: Points) -> Floats:
    """Posterior mean of f at new rows, (m,); 0 for rows outside the box. O(m T log n)."""
    mean = np.zeros(points.n_rows)
    if points.inner.size:
        mean[points.inner] = _mean_inside(model, points)
    return mean


def _mean_inside(model: ForestModel, points: Points) -> Floats:
    paths = model.paths

    def read(alone: Engine, t: int) -> Floats:
        trie, levels = model.forest.tries[t], model.forest.levels[t]
        query = keys_of(model, points, t)
        at = alone.locate(trie.links, model.keys[t], query.keys, query.row_idx)
        below, path = paths[t]
        left_out = levels[at.leaves_at] - levels[trie.links.depth[at.node]]
        out = np.empty(query.row_idx.size)
        out[at.row_idx] = path[at.node] - left_out * below[at.node]
        return out

    total: Floats = np.zeros(points.inner.size)
    for part in model.forest.engine.each(read, _trees(model)):
        total += part
    return total


def find_rows(model: ForestModel, points: Points) -> Ints:
    """The training row that each point inside the box coincides with in all trees, -1 if none.

    Only rows that were observed once are found: others keep their run (`run_variances`). Trees
    after the first are asked only about points that coincide with a row in all trees before.
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


def run_variances(model: ForestModel) -> Floats:
    """Variance of the unbranched runs above each training row, summed over the trees, (n,).

    Along its run a row has a tree to itself. Only the sum of its runs and its noise enters the
    likelihood, so that data do not tell them apart. O(n T).
    """

    def runs(_: Engine, t: int) -> Floats:
        trie, levels = model.forest.tries[t], model.forest.levels[t]
        lcp = np.append(trie.links.lcp, -1)
        parent = np.maximum(np.maximum(lcp[:-1], lcp[1:]), 0)
        return np.asarray(trie.unsort(levels[parent] - levels[-1]))

    total: Floats = np.sum(model.forest.engine.each(runs, _trees(model)), axis=0)
    return total


def keys_of(model: ForestModel, points: Points, t: int) -> SortedKeys:
    """Keys of the points in tree t, in key order."""
    if points.keys is not None:
        return points.keys[t]
    return sorted_keys(model.forest.tries[t], points.codes[t])


def joint_forest(model: ForestModel, points: Points) -> Forest:
    """The forest over the training rows followed by the new rows inside the box. O((n + m) T)."""

    def insert(_: Engine, t: int) -> Trie:
        return insert_keys(model.forest.tries[t], model.keys[t], keys_of(model, points, t))[0]

    tries = model.forest.engine.each(insert, _trees(model))
    return Forest(tuple(tries), model.forest.levels)


def _trees(model: ForestModel) -> range:
    return range(len(model.orders))
