"""Posterior variances without solves: the mean over single trees, calibrated by leave-one-out.

Each tree predicts a variance as if it were the whole kernel. That takes O(log n) per row and tree,
and no solve. The mean of these variances is small where training rows are dense and large where
they are sparse. It is too large overall, because the sum of trees resolves finer cells than any
single tree. The correction v = exp(a) cheap^b is fitted to the leave-one-out variances of the
training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.additive.model import ForestModel, Points, keys_of
from triegp.engines import Engine

Floats = npt.NDArray[np.float64]
N_BINS = 20
BIN_ROWS = 20  # smallest number of rows per bin, unless there is one bin

Messages = tuple[tuple[Floats, Floats], tuple[Floats, Floats], npt.NDArray[np.int32], Floats]


@dataclass(frozen=True, eq=False)
class Cheap:
    """What `cheap_variance` needs.

    Attributes
    ----------
    messages : list of tuple
        One entry per tree: inside messages, outside messages, depths of the outside messages, and
        the tree's levels scaled up to the prior variance of the forest.
    intercept, slope : float
        log v = intercept + slope * log(cheap), with cheap the mean of the trees' variances.
    """

    messages: list[Messages]
    intercept: float
    slope: float


def learn_cheap(model: ForestModel, leave_one_out: Floats) -> Cheap:
    """Compute the messages of all trees, and fit the correction of their mean variance.

    leave_one_out: float64 (n,), variance of f at each row given all other rows, or unbiased
    estimates of it. O(n T).
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
    """Fit log(truth) = intercept + slope * log(cheap) to the means in bins of equal size.

    Entries of truth may be noisy and even negative, so bins are averaged first. Bins whose mean is
    not positive are left out.
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
    """Approximate posterior variance of f at new rows inside the box, (m,).

    O(m T log n), without a solve.
    """
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
    """Levels of tree t, scaled so that its prior variance is that of the forest."""
    levels = model.forest.levels[t]
    own = float(levels[0] - levels[-1])
    return levels * (model.forest.prior_variance / own if own > 0 else 1.0)
