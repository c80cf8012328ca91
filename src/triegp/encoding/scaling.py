"""The maps of features onto [0, 1], linear or by percentiles, and the cut into bits.

Every map is non-decreasing. Blocks of m rows are stored transposed, with shape (n_features, m), so
that every operation runs over contiguous values of one feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triegp.checks import Floats
from triegp.encoding.precision import Precision

SCALINGS = ("minmax", "ecdf")
N_STEPS = 10  # the ECDF has a knot at every tenth of the rows


@dataclass(frozen=True)
class FeatureMap:
    """The map of each feature onto [0, 1].

    Attributes
    ----------
    low, high : float64 arrays (n_features,)
        Range of each feature; values outside it are clipped.
    knots : float64 array (n_features, 11) or None
        Percentiles 0, 10, ..., 100; None for the linear map.
    shift : float64 array (n_features,) or None
        Shift of the grid, in [0, 1): a position u becomes (u + shift) / 2. NaN for a feature that
        is not shifted, None for no shift.
    """

    low: Floats
    high: Floats
    knots: Floats | None = None
    shift: Floats | None = None


def positions(columns: Floats, feature_map: FeatureMap) -> Floats:
    """Map each feature onto [0, 1], O(1) per value.

    Parameters
    ----------
    columns : float64 array (n_features, m)
        Values. Overwritten: clipped to [low, high].
    feature_map : FeatureMap

    Returns
    -------
    float64 array (n_features, m)
        Positions, non-decreasing in each value.
    """
    np.clip(columns, feature_map.low[:, None], feature_map.high[:, None], out=columns)
    if feature_map.knots is None:
        at = _fraction(columns, feature_map.low[:, None], feature_map.high[:, None])
    else:
        at = _ecdf(columns, feature_map.knots)
    if feature_map.shift is not None:
        still = np.isnan(feature_map.shift)[:, None]
        at += np.where(still, 0.0, feature_map.shift[:, None])
        at *= np.where(still, 1.0, 0.5)
    return at


def cut(at: Floats, precision: Precision) -> Floats:
    """Cut positions (n_features, m) in [0, 1] to their first `precision` bits.

    Returns integers stored as float64. Overwrites `at`.
    """
    size = n_cells(precision)
    at *= size
    np.floor(at, out=at)
    np.minimum(at, size - 1, out=at)
    return at


def n_cells(precision: Precision) -> Floats:
    """Return 2**precision as a column (n_features, 1)."""
    return np.ldexp(1.0, precision.astype(np.intc))[:, None]


def weighted_percentiles(values: Floats, weights: Floats | None = None) -> Floats:
    """Compute percentiles 0, 10, ..., 100 of weighted values.

    With integer weights the result is `numpy.percentile` of the values repeated weight times. With
    equal weights of at most 1 it is `numpy.percentile` of the values. In general, let the i-th
    sorted value v_i occupy the interval [a_i, b_i] of length weight_i, with b_i = a_(i+1) and
    a_1 = 0. Let g be the smallest weight, or 1 if that is less. The quantile function equals v_i on
    [a_i, b_i - g] and is linear from v_i to v_(i+1) on [b_i - g, b_i]. Percentile k is its value at
    k/100 of the sum of the weights minus g.

    Parameters
    ----------
    values : float64 array (n,)
        At least one value.
    weights : float64 array (n,), optional
        Positive; by default all weights are 1.

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
        ordered = np.partition(values, needed)  # cheaper than a full sort
    else:
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        end = np.cumsum(weights[order])
        grain = min(1.0, float(weights.min()))
        at = (end[-1] - grain) * steps / N_STEPS
        lower = np.minimum(np.searchsorted(end, at, side="right"), n_values - 1)
        ramp = np.clip(at - (end[lower] - grain), 0.0, grain) / grain
    return between_values(ordered[lower], ordered[np.minimum(lower + 1, n_values - 1)], ramp)


def between_values(left: Floats, right: Floats, ramp: Floats) -> Floats:
    """Percentiles between neighbouring values, (11,); ramp: 0 at `left`, 1 at `right`."""
    # left + ramp * (right - left) could overflow. Clip, since rounding may leave [left, right].
    heights = np.clip(left * (1.0 - ramp) + right * ramp, left, right)
    heights[0], heights[-1] = left[0], right[-1]
    return np.maximum.accumulate(heights)


def _fraction(values: Floats, low: Floats, high: Floats) -> Floats:
    """Compute (values - low) / (high - low), or 0 if low == high.

    Assumes low <= values <= high. The result lies in [0, 1], is monotone and never overflows.
    """
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
    """Map values piecewise linearly by knots (n_features, 11).

    Assumes values between the first and the last knot.
    """
    last = np.zeros(columns.shape, dtype=np.intp)  # index of the last knot <= the value
    for k in range(1, N_STEPS + 1):
        last += columns >= knots[:, k, None]
    flat = last + np.arange(knots.shape[0])[:, None] * (N_STEPS + 1)
    base = knots.take(flat)
    above = np.concatenate([knots[:, 1:], knots[:, -1:]], axis=1).take(flat)
    at = _fraction(columns, base, above)
    at += last
    at = np.where(columns == base, knot_positions(knots).take(flat), at)
    at /= N_STEPS
    return at


def knot_positions(knots: Floats) -> Floats:
    """Return the position of each knot, in tenths.

    Tied knots are mapped to the middle of their jump, except that knots equal to the first are
    mapped to 0 and knots equal to the last to 10.
    """
    same = knots[:, :, None] == knots[:, None, :]
    first = same.argmax(axis=2)
    last = N_STEPS - same[:, :, ::-1].argmax(axis=2)
    middle = (first + last) / 2
    return np.where(first == 0, 0.0, np.where(last == N_STEPS, float(N_STEPS), middle))
