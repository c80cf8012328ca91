"""Main effects: a sum of functions of one feature each, which many rows determine almost exactly.

Each function is linear between knots, the quantiles of its feature, and starts as a random walk:
its increments from knot to knot are independent N(0, s_j). With the ramp of an increment, 0 before
its two knots and 1 behind them, this is ridge regression on ramps. The variances s_j and that of
what is left are those of highest marginal likelihood (MacKay's fixed point).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.engines import lapack
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_KNOTS, ALL_KNOTS = 257, 2_056  # of a feature, and of all together
MOST_FEATURES = 64
QUANTILE_ROWS = 200_000  # rows that knots are taken from
FEWEST_SUMMED, SUMMED_PAIRS = 1 << 16, 1 << 28  # rows, and rows times features squared: two seconds
ROWS_AT_ONCE = 1 << 16
ROUNDS = 8  # of the fixed point; a ninth changes a fit by 1 % of its error (`bench.pace`)
LEAST_VARIANCE = 1e-12  # of an increment or of what is left, relative to the variance of y


@dataclass(frozen=True, eq=False)
class MainEffects:
    """A sum of functions of one feature each, for k targets.

    Attributes
    ----------
    features : int64 (a,)
        The feature of each function.
    starts : int64 (a + 1,)
        Where the knots of each function start, and their number, K.
    knots : float64 (K,)
        Knots, increasing within each function.
    values : float64 (K, k)
        Values at the knots.
    level : float64 (k,)
        What is added to the sum.
    spread : float64 (a, k)
        Variance of each function over the rows that it was learned from.
    """

    features: Ints
    starts: Ints
    knots: Floats
    values: Floats
    level: Floats
    spread: Floats

    def at(self, X: npt.NDArray[np.floating]) -> Floats:
        """The sum at rows X (n, d), (n, k); each function is constant beyond its last knots."""
        out: Floats = np.tile(self.level, (X.shape[0], 1))
        for j, lo, hi in zip(self.features, self.starts[:-1], self.starts[1:], strict=True):
            for c in range(self.level.size):
                out[:, c] += np.interp(X[:, j], self.knots[lo:hi], self.values[lo:hi, c])
        return out


def no_effects(n_targets: int) -> MainEffects:
    """The function 0 for each target."""
    nothing, starts = np.empty((0, n_targets)), np.zeros(1, np.int64)
    level = np.zeros(n_targets)
    return MainEffects(np.empty(0, np.int64), starts, np.empty(0), nothing, level, nothing)


def fit_effects(rows: Rows) -> MainEffects:
    """Main effects of rows (n, d) with targets (n, k). O(n d + m d^2 + K^3) for K knots.

    Of more than 64 features, those that explain most alone. With many features only the first m
    rows are used, at least 65,536.
    """
    found = _choose_features(rows)
    n_summed = max(FEWEST_SUMMED, SUMMED_PAIRS // max(len(found), 1) ** 2)
    rows = rows.select(slice(n_summed))
    X, y = rows.features, rows.y
    features, knots = np.array([j for j, _ in found], np.int64), [own for _, own in found]
    ends = np.cumsum([own.size for own in knots], dtype=np.int64)
    weight = trust(rows)
    level = np.average(y, axis=0, weights=weight)
    if not features.size:
        return replace(no_effects(level.size), level=level)
    gram, moments = _sum_ramps(X, y - level, weight, features, knots)
    owner = np.repeat(np.arange(features.size), ends - np.append(0, ends[:-1]) - 1)
    values, total = np.empty((int(ends[-1]), level.size)), float(weight.sum())
    spread = np.empty((features.size, level.size))
    mean = gram[-1, :-1] / total  # of the ramps: the last column of the sums is constant 1
    gram = gram[:-1, :-1] - total * np.outer(mean, mean)
    for c in range(y.shape[1]):
        square = float(weight @ np.square(y[:, c] - level[c]))
        steps, _, _ = solve_ridge(gram, moments[:-1, c], square, total, owner)
        level[c] -= mean @ steps
        for a, hi in enumerate(ends):
            own = owner == a
            values[hi - knots[a].size : hi, c] = np.append(0.0, np.cumsum(steps[own]))
            size = float(steps[own] @ gram[np.ix_(own, own)] @ steps[own])
            spread[a, c] = max(size / total, 0.0)
    starts = np.append(0, ends)
    return MainEffects(features, starts, np.concatenate(knots), values, level, spread)


def trust(rows: Rows) -> Floats:
    """Weight of each row in sums of squares, (n,): its own, less for rows of known noise.

    Noise is compared with the variance of y, 1. Small weights are scaled, so that their sum is the
    number of rows: they say which rows count more, not that there are few.
    """
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    if rows.known_noise is not None:
        known = rows.known_noise
        weight = weight / (1.0 + (known if known.ndim == 1 else known.mean(axis=1)))
    return np.asarray(weight * max(1.0, rows.n_rows / float(weight.sum())))


def _choose_features(rows: Rows) -> list[tuple[int, Floats]]:
    """Features that vary, at most 64, and their knots."""
    some = rows.select(slice(QUANTILE_ROWS))
    varying = np.flatnonzero(some.features.max(axis=0) > some.features.min(axis=0))
    n_knots = max(2, min(MOST_KNOTS, ALL_KNOTS // max(min(varying.size, MOST_FEATURES), 1)))
    share, y, found = np.linspace(0.0, 1.0, n_knots), some.y - some.y.mean(axis=0), []
    for j in varying.tolist():
        x = some.features[:, j].astype(np.float64)
        knots = np.unique(np.quantile(x, share, method="nearest"))
        at = np.searchsorted(knots, x)
        sums = [np.bincount(at, own, knots.size) for own in y.T]
        explained = (np.square(sums) / np.maximum(np.bincount(at, minlength=knots.size), 1)).sum()
        found.append((float(explained), j, knots))
    best = sorted(found, key=lambda own: own[0], reverse=True)[:MOST_FEATURES]
    return sorted(((j, knots) for _, j, knots in best), key=lambda own: own[0])


def _sum_ramps(
    X: npt.NDArray[np.floating],
    y: Floats,
    weight: Floats,
    features: Ints,
    knots: list[Floats],
) -> tuple[Floats, Floats]:
    """Sums over the rows of products of ramps with each other, (q + 1, q + 1), and with y.

    The last ramp is 1 everywhere. A row lies between two knots of each feature, so that it is the
    sum of two hats, and a ramp is the sum of all hats behind it.
    """
    sizes = np.array([own.size for own in knots])
    offset = np.append(0, np.cumsum(sizes))
    hats, by_y = np.zeros((offset[-1], offset[-1])), np.zeros((offset[-1], y.shape[1]))
    for lo in range(0, X.shape[0], ROWS_AT_ONCE):
        some = slice(lo, lo + ROWS_AT_ONCE)
        sides = [_hats(X[some, j], own) for j, own in zip(features, knots, strict=True)]
        for a, one in enumerate(sides):
            for at, share in one:
                for c in range(y.shape[1]):
                    own = share * weight[some] * y[some, c]
                    by_y[offset[a] : offset[a + 1], c] += np.bincount(at, own, sizes[a])
            for b, other in enumerate(sides[: a + 1]):
                block = hats[offset[a] : offset[a + 1], offset[b] : offset[b + 1]]
                for at, share in one:
                    for there, part in other:
                        product = share * part * weight[some]
                        pair = at * sizes[b] + there
                        block += np.bincount(pair, product, block.size).reshape(block.shape)
    rows, columns = np.tril_indices(offset[-1], -1)
    hats[columns, rows] = hats[rows, columns]

    def behind(sums: Floats) -> Floats:
        """Sums of the hats behind each knot but the first, and of all hats of one feature."""
        parts = [np.cumsum(own[::-1], axis=0)[::-1] for own in np.split(sums, offset[1:-1])]
        return np.concatenate([*(own[1:] for own in parts), parts[-1][:1]])

    return behind(behind(hats).T), behind(by_y)


def _hats(x: npt.NDArray[np.floating], knots: Floats) -> list[tuple[Ints, Floats]]:
    """The two knots around each value, and their shares, which sum to 1."""
    low = np.clip(np.searchsorted(knots, x, "right") - 1, 0, knots.size - 2)
    share = np.clip((x - knots[low]) / (knots[low + 1] - knots[low]), 0.0, 1.0)
    return [(low, 1.0 - share), (low + 1, share)]


def solve_ridge(
    gram: Floats, moment: Floats, square: float, count: float, owner: Ints, n_rounds: int = ROUNDS
) -> tuple[Floats, Floats, float]:
    """Posterior mean of increments, (q,), their variances, (a,), and that of what is left.

    gram: of the ramps; moment: of ramps and targets; square: of the targets; count: of the rows.
    owner: int64 (q,), function of each increment. The variances are those that the mean was
    computed with.
    """
    least = LEAST_VARIANCE * max(square / count, 1e-300)
    noise = max(square / count, least)
    variance = np.full(int(owner.max()) + 1, noise)
    steps, before = np.zeros_like(moment), (variance, noise)
    for _ in range(n_rounds):
        before, root = (variance, noise), np.sqrt(variance[owner])
        inverse = root[:, None] * gram * (root / noise)
        inverse[np.diag_indices_from(inverse)] += 1.0
        if not (lapack.cholesky(inverse) and lapack.invert(inverse)):
            raise np.linalg.LinAlgError("the sums of main effects are not finite")
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        steps = root * (inverse @ (root * moment / noise))
        known = np.bincount(owner, 1.0 - np.diag(inverse))  # increments that the rows determine
        noise = (square - 2.0 * steps @ moment + steps @ gram @ steps) / (count - known.sum())
        noise = max(noise, least)
        size = np.bincount(owner, np.square(steps))
        variance = np.maximum(size / np.maximum(known, 1e-9), least)
    return np.asarray(steps), *before
