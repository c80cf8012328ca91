"""The predictive distribution: a mixture of Gaussians at every row.

The log density is a log-sum-exp over the components, the variance follows from the law of total
variance, and quantiles are found by inverting the distribution function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import (
    float_array,
    positive_number,
    random_generator,
    whole_number,
)
from triegp.devices import on_device, to_host
from triegp.engines import device_quantiles, mix_means, mix_moments
from triegp.imports import scipy

Floats = npt.NDArray[np.float64]

FEW_ROWS = 1 << 12  # up to so many, sums over components need no compiled kernel
LOG_2PI = float(np.log(2.0 * np.pi))
LEVEL_TOLERANCE = 1e-14  # relative, of the probability of a quantile
WEIGHT_TOLERANCE = 1e-6  # of the sum of the weights
MAX_STEPS = 3_000  # the float64 range can be halved 2,100 times


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """K Gaussians at each of m rows, independent of those at other rows.

    Returned by `predict_distribution` of an estimator. A calibrated model gives one component per
    tail factor, at most 25 with the same mean, and up to 50 with other means if residuals are
    skewed. If repeated measurements have tails of their own, there are components for both, and
    weights differ between rows. With latent=True there is one component. A mixture that is not
    calibrated gives one component per member.

    Attributes
    ----------
    weights : float64 (K,) or (K, m)
        Weights of the components, sum 1; one column for all rows, or one per row.
    means, variances : float64 (K, m)
        Means and variances of the components. Those that estimators return lie on the host.

    Examples
    --------
    >>> import numpy as np
    >>> halves, centres = np.array([0.5, 0.5]), np.array([[-1.0], [1.0]])
    >>> both = PredictiveDistribution(halves, centres, np.ones((2, 1)))
    >>> both.mean(), both.std().round(3)
    (array([0.]), array([1.414]))
    >>> both.interval(0.9).round(2)
    array([[-2.28,  2.28]])
    """

    weights: Floats
    means: Floats
    variances: Floats

    def __post_init__(self) -> None:
        parts = (self.weights, self.means, self.variances)
        if not (all(isinstance(part, np.ndarray) for part in parts) or all(map(on_device, parts))):
            kinds = ", ".join(type(part).__name__ for part in parts)
            raise ValueError(f"weights, means and variances must be numpy arrays, got {kinds}")
        shapes = [part.shape for part in parts]
        fits = shapes[0] in (shapes[1][:1], shapes[1])
        if len(shapes[1]) != 2 or shapes[1] != shapes[2] or not fits:
            raise ValueError(
                "weights must have shape (K,) or (K, m), means and variances (K, m), got "
                f"{', '.join(map(str, shapes))}"
            )
        sums = np.atleast_1d(self.weights.sum(axis=0))
        off = ~(np.abs(sums - 1.0) <= WEIGHT_TOLERANCE)
        if off.any():
            raise ValueError(f"weights must sum to 1, got {float(sums[int(np.argmax(off))])}")

    @property
    def n_rows(self) -> int:
        """Number of rows, m."""
        return int(self.means.shape[1])

    @property
    def _one_mean(self) -> bool:
        """Whether all components share their means, as one row of memory."""
        return self.means.shape[0] == 1 or self.means.strides[0] == 0

    def mean(self) -> Floats:
        """Mean, (m,). O(K m), or O(m) if the means are one row, broadcast."""
        if self._one_mean:
            alone: Floats = self.means[0].copy()
            return alone
        return average(self.weights, self.means)

    def var(self) -> Floats:
        """Variance, (m,): mean of the variances plus variance of the means. O(K m)."""
        if self._one_mean:
            return average(self.weights, self.variances)
        if self.weights.ndim == 1 and not on_device(self.means):
            if self.n_rows <= FEW_ROWS:
                gap = self.means - self.mean()
                return average(self.weights, self.variances) + average(self.weights, gap * gap)
            parts = (self.weights, self.means, self.variances, np.zeros((self.weights.size, 1)))
            mean, within, spread = (np.empty(self.n_rows) for _ in range(3))
            given = (np.ascontiguousarray(part, np.float64) for part in parts)
            mix_moments(*given, mean, within, spread, 0, mean.size)
            return within + spread
        spread = self.means - self.mean()
        return average(self.weights, self.variances + spread**2)

    def std(self) -> Floats:
        """Standard deviation, (m,). O(K m)."""
        return np.sqrt(self.var())

    def log_prob(self, y: Any) -> Floats:
        """Log density of y at each row, (m,). y: (m,), or a number for all rows. O(K m).

        Parameters
        ----------
        y : array-like (m,) or float
            Values, one per row or one for all rows.
        """
        return log_density(self, self._each_row(y))

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
        z = _standard(self._each_row(y) - self.means, np.sqrt(self.variances))
        return average(self.weights, scipy.special.ndtr(z))

    def quantile(self, q: Any) -> Floats:
        """Quantiles, (m, len(q)) for numbers q in (0, 1), or (m,) for a single number.

        O(K m) per step of Newton's method, seldom more than ten steps.

        Parameters
        ----------
        q : float or array-like (k,)
            Probabilities in (0, 1).
        """
        found = quantiles(self, check_quantiles(q))
        return found[:, 0] if np.ndim(q) == 0 else found

    def interval(self, coverage: float = 0.9) -> Floats:
        """Central interval that contains y with probability `coverage`, 0.9 by default, (m, 2).

        Parameters
        ----------
        coverage : float, default=0.9
            Probability of the interval, in (0, 1).
        """
        return quantiles(self, interval_quantiles(coverage))

    def select(self, rows: Any) -> PredictiveDistribution:
        """The distributions at some rows.

        Parameters
        ----------
        rows : slice, bool (m,) or int (k,)
            Which rows.

        Notes
        -----
        Means that are one row of memory, broadcast, stay one row.
        """
        weights = self.weights if self.weights.ndim == 1 else self.weights[:, rows]
        variances = self.variances[:, rows]
        means = self.means[:1, rows] if self._one_mean else self.means[:, rows]
        return PredictiveDistribution(weights, np.broadcast_to(means, variances.shape), variances)

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
        n_samples = whole_number("n_samples", n_samples)
        rng = random_generator(random_state)
        if self.weights.ndim == 1:
            size = (self.n_rows, n_samples)
            component = rng.choice(self.weights.size, size=size, p=self.weights)
        else:
            below = np.cumsum(self.weights, axis=0)[:-1, :, None]
            component = (rng.random((self.n_rows, n_samples)) > below).sum(axis=0)
        row = np.arange(self.n_rows)[:, None]
        sd = np.sqrt(self.variances[component, row])
        return np.asarray(self.means[component, row] + sd * rng.standard_normal(component.shape))

    def _each_row(self, y: Any) -> Floats:
        """Values at the rows, (m,); a number is repeated. Infinite values are allowed."""
        values = float_array("y", y)
        if values.ndim == 0:
            values = np.full(self.n_rows, float(values))
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"y must be a number or have shape ({self.n_rows},), got {values.shape}"
            )
        if np.isnan(values).any():
            raise ValueError(
                f"y must not be NaN, got NaN at row {int(np.argmax(np.isnan(values)))}"
            )
        return values


def fetch_distribution(found: PredictiveDistribution) -> PredictiveDistribution:
    """The same distribution on the host."""
    if not on_device(found.means):
        return found
    return PredictiveDistribution(*map(to_host, (found.weights, found.means, found.variances)))


def average(weights: Floats, values: Floats) -> Floats:
    """Weighted sum over the components, (m,): weights (K,) or (K, m), values (K, m).

    Not by BLAS: the sum at a row must not depend on the number of rows. On a device, components are
    added one by one.
    """
    if on_device(values):
        total: Floats = weights[0] * values[0]
        for k in range(1, values.shape[0]):
            total += weights[k] * values[k]
        return total
    if weights.ndim == 1:
        if values.shape[1] <= FEW_ROWS:  # the same bits: a cumulative sum adds in order, too
            return np.asarray(np.cumsum(weights[:, None] * values, axis=0)[-1])
        out = np.empty(values.shape[1])
        mix_means(weights, np.ascontiguousarray(values, np.float64), out, 0, out.size)
        return out
    return np.asarray(np.einsum("km,km->m", weights, values))


def check_quantiles(q: Any, name: str = "quantiles") -> Floats:
    """Probabilities as a vector (k,); raises ValueError unless all lie in (0, 1)."""
    checked = float_array(name, q)
    if checked.ndim > 1:
        raise ValueError(f"{name} must be a number or a vector, got shape {checked.shape}")
    checked = checked.ravel()
    if not (checked.size and ((checked > 0) & (checked < 1)).all()):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {checked}")
    return checked


def interval_quantiles(coverage: float) -> Floats:
    """Probabilities below the two ends of a central interval, (2,)."""
    inside = positive_number("coverage", coverage)
    if not inside < 1:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage}")
    tail = 0.5 * (1.0 - inside)
    return np.array([tail, 1.0 - tail])


def log_density(mixture: PredictiveDistribution, y: Any) -> Floats:
    """Log density of y (m,), (m,); nothing is checked."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
        if log_weights.ndim == 1:
            log_weights = log_weights[:, None]
        return np.asarray(
            scipy.special.logsumexp(
                component_log_density(mixture.means, mixture.variances, y) + log_weights, axis=0
            )
        )


def component_log_density(means: Floats, variances: Floats, y: Any) -> Floats:
    """Log density of y (m,) under Gaussians (K, m), (K, m)."""
    with np.errstate(over="ignore"):  # beyond the range of float64: -inf
        square: Floats = ((y - means) / np.sqrt(variances)) ** 2
    return -0.5 * (LOG_2PI + np.log(variances) + square)


def quantiles(mixture: PredictiveDistribution, q: Floats) -> Floats:
    """Quantiles of the mixture, (m, len(q)), for q in (0, 1).

    Newton's method on the logarithm of the distribution function, for all rows at once. The
    quantile lies between the smallest and the largest quantile of the components, which gives a
    bracket. If a Newton step leaves the bracket or does not shrink, the bracket is halved instead.
    Variances of 0 are point masses. On a device, one thread does all steps of a row.
    """
    if on_device(mixture.means):
        there: Floats = device_quantiles(mixture.weights, mixture.means, mixture.variances, q)
        return there
    out = np.empty((mixture.means.shape[1], q.size))
    mirrored = PredictiveDistribution(mixture.weights, -mixture.means, mixture.variances)
    for j, level in enumerate(q.tolist()):  # by the lower tail, for accuracy
        out[:, j] = _quantile(mixture, level) if level <= 0.5 else -_quantile(mirrored, 1.0 - level)
    return out


def _quantile(mixture: PredictiveDistribution, level: float) -> Floats:
    used = (mixture.weights > 0).reshape(mixture.weights.shape[0], -1).any(axis=1)
    weight, mean, sd = mixture.weights[used], mixture.means[used], np.sqrt(mixture.variances[used])
    of_members = mean + float(scipy.special.ndtri(level)) * sd
    low, high = of_members.min(axis=0), of_members.max(axis=0)
    x = np.clip(average(weight, of_members), low, high)
    out = x.copy()
    rows = np.arange(x.size)  # rows not done
    move = high - low
    for _ in range(MAX_STEPS):
        z = _standard(x - mean, sd)
        below = average(weight, scipy.special.ndtr(z))
        high = np.where(below > level, x, high)
        low = np.where(below > level, low, x)
        with np.errstate(all="ignore"):
            density = average(weight, np.exp(-0.5 * z**2) / sd) / np.sqrt(2.0 * np.pi)
            new = x - np.log(below / level) * below / density
        newton = (new >= low) & (new <= high) & (np.abs(new - x) <= 0.5 * move)
        new = np.where(newton, new, 0.5 * low + 0.5 * high)
        move = np.abs(new - x)
        done = (np.abs(below - level) <= LEVEL_TOLERANCE * level) | (new == x)
        out[rows] = x
        if done.all():
            break
        go = ~done
        rows, x, low, high, move = rows[go], new[go], low[go], high[go], move[go]
        mean, sd = mean[:, go], sd[:, go]
        weight = weight if weight.ndim == 1 else weight[:, go]
    return out


def _standard(distance: Floats, sd: Floats) -> Floats:
    """distance / sd without floating-point warnings; 0 / 0 is +inf."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        z: Floats = distance / sd
    z[(distance == 0) & (sd == 0)] = np.inf
    return z
