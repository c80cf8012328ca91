"""Functions drawn from the posterior of a forest, by pathwise conditioning.

Draw a function g of the prior: a keyed walk down every tree (`triegp.tree.draws`) and a draw of the
smooth part (`triegp.smooth.draws`). Draw noise e at the training rows, and solve once:

    f(x) = g(x) + k(x, X) (K + noise)^-1 (y - g(X) - e).

f is an exact draw of the posterior, up to the tolerance of the solve. To evaluate it, a row needs
its walk down every tree and the sums of the weights along the same path: O(T (D + log n)).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.model import ForestModel, column_of, solve_rows, sum_paths
from triegp.additive.points import Points, keys_of
from triegp.additive.variance import (
    COLUMNS,
    sample_tolerance,
    unrelated_variance,
    unseen_variance,
)
from triegp.engines import Engine, draws, threads_of
from triegp.models.draws import Stream, normals_of, seeds_for

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

KEPT_BYTES = 1 << 29  # largest sums of weights that are kept
TREES_AT_ONCE = 8


@dataclass(frozen=True, eq=False)
class ForestDraws:
    """Functions drawn from the posterior of a forest.

    Attributes
    ----------
    seeds : uint64 (k,)
        One per function.
    weights : float64 (n, k)
        (K + noise)^-1 (y - g(X) - e) of each function.
    smooth : object or None
        The functions of the smooth part, conditioned; None without smooth part.
    """

    seeds: Words
    weights: Floats
    smooth: Any

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def select(self, some: npt.NDArray[Any]) -> ForestDraws:
        """Some of the functions."""
        smooth = None if self.smooth is None else self.smooth.select(some)
        return ForestDraws(self.seeds[some], self.weights[:, some], smooth)


def prepare_forest(model: ForestModel, seeds: Words, column: int = 0) -> ForestDraws:
    """Draw functions with these seeds, (k,). One solve each, 16 at a time; O(n (T D + S)) each.

    column: index of the target.
    """
    forest, n = model.forest, model.forest.n_rows
    total: Floats = np.zeros((n, seeds.size))

    def walk(alone: Engine, t: int) -> Floats:
        trie, own = forest.tries[t], seeds_for(seeds, Stream.TREE, t)
        given = (model.keys[t], trie.links.lcp, forest.levels[t])
        return np.asarray(trie.unsort(draws.walk_prior(*given, own, threads_of(alone))))

    _add_trees(model, walk, total)
    smooth = None
    if model.smooth is not None:
        smooth, at_rows = model.smooth.start_draws(seeds)
        total += at_rows
    total += np.sqrt(model.variance)[:, None] * normals_of(seeds, Stream.NOISE, np.arange(n))
    weights, tolerance = np.empty_like(total), sample_tolerance(model)
    for first in range(0, seeds.size, COLUMNS):
        some = slice(first, first + COLUMNS)
        found = solve_rows(model, total[:, some].copy(), tolerance)
        weights[:, some] = column_of(model.alpha, column)[:, None] - found
    if model.smooth is not None:
        smooth = model.smooth.finish_draws(smooth, weights)
    return ForestDraws(seeds, weights, smooth)


def evaluate_forest(model: ForestModel, points: Points, drawn: ForestDraws, names: Words) -> Floats:
    """Functions at m new rows, (m, k); names: hashes of the rows. O(m k T (D + log n)).

    A value does not depend on the other rows. Rows outside the box have the variance of y without
    noise, independently of each other, if they are unrelated to the data.
    """
    inner, seeds = points.inner, drawn.seeds
    out = np.empty((points.n_rows, seeds.size))
    if inner.size < points.n_rows:
        beyond = np.setdiff1d(np.arange(points.n_rows), inner)
        fresh = normals_of(seeds, Stream.BEYOND, names[beyond])
        out[beyond] = np.sqrt(unrelated_variance(model)) * fresh
    if not inner.size:
        return out
    found: Floats = np.zeros((inner.size, seeds.size))
    sums = _sums(model, drawn)

    def read(alone: Engine, t: int) -> Floats:
        trie, levels = model.forest.tries[t], model.forest.levels[t]
        query = keys_of(model, points, t)
        own = seeds_for(seeds, Stream.TREE, t)
        part = draws.walk_prior(query.keys, query.lcp, levels, own, threads_of(alone))
        at = alone.locate(trie.links, model.keys[t], query.keys, query.row_idx)
        below, path = _path_sums(model, drawn, alone, t) if sums is None else sums[t]
        left_out = levels[at.leaves_at] - levels[trie.links.depth[at.node]]
        part += path[at.node] - left_out[:, None] * below[at.node]
        values = np.empty_like(part)
        values[at.row_idx] = part
        return values

    _add_trees(model, read, found)
    fade = points.fade[:, None]
    if (fade < 1.0).any():
        rest = model.forest.tree_variance + unseen_variance(model)
        fresh = np.sqrt((1.0 - np.square(fade)) * rest)
        found = fade * found + fresh * normals_of(seeds, Stream.FADED, names[inner])
    if model.smooth is not None:
        found += model.smooth.evaluate_draws(drawn.smooth, points.inputs, points.smooth)
    out[inner] = found
    return out


def _add_trees(model: ForestModel, work: Any, total: Floats) -> None:
    """Add work(engine, t) of all trees to the total, in their order, some at a time."""
    n_trees, engine = len(model.orders), model.forest.engine
    for first in range(0, n_trees, TREES_AT_ONCE):
        trees = range(first, min(first + TREES_AT_ONCE, n_trees))
        for part in engine.each(work, trees):
            total += part


def _sums(model: ForestModel, drawn: ForestDraws) -> list[tuple[Floats, Floats]] | None:
    """Sums of the weights along the paths of all trees; None if they are too large to be kept."""
    n_trees = len(model.orders)
    if 32 * drawn.weights.size * n_trees > KEPT_BYTES:
        return None
    kept = drawn.__dict__.get("_kept")
    if kept is None or kept[0] is not model:
        engine = model.forest.engine
        work = engine.each(lambda alone, t: _path_sums(model, drawn, alone, t), range(n_trees))
        kept = drawn.__dict__["_kept"] = (model, work)
    found: list[tuple[Floats, Floats]] = kept[1]
    return found


def _path_sums(
    model: ForestModel, drawn: ForestDraws, alone: Engine, t: int
) -> tuple[Floats, Floats]:
    """Sums of the weights below every id of a tree, and along the path to it, (2n, k) each."""
    trie, levels = model.forest.tries[t], model.forest.levels[t]
    return sum_paths(alone, trie, levels, trie.sort(drawn.weights))
