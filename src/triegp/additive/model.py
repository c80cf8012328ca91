"""Trees and a smooth part conditioned on data, and solves with their rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from triegp.additive.evidence import Evidence, evidence_of_targets, exact_evidence
from triegp.additive.exact import factor_rows, inverse_diagonal, is_exact, solve_factored
from triegp.additive.forest import Forest, multiply
from triegp.additive.nearby import (
    Nearby,
    insert_nearby,
    left_out_variance,
    make_nearby,
    stack_keys,
)
from triegp.additive.neighbours import precondition_neighbours
from triegp.additive.preconditioner import Preconditioner, make_preconditioner
from triegp.additive.solve import Tell, solve_forest
from triegp.additive.start import features_of
from triegp.encoding.grids import Grids, prepare_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine, computed_once, one_blas_thread, paths, threads_of
from triegp.models.jobs import Stopwatch
from triegp.smooth.coordinates import Coordinates
from triegp.smooth.interface import HostSmooth
from triegp.smooth.linear import Linear
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows
from triegp.tree.trie import Trie

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

RANK = 1_000
BASIS_FLOATS = 1 << 26  # largest n * rank of a preconditioner
TREE_COLUMNS, FEWEST_COLUMNS = 256, 32  # of the trees, in a preconditioner with neighbours
TOLERANCE, LARGEST_TOLERANCE = 1e-5, 1e-2  # of the relative residual of alpha
ACCURATE_ROWS = 20_000  # up to so many rows, the smallest tolerance costs little
NOISE_SHARE = 0.02  # of the deviation of the noise: error of the mean that a solve may leave

# Rows left out by solves, where errors of variances from nearby rows count most, as far as columns
# of n numbers allow; and the relative residual, of which the variance has an error of second order.
SOLVED_ROWS, SOLVED_FLOATS, SOLVED_TOLERANCE = 64, 640_000, 0.3


@dataclass(frozen=True, eq=False)
class ForestModel:
    """A forest conditioned on its training rows.

    Several targets may share it: only targets and alpha differ, which then are (n, k).

    Attributes
    ----------
    encoders : tuple of Quantiser
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
        Targets (n,) or (n, k), noise (n,) and weights of the rows whose weight is not 0.
    present : bool (n_all,)
        Whether each of all rows is one of these n, that is, has a weight other than 0.
    alpha : float64 (n,) or (n, k)
        (K + noise)^-1 y.
    residual : float
        Relative residual of alpha after the last solve on all rows, the largest of all targets.
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
    n_nearby : int
        Training rows near a row that its variance is computed from; unused up to 2,000 rows.
    known_nearby : Nearby or None
        The rows in cells, for variances from nearby rows, if they have been computed; not stored
        in files.
    held_mean : float64 (h,) or (h, k) or None
        Mean of f at the last h rows given the others, if it has been computed: for the calibration;
        not stored in files.
    known_preconditioner : Preconditioner or None
        Preconditioner for solves with these rows, if it has been computed; not stored in files.
    """

    encoders: tuple[Quantiser, ...]
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
    n_nearby: int
    factor: float = 1.0
    n_pending: int = 0
    held_mean: Floats | None = None
    known_nearby: Nearby | None = None
    known_preconditioner: Preconditioner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        names = {field.name for field in fields(self)}
        kept = {name: value for name, value in self.__dict__.items() if name in names}
        return {**kept, "held_mean": None, "known_preconditioner": None, "known_nearby": None}

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return int(self.present.size)

    @property
    def n_targets(self) -> int:
        """Number of targets that share the model."""
        return self.rows.n_targets

    @computed_once
    def new_noise(self) -> float:
        """Variance of a new observation given f: noise and nuggets."""
        return self.noise + sum(order.nugget_variance for order in self.orders)

    @property
    def variance(self) -> Floats:
        """Variance of each row's target given f, (n,)."""
        return np.broadcast_to(self.rows.variance, (self.rows.n_rows,))

    @computed_once
    def preconditioner(self) -> Preconditioner:
        """Preconditioner for solves with these rows, computed on first use."""
        if self.known_preconditioner is not None:
            return self.known_preconditioner
        return precondition(self.forest, self.nearby.process, self.variance, self.seed)

    @computed_once
    def path_sums(self) -> list[tuple[Floats, Floats]]:
        """For each tree: sum of alpha below each id, and the mean accumulated on the path to it.

        (2n,) or (2n, k) each, as alpha.
        """

        def walk(alone: Engine, t: int) -> tuple[Floats, Floats]:
            trie = self.forest.tries[t]
            return sum_paths(alone, trie, self.forest.levels[t], trie.sort(self.alpha))

        return self.forest.engine.each(walk, range(len(self.orders)))

    @computed_once
    def grids(self) -> Grids:
        """The encoders, prepared for new rows."""
        return prepare_grids(self.encoders)

    @computed_once
    def key_bits(self) -> paths.Keys:
        """Key bits of all trees, for few new rows."""
        return paths.key_bits([trie.bits for trie in self.forest.tries])

    @computed_once
    def readers(self) -> tuple[paths.Trees, ...]:
        """All trees with their sums of alpha, for the mean at few new rows; one per target."""
        links = [trie.links for trie in self.forest.tries]
        found = []
        for c in range(self.n_targets):
            sums = [
                (below.reshape(len(below), -1)[:, c], path.reshape(len(path), -1)[:, c])
                for below, path in self.path_sums
            ]
            found.append(paths.hold_trees(links, self.keys, self.forest.levels, sums))
        return tuple(found)

    @computed_once
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

    @computed_once
    def nearby(self) -> Nearby:
        """The rows in cells, for variances from nearby rows; computed on first use."""
        if self.known_nearby is not None:
            return self.known_nearby
        pairs = zip(self.forest.tries, self.keys, strict=True)
        found = [keys[np.argsort(trie.row_idx)] for trie, keys in pairs]
        keys = stack_keys(found, self.rows.n_rows, self.key_bits.n_words)
        kernel = None if self.smooth is None else self.smooth.kernel
        inputs, n = self.scale_inputs(self.inputs), self.n_clustered
        first = (inputs[:n], keys[:n], self.forest.levels, self.variance[:n])
        near = make_nearby(*first, kernel, n_members=self.n_nearby, n_threads=self.n_threads)
        if n == self.rows.n_rows:
            return near
        later = (inputs[n:], keys[n:], self.variance[n:])
        return insert_nearby(near, *later, n_threads=self.n_threads)

    @computed_once
    def left_out_bound(self) -> Floats:
        """Variance of f at each training row from nearby rows but itself, (n,), without factor."""
        return left_out_variance(self.nearby, n_threads=self.n_threads)

    @computed_once
    def left_out_solved(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Rows whose mean, left out, depends most on their variance, and these variances by solves.

        (r,) each, r = 0 if there are few rows or very many. Nearby rows do not tell enough of a row
        that resembles many far ones. Its bound v is then several times too large, and moves its
        mean, fitted - alpha v, as far. With x ~ A^-1 e_i, x_i^2 / x'Ax is at most (A^-1)_ii.
        """
        n = self.forest.n_rows
        n_solved = 0 if self.exact else min(SOLVED_ROWS, SOLVED_FLOATS // n, n)
        if not n_solved:
            return np.zeros(0, np.int64), np.zeros(0)
        moved = np.abs(self.alpha).reshape(n, -1).max(axis=1) * np.square(self.left_out_bound)
        rows, column = np.sort(np.argsort(-moved, kind="stable")[:n_solved]), np.arange(n_solved)
        unit = np.zeros((n, n_solved))
        unit[rows, column] = 1.0
        with one_blas_thread():
            x = solve_rows(self, unit, SOLVED_TOLERANCE)
            image = multiply(self.forest, x) + self.variance[:, None] * x
        var = np.einsum("nr,nr->r", x, image) / np.square(x[rows, column]) - self.variance[rows]
        return rows, np.clip(var, 0.0, self.forest.prior_variance)

    @computed_once
    def evidence(self) -> tuple[Evidence, ...]:
        """Log marginal likelihood of each target, with the standard error of its estimate."""
        targets = self.rows.y.reshape(self.rows.n_rows, -1)
        with one_blas_thread():
            if self.exact:
                return exact_evidence(self.root, targets, self.forest.engine)
            rng = np.random.default_rng(self.seed)
            given = (self.forest, self.variance, targets, self.preconditioner)
            return evidence_of_targets(*given, rng)

    @property
    def exact(self) -> bool:
        """Whether there are few enough rows for dense algebra."""
        return is_exact(self.forest.n_rows)

    @computed_once
    def root(self) -> Floats:
        """Lower Cholesky factor of K + noise, (n, n): for few rows. O(n^2 T + n^3)."""
        with one_blas_thread():  # more of them round in other ways
            return factor_rows(self.forest, self.variance)

    @computed_once
    def exact_diagonal(self) -> Floats:
        """Diagonal of (K + noise)^-1, (n,), by dense algebra: for few rows."""
        with one_blas_thread():
            return inverse_diagonal(self.root)

    @computed_once
    def fitted(self) -> Floats:
        """Mean of f at the training rows, K alpha, (n,) or (n, k).

        New rows are predicted by alpha, too. y - noise alpha is the same after an exact solve only.
        """
        return multiply(self.forest, self.alpha)

    def scale_inputs(self, inputs: Floats) -> Floats:
        """Inputs whose distances tell which rows are near: over lengthscales, if there are any.

        Parameters
        ----------
        inputs : float64 (n, p)
            Inputs of the smooth part.
        """
        if self.smooth is not None:
            return np.asarray(inputs / self.smooth.kernel.lengthscale)
        return np.asarray(inputs * self._relevance)

    @computed_once
    def _relevance(self) -> Floats:
        """Without lengthscales: root of the share of each input's feature in the trees, (p,)."""
        share = np.zeros(self.encoders[0].n_working)
        for encoder, order in zip(self.encoders, self.orders, strict=True):
            features = features_of(encoder)[order.key_bits]
            share += np.bincount(features, -np.diff(order.levels), share.size)
        root: Floats = np.sqrt(share / (share.max() or 1.0))  # 0: no tree has a weight
        return root[self.coordinates.feature_of]


def precondition(
    forest: Forest,
    process: Any,
    variance: Floats,
    seed: int,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
    share: float = 1.0,
) -> Preconditioner:
    """Preconditioner of the usual size, or of a share of it.

    With a smooth part in linear time it takes neighbours, otherwise random rows and blocks.
    process: the rows, for covariances between any of them; used with neighbours.
    """
    n, rng = forest.n_rows, np.random.default_rng(seed)
    if isinstance(forest.smooth, Linear):
        columns = tree_columns(share)
        given = (forest, process, forest.smooth.induced, variance, columns, rng, tell)
        return precondition_neighbours(*given)
    rank = max(1, round(share * rank_for(n)))
    return make_preconditioner(forest, variance, rank, rng, watch, tell)


def rank_for(n_rows: int) -> int:
    """Rank of a preconditioner: 1,000, less for many rows to bound its memory, at least 32."""
    return min(RANK, max(32, BASIS_FLOATS // n_rows))


def tree_columns(share: float = 1.0) -> int:
    """Columns of the trees in a preconditioner with neighbours: a share of 256, at least 32."""
    return max(FEWEST_COLUMNS, round(share * TREE_COLUMNS))


def tolerance_for(rows: Rows) -> float:
    """Relative residual at which the solve for alpha ends: 1e-5 up to 20,000 rows, at most 1e-2.

    Its product with the root mean square of the targets, about 1, bounds the error of the mean at
    training rows in root mean square. That is to be small beside the noise.
    """
    if rows.n_rows <= ACCURATE_ROWS:
        return TOLERANCE
    deviation = float(np.sqrt(np.min(rows.variance)))
    return float(np.clip(NOISE_SHARE * deviation, TOLERANCE, LARGEST_TOLERANCE))


def solve_rows(model: ForestModel, b: Floats, tolerance: float) -> Floats:
    """(K + noise)^-1 b for b (n,) or (n, k); tolerance: relative residual, of many rows."""
    if model.exact:
        with one_blas_thread():
            return solve_factored(model.root, b)
    found = solve_forest(
        model.forest,
        model.variance,
        b,
        preconditioner=model.preconditioner,
        tolerance=tolerance,
    )
    return np.asarray(found.x)


def column_of(values: Floats, column: int) -> Floats:
    """Values of one target, (n,), given those of all targets, (n, k), or of the only one, (n,)."""
    return values if values.ndim == 1 else values[:, column]


def sum_paths(alone: Engine, trie: Trie, levels: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Sums of weights (n,) or (n, k) below every id of a tree, and along the path to it.

    (2n,) or (2n, k) each. weights: in the order of the keys.
    """
    if weights.ndim == 1:
        return alone.path_sums(trie.links, levels, weights)
    shape = (2 * trie.n_rows, weights.shape[1])
    below, path = np.empty(shape), np.empty(shape)
    for c in range(shape[1]):
        column = np.ascontiguousarray(weights[:, c])
        below[:, c], path[:, c] = alone.path_sums(trie.links, levels, column)
    return below, path


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

    total: Floats = np.sum(model.forest.engine.each(runs, range(len(model.orders))), axis=0)
    return total
