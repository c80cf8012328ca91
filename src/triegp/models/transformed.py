"""The predictive distribution of a target whose model works on a transform of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.imports import scipy
from triegp.models.distribution import PredictiveDistribution, average, log_density
from triegp.models.transforms import Transform

Floats = npt.NDArray[np.float64]

LIMIT = 4.0  # most deviations of z from its mean at which moments move y to the limit
LEAST_LIMIT = 0.5  # fewest, where the mean of z is near the end of the training targets, or beyond
REACH = 8.0  # deviations of a component over which it is integrated
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True, eq=False)
class TransformedDistribution:
    """Distribution of y at each of m rows, if z = T(y) is a mixture of Gaussians.

    Returned by `predict_distribution` of an estimator with a `target_transform`. It has the methods
    of `PredictiveDistribution`, all in units of y.

    Attributes
    ----------
    base : PredictiveDistribution
        The distribution of z.
    transform : Transform
        The map T, strictly increasing.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp.models.distribution import PredictiveDistribution
    >>> from triegp.models.transforms import Log
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 0.25))
    >>> log_normal = TransformedDistribution(normal, Log(0.0))
    >>> log_normal.interval(0.9).round(2)
    array([[0.44, 2.28]])
    >>> log_normal.mean().round(3)
    array([1.133])

    Notes
    -----
    Quantiles, intervals and samples are those of z, mapped back. Densities have the derivative of
    T. The moments of y need not exist: the tails of z may be too long, for instance if T is a
    logarithm. `mean`, `var` and `std` are therefore those of y with z limited to the range of the
    training targets and to 4 deviations from its mean, but to no less than half a deviation; values
    beyond are moved to that limit (`limits`). They are infinite if y at a limit exceeds float64.
    """

    base: PredictiveDistribution
    transform: Transform

    @property
    def n_rows(self) -> int:
        """Number of rows, m."""
        return self.base.n_rows

    def mean(self) -> Floats:
        """Mean, (m,), with z within `limits`. O(32 K m)."""
        return self.moments()[0]

    def var(self) -> Floats:
        """Variance, (m,), with z within `limits`. O(32 K m)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.square(self.std())

    def std(self) -> Floats:
        """Standard deviation, (m,), with z within `limits`. O(32 K m)."""
        return self.moments()[1]

    def limits(self) -> tuple[Floats, Floats]:
        """Limits of z for moments and CRPS, (m,) each.

        The smallest and the largest training target, but at most 4 and at least half a deviation
        from the mean of z.
        """
        ends = self.transform.forward(np.array([self.transform.low, self.transform.high]))
        middle, std = self.base.mean(), self.base.std()
        low = np.clip(ends[0], middle - LIMIT * std, middle - LEAST_LIMIT * std)
        return low, np.clip(ends[1], middle + LEAST_LIMIT * std, middle + LIMIT * std)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (m,) each, in one pass.

        Each component is integrated by Gauss-Legendre with 32 nodes, over 8 of its deviations to
        both sides, as far as they lie within the limits.
        """
        return _moments(self)

    def log_prob(self, y: Any) -> Floats:
        """Log density of y at each row, (m,). y: (m,), or a number for all rows. O(K m).

        Parameters
        ----------
        y : array-like (m,) or float
            Values, one per row or one for all rows.
        """
        return transformed_log_density(self.base, self.transform, self.base._each_row(y))

    def pdf(self, y: Any) -> Floats:
        """Density of y at each row, (m,). y: (m,), or a number for all rows. O(K m).

        Parameters
        ----------
        y : array-like (m,) or float
            Values, one per row or one for all rows.
        """
        return np.exp(self.log_prob(y))

    def cdf(self, y: Any) -> Floats:
        """Probability of at most y at each row, (m,). y: (m,), or a number for all rows. O(K m).

        Parameters
        ----------
        y : array-like (m,) or float
            Values, one per row or one for all rows.
        """
        return self.base.cdf(self.transform.forward(self.base._each_row(y)))

    def quantile(self, q: Any) -> Floats:
        """Quantiles, (m, len(q)) for numbers q in (0, 1), or (m,) for a single number.

        Parameters
        ----------
        q : float or array-like (k,)
            Probabilities in (0, 1).
        """
        return self.transform.inverse(self.base.quantile(q))

    def interval(self, coverage: float = 0.9) -> Floats:
        """Central interval that contains y with probability `coverage`, 0.9 by default, (m, 2).

        Parameters
        ----------
        coverage : float, default=0.9
            Probability of the interval, in (0, 1).
        """
        return self.transform.inverse(self.base.interval(coverage))

    def select(self, rows: Any) -> TransformedDistribution:
        """The distributions at some rows.

        Parameters
        ----------
        rows : slice, bool (m,) or int (k,)
            Which rows.
        """
        return TransformedDistribution(self.base.select(rows), self.transform)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Independent samples at each row, (m, n_samples). O(m n_samples).

        Rows are drawn independently of each other; `sample_y` of an estimator draws them jointly.

        Parameters
        ----------
        n_samples : int, default=1
            Samples per row.
        random_state : int, RandomState, Generator or None, default=None
            Source of random numbers.
        """
        return self.transform.inverse(self.base.sample(n_samples, random_state))


def transformed_log_density(
    base: PredictiveDistribution, transform: Transform, y: Floats
) -> Floats:
    """Log density of y (m,), (m,): -inf outside the domain of the transform."""
    z = transform.forward(y)
    inside = np.isfinite(z)
    out = np.full(z.shape, -np.inf)
    if inside.all():
        return log_density(base, z) + transform.log_derivative(y)
    density = log_density(base, np.where(inside, z, 0.0))
    out[inside] = density[inside] + transform.log_derivative(y[inside])
    return out


def _moments(distribution: TransformedDistribution) -> tuple[Floats, Floats]:
    """Mean and standard deviation of T^-1(z) for z within its limits.

    Computed in units of the distance between the limits, from the median-like T^-1(mean), so that
    nothing overflows and little is lost to rounding.
    """
    base, transform = distribution.base, distribution.transform
    middle, (low, high) = base.mean(), distribution.limits()
    centre, lowest, highest = (transform.inverse(part) for part in (middle, low, high))
    with np.errstate(over="ignore", invalid="ignore"):
        unit = highest - lowest
    usable = np.isfinite(unit) & np.isfinite(centre)
    unit = np.where(usable & (unit > 0), unit, 1.0)
    centre = np.where(usable, centre, 0.0)

    def distance(z: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            return (transform.inverse(z) - centre) / unit

    means, sd = base.means, np.sqrt(base.variances)
    point = sd == 0
    sd = np.where(point, 1.0, sd)
    start, end = (np.clip(means + side * REACH * sd, low, high) for side in (-1.0, 1.0))
    half, mid = 0.5 * (end - start), 0.5 * (end + start)
    below = np.where(point, means < low, scipy.special.ndtr((low - means) / sd))
    above = np.where(point, means > high, scipy.special.ndtr((means - high) / sd))
    ends = (distance(low), distance(high))
    with np.errstate(invalid="ignore", over="ignore"):
        first = below * ends[0] + above * ends[1]
        second = below * ends[0] ** 2 + above * ends[1] ** 2
        for node, weight in zip(NODES.tolist(), NODE_WEIGHTS.tolist(), strict=True):
            z = mid + node * half
            density = np.exp(-0.5 * ((z - means) / sd) ** 2) / (np.sqrt(2.0 * np.pi) * sd)
            found = distance(z)
            share = weight * half * density
            first += share * found
            second += share * found**2
        if point.any():
            found = np.broadcast_to(distance(np.clip(means, low, high)), means.shape)
            first, second = np.where(point, found, first), np.where(point, found**2, second)
        shift, square = average(base.weights, first), average(base.weights, second)
        mean = centre + unit * shift
        std = unit * np.sqrt(np.maximum(square - shift**2, 0.0))
    if usable.all():
        return mean, std
    return _unbounded(middle, mean, std, usable, lowest, highest)


def _unbounded(
    middle: Floats,
    mean: Floats,
    std: Floats,
    usable: npt.NDArray[np.bool_],
    lowest: Floats,
    highest: Floats,
) -> tuple[Floats, Floats]:
    """Moments with infinite ones if y at a limit exceeds float64; NaN only if z is."""
    known = ~np.isnan(middle)
    finite = np.isfinite(lowest) & np.isfinite(highest)  # but not their difference
    with np.errstate(invalid="ignore"):
        limit = np.where(np.isinf(lowest) & ~np.isinf(highest), -np.inf, np.inf)
    limit = np.where(finite, 0.5 * lowest + 0.5 * highest, limit)
    mean = np.where(usable, mean, np.where(known, limit, np.nan))
    return mean, np.where(usable, std, np.where(known, np.inf, np.nan))
