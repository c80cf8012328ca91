"""Predictions beside what was observed: of one target, by leave-one-out or of a test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.metrics import nll, pit
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transformed import TransformedDistribution

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Distribution = PredictiveDistribution | TransformedDistribution

LEAVE_ONE_OUT, TEST_SET = "leave-one-out", "test set"  # sources of forecasts
BLOCK = 1 << 15  # rows whose distributions are worked on at once
MOST_SAMPLED = 10_000  # rows of which quantiles and CRPS are computed
LEVELS = (0.5, 0.8, 0.9, 0.95)  # nominal coverages of intervals
QUANTILES = (0.025, 0.05, 0.1, 0.25, 0.75, 0.9, 0.95, 0.975)  # their ends, ascending


@dataclass(frozen=True, eq=False)
class Forecast:
    """One target of n rows, and what was predicted of it.

    Attributes
    ----------
    source : str
        "leave-one-out" or "test set".
    row : int64 (n,)
        Number of each row in the table that was passed.
    y, mean, pit, log_density : float64 (n,)
        Target, predictive mean, P(Y <= y), log density of y.
    weight : float64 (n,) or None
        Sample weights; None if all count once.
    distribution : distribution
        Predictive distributions of the table that was passed; `row` points into it.
    sample : int64 (m,)
        Places of the rows below, ascending: all, or a random sample.
    few : distribution of m rows
        Their predictive distributions.
    ends : float64 (m, 8)
        Their quantiles at QUANTILES.
    """

    source: str
    row: Ints
    y: Floats
    mean: Floats
    pit: Floats
    log_density: Floats
    weight: Floats | None
    distribution: Distribution
    sample: Ints
    few: Distribution
    ends: Floats

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.y.size)

    @property
    def is_new(self) -> bool:
        """Whether nothing was learned from these rows: those of a test set."""
        return self.source == TEST_SET

    @property
    def residual(self) -> Floats:
        """Target minus mean, (n,)."""
        return self.y - self.mean

    @property
    def tail(self) -> Floats:
        """Probability of an observation at least as far in a tail, on both sides, (n,)."""
        return np.asarray(2.0 * np.minimum(self.pit, 1.0 - self.pit))

    def inside(self, level: float) -> npt.NDArray[np.bool_]:
        """Whether the central interval of this coverage contains the target, (n,)."""
        return np.asarray(np.abs(self.pit - 0.5) <= 0.5 * level)

    def interval(self, level: float) -> Floats:
        """Central intervals of the sampled rows, (m, 2); level: one of LEVELS."""
        k = LEVELS[::-1].index(level)
        return self.ends[:, [k, len(QUANTILES) - 1 - k]]

    def intervals_of(self, places: Ints, level: float) -> Floats:
        """Central intervals of the rows at these places, (len(places), 2)."""
        return np.asarray(self.distribution.select(self.row[places]).interval(level))

    def sampled_weight(self) -> Floats | None:
        """Weights of the sampled rows, (m,)."""
        return None if self.weight is None else self.weight[self.sample]


def make_forecast(
    source: str, y: Floats, distribution: Distribution, weight: Floats | None = None
) -> Forecast:
    """Compare targets with distributions; rows whose y is NaN or of weight 0 are left out.

    O(K n), and the quantiles of at most 10,000 rows.
    """
    used = np.isfinite(y)
    if weight is not None:
        used &= weight > 0
    row = np.flatnonzero(used)
    y = y[row]
    known = distribution if row.size == used.size else distribution.select(row)
    mean = np.concatenate(
        [known.select(slice(start, start + BLOCK)).mean() for start in range(0, row.size, BLOCK)]
    )
    density = -np.asarray(nll(y, known, by_row=True))
    sample = draw_rows(row.size, MOST_SAMPLED)
    few = known.select(sample)
    ends = few.quantile(np.array(QUANTILES))
    weight = None if weight is None else weight[row]
    found = (mean, pit(y, known), density)
    return Forecast(source, row, y, *found, weight, distribution, sample, few, np.asarray(ends))


def draw_rows(n_rows: int, most: int) -> Ints:
    """Numbers of all rows, or of a random sample that is the same every time; ascending."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def gaussian(mean: float, std: float, n_rows: int) -> PredictiveDistribution:
    """The same Gaussian at each row."""
    return PredictiveDistribution(
        np.ones(1), np.full((1, n_rows), mean), np.full((1, n_rows), std**2)
    )


def share_of(values: Any, weight: Floats | None) -> float:
    """Weighted mean."""
    return float(np.average(np.asarray(values, np.float64), weights=weight))
