"""A variance in one pass: what each tree alone leaves open, calibrated on leave-one-out.

Every tree is asked as if it were the whole kernel, at O(log n) a row and without a solve; the mean
of their variances knows where rows are dense and where they are not. It is too large, since a sum
of trees sees finer than any of them. How the true variance follows from it, v = exp(a) cheap^b, is
learned from the training rows, whose leave-one-out variances are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.additive.model import ForestModel, Points, keys_of
from triegp.engines import Engine

Floats = npt.NDArray[np.float64]
N_BINS = 20
BIN_ROWS = 20  # at least

Messages = tuple[tuple[Floats, Floats], tuple[Floats, Floats], npt.NDArray[np.int32], Floats]


@dataclass(frozen=True, eq=False)
class Cheap:
    """What a cheap variance takes.

    Attributes
    ----------
    messages : list
        Of every tree: inside and outside messages, their depths, and its levels, scaled up.
    intercept, slope : float
        log v = intercept + slope log cheap.
    """

    messages: list[Messages]
    intercept: float
    slope: float


def learn_cheap(model: ForestModel, leave_one_out: Floats) -> Cheap:
    """Messages of all trees, and how variances follow from theirs.

    leave_one_out: float64 (n,), variance of f at every row given the others, or unbiased estimates
    of it. O(n T).
    """
    variance = model.variance

    def sweep(alone: Engine, t: int) -> tuple[Messages, Floats]:
        trie, levels = model.forest.tries[t], _whole(model, t)
        m = np.zeros(2 * trie.n_rows)
        s = np.zeros(2 * trie.n_rows)
        s[: trie.n_rows] = trie.sort(variance)
        alone.inside(trie.links, levels, m, s)
        mo, so, above = alone.outside(trie.links, levels, m, s)
        nothing = np.array([np.inf])
        _, var = alone.leave_out(trie.links, levels, (mo, so, above), m, nothing)
        return ((m, s), (mo, so), above, levels), np.asarray(trie.unsort(var))

    found = model.forest.engine.each(sweep, range(len(model.orders)))
    cheap = np.mean([var for _, var in found], axis=0)
    intercept, slope = _follow(cheap, leave_one_out)
    return Cheap([messages for messages, _ in found], intercept, slope)


def _follow(cheap: Floats, truth: Floats) -> tuple[float, float]:
    """How log v follows from log cheap: a line through the means of both in bins of equal size.

    truth may have noise, and be negative; its means are not, where there is something to see.
    """
    order = np.argsort(cheap)
    bins = np.array_split(order, max(1, min(N_BINS, order.size // BIN_ROWS)))
    pairs = np.array([(cheap[some].mean(), truth[some].mean()) for some in bins])
    pairs = pairs[(pairs > 0).all(axis=1)]
    if not len(pairs):
        return 0.0, 1.0
    x, y = np.log(pairs).T
    apart = x - x.mean()
    size = float(apart @ apart)
    slope = float(np.clip(apart @ y / size, 0.0, 4.0)) if size > 1e-12 else 1.0
    return float(y.mean() - slope * x.mean()), slope


def cheap_variance(model: ForestModel, cheap: Cheap, points: Points) -> Floats:
    """Variance of f at new rows inside the box, (m,). O(m T log n), no solve."""
    n_trees = len(model.orders)

    def ask(alone: Engine, t: int) -> Floats:
        trie = model.forest.tries[t]
        inside, outside, _, levels = cheap.messages[t]
        query = keys_of(model, points, t)
        located = alone.locate(trie.links, model.keys[t], query.keys, query.row_idx)
        _, var = alone.predict(trie.links, levels, located, inside, outside, with_var=True)
        assert var is not None
        return var

    total: Floats = np.zeros(points.inner.size)
    for part in model.forest.engine.each(ask, range(n_trees)):
        total += part
    prior = model.forest.prior_variance
    size = np.log(np.maximum(total / n_trees, 1e-12 * prior))
    return np.minimum(np.exp(cheap.intercept + cheap.slope * size), prior)


def _whole(model: ForestModel, t: int) -> Floats:
    """Levels of a tree, scaled up to the variance of the forest."""
    levels = model.forest.levels[t]
    own = float(levels[0] - levels[-1])
    return levels * (model.forest.prior_variance / own if own > 0 else 1.0)
