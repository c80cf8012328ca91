"""The map of features onto [0, 1]: linear, or by their percentiles; and its cut into bits.

Every map is non-decreasing. Blocks of rows are held feature by feature, shape (n_features, m), so
that every operation runs along the rows of one feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triegp.checks import Floats
from triegp.encoding.precision import Precision

N_STEPS = 10  # the ECDF has a knot at every tenth of the rows


@dataclass(frozen=True)
class FeatureMap:
    """The map of each feature onto [0, 1].

    Attributes
    ----------
    low, high : float64 arrays (n_features,)
        The box.
    knots : float64 array (n_features, 11) or None
        Percentiles 0, 10, ..., 100; None for the linear map.
    shift : float64 array (n_features,) or None
        In [0, 1).
    """

    low: Floats
    high: Floats
    knots: Floats | None = None
    shift: Floats | None = None


def positions(columns: Floats, feature_map: FeatureMap) -> Floats:
    """Map each feature onto [0, 1], O(1) a value.

    Parameters
    ----------
    columns : float64 array (n_features, m)
        Overwritten: clipped to the box.
    feature_map : FeatureMap

    Returns
    -------
    float64 array (n_features, m)
        Non-decreasing in each value.
    """
    np.clip(columns, feature_map.low[:, None], feature_map.high[:, None], out=columns)
    if feature_map.knots is None:
        at = _fraction(columns, feature_map.low[:, None], feature_map.high[:, None])
    else:
        at = _ecdf(columns, feature_map.knots)
    if feature_map.shift is not None:
        at += feature_map.shift[:, None]
        at *= 0.5
    return at


def cut(at: Floats, precision: Precision) -> Floats:
    """First `precision` bits of positions (n_features, m) in [0, 1], as whole numbers in float64.

    Overwrites `at`.
    """
    size = n_cells(precision)
    at *= size
    np.floor(at, out=at)
    np.minimum(at, size - 1, out=at)
    return at


def n_cells(precision: Precision) -> Floats:
    """2**precision as a column (n_features, 1)."""
    return np.ldexp(1.0, precision.astype(np.intc))[:, None]


def weighted_percentiles(values: Floats, weights: Floats | None = None) -> Floats:
    """Percentiles 0, 10, ..., 100 of weighted values.

    Lay the sorted values in a line, each as long as its weight. With g the smallest weight, but
    at most 1, a value holds from where its stretch begins to g before its end; between there and
    the next value's begin the line is linear. Percentile k is the line's height at k/100 of the way
    to g before the end. With whole weights that is `numpy.percentile` of the repeated values; all
    weights equal, and at most 1, it is that of the values.

    Parameters
    ----------
    values : float64 array (n,)
        At least one.
    weights : float64 array (n,), optional
        Positive; by default all are 1.

    Returns
    -------
    float64 array (11,)

    Examples
    --------
    >>> import numpy as np
    >>> weighted_percentiles(np.array([3.0, 1.0]), np.array([1.0, 2.0])).round(3)
    array([1. , 1. , 1. , 1. , 1. , 1. , 1.4, 1.8, 2.2, 2.6, 3. ])

    Notes
    -----
    O(n log n).
    """
    n_values = values.size
    steps = np.arange(N_STEPS + 1)
    if weights is None:
        at = (n_values - 1) * steps / N_STEPS
        lower = at.astype(np.intp)
        ramp = at - lower
        needed = np.union1d(lower, np.minimum(lower + 1, n_values - 1))
        ordered = np.partition(values, needed)  # sorted at these places, faster than everywhere
    else:
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        end = np.cumsum(weights[order])
        grain = min(1.0, float(weights.min()))
        at = (end[-1] - grain) * steps / N_STEPS
        lower = np.minimum(np.searchsorted(end, at, side="right"), n_values - 1)
        ramp = np.clip(at - (end[lower] - grain), 0.0, grain) / grain
    left, right = ordered[lower], ordered[np.minimum(lower + 1, n_values - 1)]
    # Not left + ramp * (right - left), which overflows; clipped, for it may round past its ends.
    heights = np.clip(left * (1.0 - ramp) + right * ramp, left, right)
    heights[0], heights[-1] = ordered[0], ordered[-1]
    return np.maximum.accumulate(heights)


def _fraction(values: Floats, low: Floats, high: Floats) -> Floats:
    """(values - low) / (high - low), 0 where low == high; no overflow, in [0, 1] and monotone."""
    with np.errstate(over="ignore"):
        half = np.where(np.isinf(high - low), 0.5, 1.0)
    if (half < 1.0).any():
        values, low, high = values * half, low * half, high * half
    width = high - low
    width[width == 0.0] = 1.0
    part = values - low
    part /= width
    return part


def _ecdf(columns: Floats, knots: Floats) -> Floats:
    """Piecewise linear map by the knots (n_features, 11), for values between first and last."""
    last = np.zeros(columns.shape, dtype=np.intp)  # the last knot that is not above the value
    for k in range(1, N_STEPS + 1):
        last += columns >= knots[:, k, None]
    flat = last + np.arange(knots.shape[0])[:, None] * (N_STEPS + 1)
    base = knots.take(flat)
    above = np.concatenate([knots[:, 1:], knots[:, -1:]], axis=1).take(flat)
    at = _fraction(columns, base, above)
    at += last
    at = np.where(columns == base, _knot_positions(knots).take(flat), at)
    at /= N_STEPS
    return at


def _knot_positions(knots: Floats) -> Floats:
    """Where each knot goes, in tenths: a tie to the middle of its jump, the ends to the ends."""
    same = knots[:, :, None] == knots[:, None, :]
    first = same.argmax(axis=2)
    last = N_STEPS - same[:, :, ::-1].argmax(axis=2)
    middle = (first + last) / 2
    return np.where(first == 0, 0.0, np.where(last == N_STEPS, float(N_STEPS), middle))
