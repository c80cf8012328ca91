"""A forest conditioned on data: what predicts.

The mean at a new row is a sum over trees of what the node sums of alpha = (K + noise)^-1 y say on
the row's path; it needs no training rows. Variances need solves: see `spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import Nystrom, fit_nystrom
from triegp.additive.solve import Solution, solve_forest
from triegp.additive.tails import Tails
from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import Engine
from triegp.tree.observations import Observations
from triegp.tree.order import BitOrder
from triegp.tree.posterior import select_codes
from triegp.tree.trie import insert_rows, sorted_keys

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Data = npt.NDArray[Any]  # what `real_array` gives

RANK = 400
BASIS_FLOATS = 1 << 25  # that a preconditioner may hold
TOLERANCE = 1e-5
VARIANCES = ("auto", "exact", "samples", "cheap")


@dataclass(frozen=True)
class Manner:
    """How variances are found.

    Attributes
    ----------
    variance : {"auto", "exact", "samples", "cheap"}
        By solves, by samples, by whichever costs less, or in one pass without either.
    error : float
        Relative standard error of a variance by samples.
    seed : int
        Of the samples.
    """

    variance: str = "auto"
    error: float = 0.1
    seed: int = 0

    @property
    def n_samples(self) -> int:
        """Samples that give the error: a variance from S of them has that of chi-square, 2 / S."""
        return max(2, int(np.ceil(2.0 / self.error**2)))


@dataclass(frozen=True, eq=False)
class ForestModel:
    """A forest, its rows and what they say.

    Attributes
    ----------
    encoders : tuple of BitEncoder
        One a tree, on its own grid.
    orders : tuple of BitOrder
        One a tree.
    noise : float
        Noise that all rows share, nuggets not included.
    forest : Forest
        Their tries over the rows that count.
    keys : tuple of uint64 (n, w)
        Sorted keys of each trie.
    rows : Observations
        Targets, noise (n,) and weights of the rows that count.
    present : bool (n_all,)
        Which of all rows these are: those whose weight is not 0.
    alpha : float64 (n,)
        (K + noise)^-1 y.
    residual : float
        Relative residual of alpha.
    tails : Tails
        How far new observations scatter, in predicted deviations.
    manner : Manner
        How variances are found.
    known_diagonal : float64 (n,) or None
        Diagonal of (K + noise)^-1, if it was found already.
    known_preconditioner : Nystrom or None
        For solves with these rows, if it was made already; not in files.
    """

    encoders: tuple[BitEncoder, ...]
    orders: tuple[BitOrder, ...]
    noise: float
    forest: Forest
    keys: tuple[Words, ...]
    rows: Observations
    present: npt.NDArray[np.bool_]
    alpha: Floats
    residual: float
    tails: Tails
    manner: Manner
    known_diagonal: Floats | None = None
    known_preconditioner: Nystrom | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: not what can be made again."""
        names = {field.name for field in fields(self)}
        kept = {name: value for name, value in self.__dict__.items() if name in names}
        return {**kept, "known_preconditioner": None}

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return int(self.present.size)

    @property
    def new_noise(self) -> float:
        """Variance that a new observation has on top of f's: noise and nuggets."""
        return self.noise + sum(order.nugget_variance for order in self.orders)

    @property
    def variance(self) -> Floats:
        """Of each row's target given f, (n,)."""
        return np.broadcast_to(self.rows.variance, self.rows.y.shape)

    @cached_property
    def preconditioner(self) -> Nystrom:
        """For solves with these rows; made when first needed."""
        if self.known_preconditioner is not None:
            return self.known_preconditioner
        return precondition(self.forest, self.variance, self.manner.seed)

    @cached_property
    def paths(self) -> list[tuple[Floats, Floats]]:
        """Of every tree, sums of alpha below each id, and the mean on the path down to it."""

        def walk(alone: Engine, t: int) -> tuple[Floats, Floats]:
            trie = self.forest.tries[t]
            return alone.path_sums(trie.links, self.forest.levels[t], trie.sort(self.alpha))

        return self.forest.engine.each(walk, range(len(self.orders)))


def precondition(forest: Forest, variance: Floats, seed: int) -> Nystrom:
    """A preconditioner of as high a rank as its memory allows, at most 400."""
    rank = rank_for(forest.n_rows)
    return fit_nystrom(forest, variance, rank, np.random.default_rng(seed))


def rank_for(n_rows: int) -> int:
    """Rank of a preconditioner for so many rows."""
    return min(RANK, max(32, BASIS_FLOATS // n_rows))


def solve_rows(model: ForestModel, b: Floats, tolerance: float) -> Solution:
    """(K + noise)^-1 b, for b (n,) or (n, k), in the memory of the model's engine."""
    return solve_forest(
        model.forest,
        model.variance,
        model.forest.engine.hold(b),
        preconditioner=model.preconditioner,
        tolerance=tolerance,
    )


def encode_inside(model: ForestModel, X: Data) -> tuple[Ints, list[Codes]]:
    """Which rows lie inside the box, and their codes for every tree."""
    codes = encode_grids(model.encoders, X, model.forest.engine)
    outside = codes[0].outside  # the box is the same for all
    if outside is None or not outside.any():
        return np.arange(X.shape[0]), codes
    inner = np.flatnonzero(~outside)
    return inner, [select_codes(part, inner) for part in codes]


def forest_mean(model: ForestModel, X: Data) -> Floats:
    """Mean of f at new rows, (m,): 0 outside the box. O(m T (q / 8 + log n))."""
    inner, codes = encode_inside(model, X)
    mean = np.zeros(X.shape[0])
    if inner.size:
        mean[inner] = _mean_inside(model, codes)
    return mean


def _mean_inside(model: ForestModel, codes: Sequence[Codes]) -> Floats:
    paths = model.paths

    def read(alone: Engine, t: int) -> Floats:
        trie, levels = model.forest.tries[t], model.forest.levels[t]
        row_idx, _, query = sorted_keys(trie, codes[t])
        at = alone.locate(trie.links, model.keys[t], query, row_idx)
        below, path = paths[t]
        left_out = levels[at.leaves_at] - levels[trie.links.depth[at.node]]
        out = np.empty(row_idx.size)
        out[at.row_idx] = path[at.node] - left_out * below[at.node]
        return out

    total: Floats = np.zeros(codes[0].n_rows)
    for part in model.forest.engine.each(read, range(len(codes))):
        total += part
    return total


def joint_forest(model: ForestModel, codes: Sequence[Codes]) -> Forest:
    """The forest over training rows and, after them, new rows inside the box. O((n + m) T)."""

    def insert(_: Engine, t: int) -> Any:
        return insert_rows(model.forest.tries[t], model.keys[t], codes[t])[0]

    tries = model.forest.engine.each(insert, range(len(codes)))
    return Forest(tuple(tries), model.forest.levels)
