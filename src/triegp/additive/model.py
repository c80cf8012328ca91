"""Trees and a smooth part conditioned on data, and the posterior mean.

With alpha = (K + noise)^-1 y, the mean at a new row is k(x, X) alpha. For a tree this is a sum over
the nodes on the row's path: the weight of each level times the sum of alpha below the node. For the
smooth part see `triegp.smooth`. Variances are in `triegp.additive.variance`.

Outside the training box the smooth part goes on. A tree is read at the nearest row x' of the box,
and fades with the correlation rho of the smooth part between x and x': f_t(x) = rho f_t(x') + rest.
The rest is independent, with variance 1 - rho^2 times that of the tree. It has more if the prior
variance of f is below that of y: far from all rows, an observation has at least the variance of y.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from triegp.additive.evidence import EXACT_ROWS, Evidence, forest_evidence
from triegp.additive.forest import Forest, multiply
from triegp.additive.nearby import Nearby, insert_nearby, make_nearby
from triegp.additive.neighbours import precondition_neighbours
from triegp.additive.preconditioner import Preconditioner, make_preconditioner
from triegp.additive.solve import Solution, Tell, solve_forest
from triegp.additive.start import features_of
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine, one_blas_thread, threads_of
from triegp.models.jobs import Stopwatch
from triegp.smooth.coordinates import Coordinates, coordinates_of
from triegp.smooth.interface import HostSmooth
from triegp.smooth.kernel import correlate
from triegp.smooth.linear import Linear
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows
from triegp.tree.trie import SortedKeys, Trie, insert_keys, sorted_keys

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

RANK = 1_000
BASIS_FLOATS = 1 << 26  # largest n * rank of a preconditioner
TREE_COLUMNS, FEWEST_COLUMNS = 256, 32  # of the trees, in a preconditioner with neighbours
COLUMN_FLOATS = 1 << 25  # largest n * columns of these, unless there are the fewest
FEW_NEW = 64  # new rows that one thread reads
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
        Relative residual of alpha after the last solve on all rows.
    coordinates : Coordinates
        How features become inputs of the smooth part.
    inputs : float64 (n, p)
        Inputs of the rows.
    goes_on : bool
        Whether the smooth part goes on outside the training box; otherwise rows outside are read
        as the nearest row of the box.
    seed : int
        Seed of the preconditioner's rows.
    factor : float
        Factor of variances from nearby rows; unused up to 2,000 rows, where they are exact.
    n_pending : int
        Rows that were inserted since the last solve on all rows.
    n_clustered : int
        Rows that the cells of nearby rows were made from; later rows were added to these cells.
    known_nearby : Nearby or None
        The rows in cells, for variances from nearby rows, if they have been computed; not stored
        in files.
    known_preconditioner : Preconditioner or None
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
    coordinates: Coordinates
    inputs: Floats
    goes_on: bool
    seed: int
    n_clustered: int
    factor: float = 1.0
    n_pending: int = 0
    known_nearby: Nearby | None = None
    known_preconditioner: Preconditioner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        names = {field.name for field in fields(self)}
        kept = {name: value for name, value in self.__dict__.items() if name in names}
        return {**kept, "known_preconditioner": None, "known_nearby": None}

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return int(self.present.size)

    @property
    def new_noise(self) -> float:
        """Variance of a new observation given f: noise and nuggets."""
        return self.noise + sum(order.nugget_variance for order in self.orders)

    @property
    def variance(self) -> Floats:
        """Variance of each row's target given f, (n,)."""
        return np.broadcast_to(self.rows.variance, self.rows.y.shape)

    @cached_property
    def preconditioner(self) -> Preconditioner:
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

    @cached_property
    def prepared(self) -> Any:
        """Alpha as the smooth part needs it for means."""
        assert self.smooth is not None
        return self.smooth.prepare(self.alpha)

    @property
    def smooth(self) -> HostSmooth | None:
        """The smooth part; None if there is none."""
        return cast("HostSmooth | None", self.forest.smooth)

    @property
    def n_threads(self) -> int:
        """Threads for what the engine does not do."""
        return threads_of(self.forest.engine)

    @cached_property
    def nearby(self) -> Nearby:
        """The rows in cells, for variances from nearby rows; computed on first use."""
        if self.known_nearby is not None:
            return self.known_nearby
        pairs = zip(self.forest.tries, self.keys, strict=True)
        keys = [keys[np.argsort(trie.row_idx)] for trie, keys in pairs]
        kernel = None if self.smooth is None else self.smooth.kernel
        inputs, n = self.scale_inputs(self.inputs), self.n_clustered
        first = (inputs[:n], [part[:n] for part in keys], self.forest.levels, self.variance[:n])
        near = make_nearby(*first, kernel, n_threads=self.n_threads)
        if n == self.rows.n_rows:
            return near
        later = (inputs[n:], [part[n:] for part in keys], self.variance[n:])
        return insert_nearby(near, *later, n_threads=self.n_threads)

    @cached_property
    def evidence(self) -> Evidence:
        """Log marginal likelihood, with the standard error of its estimate."""
        rng = np.random.default_rng(self.seed)
        made = self.preconditioner if self.forest.n_rows > EXACT_ROWS else None
        with one_blas_thread():
            return forest_evidence(
                self.forest, self.variance, self.rows.y, rng, preconditioner=made
            )

    @cached_property
    def root(self) -> Floats:
        """Lower Cholesky factor of K + noise, (n, n): for few rows. O(n^2 T + n^3)."""
        dense = multiply(self.forest, np.eye(self.forest.n_rows))
        dense[np.diag_indices_from(dense)] += self.variance
        return np.asarray(cholesky(dense, lower=True, overwrite_a=True, check_finite=False))

    @cached_property
    def exact_diagonal(self) -> Floats:
        """Diagonal of (K + noise)^-1, (n,), by dense algebra: for few rows."""
        white = solve_triangular(self.root, np.eye(self.forest.n_rows), lower=True)
        return np.asarray(np.square(white).sum(axis=0))

    def scale_inputs(self, inputs: Floats) -> Floats:
        """Inputs whose distances tell which rows are near: over lengthscales, if there are any."""
        if self.smooth is not None:
            return np.asarray(inputs / self.smooth.kernel.lengthscale)
        return np.asarray(inputs * self._relevance)

    @cached_property
    def _relevance(self) -> Floats:
        """Without lengthscales: root of the share of each input's feature in the trees, (p,)."""
        share = np.zeros(self.encoders[0].n_features_in_)
        for encoder, order in zip(self.encoders, self.orders, strict=True):
            features = features_of(encoder)[order.key_bits]
            share += np.bincount(features, -np.diff(order.levels), share.size)
        root: Floats = np.sqrt(share / share.max())
        return root[self.coordinates.feature_of]


def precondition(
    forest: Forest,
    variance: Floats,
    seed: int,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
    rank: int | None = None,
) -> Preconditioner:
    """Preconditioner of the rank that `rank_for` returns, or the given one.

    With a smooth part in linear time it takes neighbours, otherwise random rows and blocks.
    """
    n, rng = forest.n_rows, np.random.default_rng(seed)
    if isinstance(forest.smooth, Linear):
        columns = min(TREE_COLUMNS, max(FEWEST_COLUMNS, COLUMN_FLOATS // n))
        columns = columns if rank is None else min(rank, columns)
        return precondition_neighbours(forest, forest.smooth.induced, variance, columns, rng, tell)
    rank = rank_for(n) if rank is None else rank
    return make_preconditioner(forest, variance, rank, rng, watch, tell)


def rank_for(n_rows: int) -> int:
    """Rank of a preconditioner: 1,000, less for many rows to bound its memory, at least 32."""
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
    """

    n_rows: int
    inner: Ints
    codes: list[Codes]
    inputs: Floats
    anchors: Floats
    fade: Floats
    smooth: Any
    keys: list[SortedKeys] | None = None


def read_points(model: ForestModel, X: Array, *, sort: bool = False) -> Points:
    """Encode new rows for all trees in one pass; sort them if `sort`. O(m T (q + log m))."""
    engine = _engine_for(model, X.shape[0])
    codes = encode_grids(model.encoders, X, engine)
    unrelated = codes[0].unrelated  # the box is the same for all trees
    inner = np.arange(X.shape[0])
    if unrelated is not None and unrelated.any():
        inner = np.flatnonzero(~unrelated)
        codes = [select_codes(part, inner) for part in codes]
    keys = None
    if sort and inner.size:
        keys = engine.each(lambda _, t: sorted_keys(model.forest.tries[t], codes[t]), _trees(model))
    inputs, anchors, fade = _read_inputs(model, X[inner])
    smooth = None
    if model.smooth is not None and inner.size:
        smooth = model.smooth.read(inputs)
    return Points(X.shape[0], inner, codes, inputs, anchors, fade, smooth, keys)


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
    """Posterior mean of f at new rows, (m,); 0 for rows that are unrelated to the data.

    O(m (T log n + m_i^2 + m_i m_v^2)), with m_i inducing rows and m_v neighbours.
    """
    mean = np.zeros(points.n_rows)
    if points.inner.size:
        mean[points.inner] = points.fade * _mean_inside(model, points)
        if model.smooth is not None:
            mean[points.inner] += model.smooth.mean(points.smooth, model.prepared)
    return mean


def _mean_inside(model: ForestModel, points: Points) -> Floats:
    """Posterior mean of the sum of the trees at the rows inside, (k,)."""
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


def new_keys(model: ForestModel, points: Points) -> list[Words]:
    """Keys of the new rows inside, in their order, (k, w) per tree."""
    m = points.inner.size
    engine, every = _engine_for(model, m), np.arange(m, dtype=np.int32)

    def read(_: Engine, t: int) -> Words:
        return engine.keys(points.codes[t].packed, model.forest.tries[t].bits, every)

    return engine.each(read, _trees(model))


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
