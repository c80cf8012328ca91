"""A linear trend beside the model, for few rows.

Trees learn a straight line slowly: with few rows a ridge regression can predict better, and the
average of both better than either. Its share is learned from predictions of held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

PENALTIES = np.logspace(-4.0, 5.0, 28)  # of ridge regression, for standardised features
LEAST_SHARE = 0.05  # a trend of a smaller share is left out


@dataclass(frozen=True, eq=False)
class Trend:
    """Ridge regression of standardised targets, and its share in predictions.

    Attributes
    ----------
    share : float
        The mean is (1 - share) times that of the model plus share times that of the line.
    low, high : float64 (d,)
        Features are moved into this box first.
    slope : float64 (d,)
        Of each feature.
    level : float
        Value of the line where all features are 0.
    left : float64 (n,)
        Prediction of each row of the model by a line that has not seen it.
    """

    share: float
    low: Floats
    high: Floats
    slope: Floats
    level: float
    left: Floats


def fit_line(X: Array, y: Floats, weight: Floats | None = None) -> tuple[Floats, float]:
    """Slope (d,) and level of a ridge regression whose penalty has the least generalised error.

    Generalised cross-validation; O(n d min(n, d)).
    """
    unit = np.abs(X).max(axis=0).astype(np.float64)
    unit = np.where(unit > 0, unit, 1.0)  # squares of huge features must not overflow
    X = np.ascontiguousarray(X, np.float64) / unit  # sums depend on the layout
    count = np.ones(y.size) if weight is None else weight
    centre = np.average(X, axis=0, weights=count)
    size = np.sqrt(np.average(np.square(X - centre), axis=0, weights=count))
    size = np.where(size > 1e-12, size, np.inf)
    root = np.sqrt(count / count.mean())[:, None]
    level = float(np.average(y, weights=count))
    left, singular, right = np.linalg.svd(root * ((X - centre) / size), full_matrices=False)
    target = left.T @ (root[:, 0] * (y - level))
    rest = float(np.sum(np.square(root[:, 0] * (y - level)))) - float(target @ target)
    best, found = np.inf, np.zeros(singular.size)
    for penalty in PENALTIES:
        gain = singular**2 / (singular**2 + penalty)
        error = rest + float(np.sum(np.square((1.0 - gain) * target)))
        loss = error / max(y.size - 1.0 - float(gain.sum()), 1e-9) ** 2
        if loss < best:
            best, found = loss, singular / (singular**2 + penalty) * target
    slope = (right.T @ found) / size
    return slope / unit, level - float(centre @ slope)


def choose_share(y: Floats, mean: Floats, line: Floats, var: Floats) -> float:
    """Share of the line that minimises the squared error of held-out rows, from 0 to 1."""
    apart = line - mean
    power = int(np.frexp(np.abs(apart).max(initial=0.0))[1])
    apart = np.ldexp(apart, -power)  # its squares do not overflow, and no bit changes
    size = float(np.sum(apart * apart / var))
    if not size > 0:
        return 0.0
    best = np.ldexp(np.sum((y - mean) * apart / var) / size, -power)
    share = float(np.clip(best, 0.0, 1.0))
    return share if share >= LEAST_SHARE else 0.0


def line_at(trend: Trend, X: Array) -> Floats:
    """The line at new rows, (m,)."""
    inside = np.clip(np.ascontiguousarray(X, np.float64), trend.low, trend.high)
    return np.asarray((inside * trend.slope).sum(axis=1) + trend.level)


def add_trend(trend: Trend | None, mean: Floats, line: Floats | None) -> Floats:
    """Means of the model and values of the line, (m,) each, averaged."""
    if trend is None or line is None:
        return mean
    return np.asarray(mean + trend.share * (line - mean))
