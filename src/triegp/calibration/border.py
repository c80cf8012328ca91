"""Rows outside the training box: what the model cannot know there, as added variance.

Beyond a face of the box the function goes on with a slope that the data do not tell. The mean stays
that of the nearest row of the box. The error is a line with an unknown slope: for feature j and one
side, N(0, slope_j^2) times the distance from that side, in box widths. All lines are independent.

The slope of a feature is 1.5 times that of the straight line that explains as much as the feature
does. If a feature with uniform values explains all of y, that line has a slope of sqrt(12)
deviations of y per box width. The deviation of a prediction then reaches that of y at 0.19 box
widths from the border. It begins at 0 on the border, and a feature that explains nothing adds 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.devices import like, on_device, to_host
from triegp.models.distribution import PredictiveDistribution
from triegp.models.draws import Stream, normals_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

STEEPER = 1.5  # slope beyond the box, relative to the line that explains as much
LEAST_SHARE = 0.02  # of the explained variance; a feature below this share does not matter
LEAST_OF_EQUAL = 0.25  # the same relative to an equal share, if there are many features
FURTHEST = 1e6  # box widths; a row further out counts as this far


@dataclass(frozen=True, eq=False)
class Border:
    """The training box, and what happens beyond it.

    Attributes
    ----------
    low, high : float64 (d,)
        The box.
    slope : float64 (n_targets, d)
        Deviation of the unknown slope of each feature, per box width, in standardised units.
    unrelated : bool
        Whether rows outside have mean 0 and variance 1 instead, independent of all others.
    """

    low: Floats
    high: Floats
    slope: Floats
    unrelated: bool = False


class Beyond(NamedTuple):
    """Rows outside the box.

    rows: int64 (r,), their indices. lines: float64 (r, 2 d), deviation of each of the 2 d lines at
    each of these rows; None if the rows are unrelated to the data.
    """

    rows: npt.NDArray[np.int64]
    lines: Floats | None


def distances(low: Floats, high: Floats, X: Array) -> Floats:
    """Distances beyond the lower and the upper side of each feature, in box widths, (m, 2 d).

    A feature that was constant in training has no width; its distances are 0.
    """
    half = X.astype(np.float64) * 0.5  # halves: differences of huge values must not overflow
    width = 0.5 * high - 0.5 * low
    beyond = np.hstack([0.5 * low - half, half - 0.5 * high])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        found = np.where(width > 0, np.maximum(beyond, 0.0).reshape(-1, 2, low.size) / width, 0.0)
    return np.minimum(found, FURTHEST).reshape(beyond.shape)


def find_beyond(border: Border | None, X: Array, column: int) -> Beyond | None:
    """The rows outside the box, in the memory of X; None if there are none."""
    if border is None:
        return None
    low, high = like(border.low, X), like(border.high, X)
    rows = np.flatnonzero(((low > X) | (high < X)).any(axis=1))
    if not rows.size:
        return None
    if border.unrelated:
        return Beyond(rows, None)
    far = distances(border.low, border.high, to_host(X[rows]))
    return Beyond(rows, like(far * np.tile(border.slope[column], 2), X))


def learn_slopes(
    X: Array, weight: Floats | None, y: Floats, share: Floats, signal: float
) -> Floats:
    """Deviation of the unknown slope of each feature beyond the box, per box width, (d,).

    Parameters
    ----------
    X : float (n, d)
        Features of the training rows, on the host or on a device.
    weight : float64 (n,) or None
        Their weights.
    y : float64 (n,)
        Standardised targets.
    share : float64 (d,)
        Share of the explained variance per feature.
    signal : float
        Explained variance, from 0 to 1.

    Notes
    -----
    The line that explains the variance v has the slope sqrt(v) / deviation of the feature. Over the
    box it cannot rise by more than y does; this matters if a few values are far from all others.
    Features below a share of 2 %, or of a quarter of an equal share, count as irrelevant; from
    twice that share on they count in full.
    """
    low, high = (to_host(part).astype(np.float64) for part in (X.min(axis=0), X.max(axis=0)))
    width = 0.5 * high - 0.5 * low
    varies = width > 0
    sd = _deviations(X, weight, low, np.where(varies, width, 1.0))
    least = min(LEAST_SHARE, LEAST_OF_EQUAL / share.size)
    matters = np.clip(share / least - 1.0, 0.0, 1.0)
    rate = signal * np.clip(share, 0.0, 1.0) * matters
    steepest = float(y.max() - y.min())
    line = np.minimum(1.0 / np.where(varies, np.maximum(sd, 1e-12), 1.0), steepest)
    return np.where(varies, STEEPER * np.sqrt(rate) * line, 0.0)


def _deviations(X: Array, weight: Floats | None, low: Floats, width: Floats) -> Floats:
    """Deviation of each feature in box widths, (d,); on a device, one feature at a time."""
    if not on_device(X):
        unit = 0.5 * np.ascontiguousarray(X, np.float64)
        unit -= 0.5 * low
        unit /= width
        unit -= np.average(unit, axis=0, weights=weight)
        np.square(unit, out=unit)
        return np.asarray(np.sqrt(np.average(unit, axis=0, weights=weight)))
    found = []
    for j, (least, wide) in enumerate(zip(low.tolist(), width.tolist(), strict=True)):
        unit = (0.5 * X[:, j].astype(np.float64) - 0.5 * least) / wide
        count = None if weight is None else like(weight, unit)
        mean = np.average(unit, weights=count)
        found.append(float(np.sqrt(np.average(np.square(unit - mean), weights=count))))
    return np.array(found)


def widen(
    found: PredictiveDistribution, beyond: Beyond | None, prior: float
) -> PredictiveDistribution:
    """The distribution with the variance of rows outside added; the same object if there are none.

    prior: variance of rows that are unrelated to the data.
    """
    if beyond is None:
        return found
    means, variances = found.means, found.variances.copy()
    if beyond.lines is None:
        means = means.copy()
        means[:, beyond.rows], variances[:, beyond.rows] = 0.0, prior
    else:
        variances[:, beyond.rows] += np.square(beyond.lines).sum(axis=1)
    return PredictiveDistribution(found.weights, means, variances)


def widen_covariance(cov: Floats, beyond: Beyond | None, prior: float) -> None:
    """Add the covariance of rows outside, in place; cov: float64 (m, m)."""
    if beyond is None:
        return
    rows = beyond.rows
    if beyond.lines is None:
        cov[rows] = 0.0
        cov[:, rows] = 0.0
        cov[rows, rows] = prior
    else:
        cov[np.ix_(rows, rows)] += beyond.lines @ beyond.lines.T


def widen_groups(
    cov: Floats, beyond: Beyond | None, prior: float, groups: npt.NDArray[np.int64], n_rows: int
) -> None:
    """Add the covariance of rows outside within groups of rows, in place; cov: (g, q, q)."""
    if beyond is None:
        return
    if beyond.lines is None:
        outside = np.zeros(n_rows, bool)
        outside[beyond.rows] = True
        away = outside[groups]
        same = groups[:, :, None] == groups[:, None, :]
        either = away[:, :, None] | away[:, None, :]
        cov[:] = np.where(either, np.where(same, prior, 0.0), cov)
        return
    lines = np.zeros((n_rows, beyond.lines.shape[1]))
    lines[beyond.rows] = beyond.lines
    cov += np.einsum("gil,gjl->gij", lines[groups], lines[groups])


def widen_samples(
    draws: Floats, beyond: Beyond | None, prior: float, rng: np.random.Generator
) -> None:
    """Add one draw of all lines to each joint sample, in place; draws: float64 (m, n_samples)."""
    if beyond is None:
        return
    if beyond.lines is None:
        shape = (beyond.rows.size, draws.shape[1])
        draws[beyond.rows] = np.sqrt(prior) * rng.standard_normal(shape)
    else:
        slopes = rng.standard_normal((beyond.lines.shape[1], draws.shape[1]))
        draws[beyond.rows] += beyond.lines @ slopes


def widen_functions(
    draws: Floats,
    beyond: Beyond | None,
    prior: float,
    seeds: npt.NDArray[np.uint64],
    names: npt.NDArray[np.uint64],
) -> None:
    """Add the lines of each function to its values, in place; draws: float64 (m, k).

    seeds: uint64 (k,), of the functions; names: uint64 (m,), hashes of the rows. Distributed as
    `widen_samples` is. Values do not depend on the other rows, to the last bit.
    """
    if beyond is None:
        return
    rows = beyond.rows
    if beyond.lines is None:
        draws[rows] = np.sqrt(prior) * normals_of(seeds, Stream.BEYOND, names[rows])
        return
    slopes = normals_of(seeds, Stream.SLOPE, np.arange(beyond.lines.shape[1]))
    for line, slope in zip(beyond.lines.T, slopes, strict=True):
        draws[rows] += line[:, None] * slope
