"""One target beside its predictive distributions: what scores, displays and reports count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from triegp.checks import float_array
from triegp.metrics.distributions import nll, pit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BAND = 0.95  # probability of the binomial bands, at each point
BLOCK_ROWS = 1 << 15  # rows whose means are computed at a time
COVERAGES = (0.5, 0.8, 0.9, 0.95)  # nominal coverages of intervals


@dataclass(frozen=True, eq=False)
class Forecast:
    """Targets of n rows and the predictive distribution of each; all else is computed when asked.

    Attributes
    ----------
    y : float64 (n,)
        Targets, without NaN.
    distribution : distribution of n rows
        What was predicted.
    row : int64 (n,)
        Number of each row among those that were passed.
    n_passed : int
        Number of rows that were passed.
    weight : float64 (n,) or None
        Sample weights, positive; None if all rows count once.
    most_sampled : int or None
        Quantiles and CRPS are computed of at most so many rows; None for all.
    coverages : tuple of float
        Coverages of the intervals that `interval` returns.
    """

    y: Floats
    distribution: Any
    row: Ints
    n_passed: int
    weight: Floats | None = None
    most_sampled: int | None = None
    coverages: tuple[float, ...] = COVERAGES

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.y.size)

    @cached_property
    def n_effective(self) -> float:
        """How many rows of equal weight would tell as much: (sum of weights)^2 / sum of squares."""
        return effective_rows(self.weight, self.n_rows)

    @cached_property
    def mean(self) -> Floats:
        """Predictive means, (n,)."""
        starts = range(0, self.n_rows, BLOCK_ROWS)
        blocks = [self.distribution.select(slice(k, k + BLOCK_ROWS)).mean() for k in starts]
        return np.concatenate(blocks)

    @property
    def residual(self) -> Floats:
        """Target minus mean, (n,)."""
        return self.y - self.mean

    @cached_property
    def pit(self) -> Floats:
        """Probability integral transform, P(Y <= y) at each row, (n,)."""
        return pit(self.y, self.distribution)

    @cached_property
    def central(self) -> Floats:
        """Coverage of the smallest central interval that contains the target, (n,)."""
        return np.asarray(np.abs(2.0 * self.pit - 1.0))

    @cached_property
    def log_density(self) -> Floats:
        """Log density of each target, (n,)."""
        return -np.asarray(nll(self.y, self.distribution, by_row=True))

    @cached_property
    def sample(self) -> Ints:
        """Numbers of the rows of which quantiles and CRPS are computed, ascending, (m,)."""
        return sample_rows(self.n_rows, self.most_sampled)

    @cached_property
    def sampled(self) -> Any:
        """Predictive distributions of the sampled rows."""
        every = self.sample.size == self.n_rows
        return self.distribution if every else self.distribution.select(self.sample)

    @property
    def sampled_weight(self) -> Floats | None:
        """Sample weights of the sampled rows, (m,)."""
        return None if self.weight is None else self.weight[self.sample]

    @cached_property
    def _quantiles(self) -> Floats:
        levels = np.sort([0.5 * (1.0 + sign * c) for c in self.coverages for sign in (-1, 1)])
        return np.asarray(self.sampled.quantile(levels))

    def interval(self, coverage: float) -> Floats:
        """Central intervals of the sampled rows, (m, 2); coverage: one of `coverages`."""
        k = sorted(self.coverages, reverse=True).index(coverage)
        return self._quantiles[:, [k, -1 - k]]

    def inside(self, coverage: float) -> npt.NDArray[np.bool_]:
        """Whether the central interval of this coverage contains the target, (n,)."""
        return np.asarray(self.central <= coverage)

    def weight_inside(self, nominal: Any) -> Floats:
        """Weight of the rows inside central intervals of nominal coverages (k,), (k,)."""
        order = np.argsort(self.central, kind="stable")
        weight = np.ones(self.n_rows) if self.weight is None else self.weight
        total = np.concatenate([[0.0], np.cumsum(weight[order])])
        return np.asarray(total[np.searchsorted(self.central[order], nominal, side="right")])

    def band(self, probability: Any, scale: float = 1.0) -> tuple[Floats, Floats]:
        """`binomial_band` of the effective number of rows, both ends times `scale`."""
        low, high = binomial_band(max(1, round(self.n_effective)), probability)
        return scale * low, scale * high


def make_forecast(
    y: Any, distribution: Any, target: int | None = None, *, weight: Any = None, **options: Any
) -> Forecast:
    """One target with its distribution; rows whose y is NaN or of weight 0 are left out.

    Parameters
    ----------
    y : array-like (m,) or (m, n_targets)
        Targets.
    distribution : distribution, or list of them
        One per target.
    target : int, optional
        Which target; needed if there are several.
    weight : float64 (m,), optional
        Sample weights.
    **options
        `most_sampled` and `coverages` of `Forecast`.
    """
    observed = float_array("y", y)
    if isinstance(distribution, Sequence):
        k = choose_target(target, len(distribution))
        if observed.ndim != 2 or observed.shape[1] != len(distribution):
            raise ValueError(
                f"y must have one column per distribution, {len(distribution)}, got shape "
                f"{observed.shape}"
            )
        observed, distribution = observed[:, k], distribution[k]
    else:
        choose_target(target, 1)
        if observed.ndim == 2 and observed.shape[1] == 1:
            observed = observed[:, 0]
    n_passed = distribution.n_rows
    if observed.shape != (n_passed,):
        raise ValueError(f"y must have shape ({n_passed},), got {observed.shape}")
    known = ~np.isnan(observed)
    if weight is not None:
        known &= weight > 0
    if not known.any():
        raise ValueError("y must have at least one row that is not NaN")
    row = np.flatnonzero(known)
    if row.size < n_passed:
        observed, distribution = observed[row], distribution.select(row)
        weight = None if weight is None else weight[row]
    return Forecast(observed, distribution, row, n_passed, weight, **options)


def choose_target(target: int | None, n_targets: int) -> int:
    """The number of a target: 0 if there is one, else the one that was given."""
    if target is None:
        if n_targets > 1:
            raise ValueError(f"target must be given, 0 to {n_targets - 1}: there are {n_targets}")
        return 0
    if isinstance(target, bool) or not hasattr(target, "__index__"):
        raise ValueError(f"target must be an integer, got {target!r}")
    if not 0 <= target < n_targets:
        raise ValueError(f"target must be between 0 and {n_targets - 1}, got {target}")
    return int(target)


def unwrap(model: Any, X: Any = None) -> tuple[Any, Any]:
    """The last estimator of a pipeline or the best of a search, and X as it reads it."""
    if hasattr(model, "best_estimator_"):
        return unwrap(model.best_estimator_, X)
    if hasattr(model, "steps"):
        if X is not None and len(model.steps) > 1:
            X = model[:-1].transform(X)
        return unwrap(model[-1], X)
    return model, X


def sample_rows(n_rows: int, most: int | None) -> Ints:
    """Numbers of all rows, or of a random sample that is the same every time; ascending."""
    if most is None or n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def effective_rows(weight: Floats | None, n_rows: int) -> float:
    """Effective number of rows: (sum of weights)^2 / sum of squared weights."""
    if weight is None:
        return float(n_rows)
    scaled = weight / weight.max()
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def weighted_mean(values: Any, weight: Floats | None) -> float:
    """Mean of values (n,), weighted if there are weights (n,)."""
    return float(np.average(np.asarray(values, np.float64), weights=weight))


def binomial_band(n_rows: Any, probability: Any, band: float = BAND) -> tuple[Floats, Floats]:
    """Central interval of a share of n_rows independent rows, if each counts with a probability."""
    tail = 0.5 * (1.0 - band)
    n = np.asarray(n_rows, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (binom.ppf(q, n, probability) / n for q in (tail, 1.0 - tail))
    return np.asarray(low), np.asarray(high)
