"""Inputs as the smooth part reads them: every feature standardised, and by rank where that differs.

A kernel with one lengthscale per coordinate then chooses between value and rank for each feature.
Coordinates of rank end at the border of the training box; standardised ones go on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_KNOTS = 257  # of the distribution function of a feature
FURTHEST = 1e9  # deviations from the mean; a row further out counts as this far
SAME = 0.995  # correlation of value and rank above which the rank adds nothing


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Which coordinates the smooth part has, and how features become coordinates.

    Attributes
    ----------
    features : int64 (a,)
        Features that vary; each is a standardised coordinate.
    center, spread : float64 (a,)
        Mean and standard deviation of these features.
    ranked : int64 (b,)
        Features that are a coordinate by rank, too.
    knots, ranks : float64 (b, 257)
        Quantiles of each of these features, increasing, and the rank at each: uniform on an
        interval of variance 1, and 0 in the middle.
    """

    features: Ints
    center: Floats
    spread: Floats
    ranked: Ints
    knots: Floats
    ranks: Floats

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates, a + b."""
        return int(self.features.size + self.ranked.size)

    @property
    def feature_of(self) -> Ints:
        """Feature of each coordinate, int64 (a + b,)."""
        return np.append(self.features, self.ranked)


def fit_coordinates(X: npt.NDArray[np.floating]) -> Coordinates:
    """Coordinates for the training rows X (n, d). O(n d log n)."""
    every = np.asarray(X, np.float64)
    largest = np.abs(every).max(axis=0, initial=0.0)
    unit = np.frexp(largest)[1]  # powers of 2: nothing overflows, and nothing is rounded
    every = np.ldexp(every, -unit)
    center, spread = every.mean(axis=0), every.std(axis=0)
    features = np.flatnonzero(spread > 1e-12 * np.ldexp(largest, -unit))
    ranked, knots, ranks = [], [], []
    share = np.linspace(0.0, 1.0, N_KNOTS)
    for j in features.tolist():
        own = np.sort(every[:, j])
        knot = np.quantile(own, share)
        # A value that repeats has the middle of its ranks.
        first, last = (np.searchsorted(own, knot, side) / own.size for side in ("left", "right"))
        rank = np.sqrt(12.0) * (0.5 * (first + last) - 0.5)
        by_rank = np.interp(every[:, j], knot, rank)
        by_rank = np.nan_to_num(by_rank).clip(rank[0], rank[-1])  # between subnormal knots
        if abs(_correlation(every[:, j], by_rank)) < SAME:
            ranked.append(j)
            knots.append(np.ldexp(knot, unit[j]))
            ranks.append(rank)
    shape = (len(ranked), N_KNOTS)
    return Coordinates(
        features,
        np.ldexp(center, unit)[features],
        np.ldexp(spread, unit)[features],
        np.array(ranked, np.int64),
        np.array(knots, np.float64).reshape(shape),
        np.array(ranks, np.float64).reshape(shape),
    )


def coordinates_of(coordinates: Coordinates, X: npt.NDArray[np.floating]) -> Floats:
    """Coordinates of rows X (n, d), float64 (n, a + b). O(n (a + b))."""
    a = coordinates.features.size
    out = np.empty((X.shape[0], coordinates.n_coordinates))
    with np.errstate(over="ignore"):
        out[:, :a] = (X[:, coordinates.features] - coordinates.center) / coordinates.spread
    np.clip(out[:, :a], -FURTHEST, FURTHEST, out=out[:, :a])
    table = zip(coordinates.ranked.tolist(), coordinates.knots, coordinates.ranks, strict=True)
    for k, (j, knot, rank) in enumerate(table):
        out[:, a + k] = np.interp(X[:, j], knot, rank)
    return out


def _correlation(x: Floats, z: Floats) -> float:
    apart, other = x - x.mean(), z - z.mean()
    size = float(np.sqrt((apart @ apart) * (other @ other)))
    return float(apart @ other) / size if size > 0 else 1.0
