"""Scores of predicted quantiles and intervals, from any model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import boolean, float_array
from triegp.devices import to_host
from triegp.metrics.observed import Observed, read_observed
from triegp.models.distribution import check_quantiles, interval_quantiles

Floats = npt.NDArray[np.float64]


def pinball(
    y: Any, quantiles: Any, levels: Any, *, sample_weight: Any = None, by_row: bool = False
) -> float | Floats:
    """Pinball loss, averaged over levels, in units of y; lower is better.

    For a quantile q at level p it is p (y - q) above q, and (1 - p) (q - y) below.

    Parameters
    ----------
    y : array-like (m,) or (m, n_targets)
        Observed targets.
    quantiles : array-like (m, k) or (m, k, n_targets)
        Predicted quantiles, as `predict_quantiles` returns them; (m,) for a single level.
    levels : float or array-like (k,)
        Their probabilities, strictly between 0 and 1.
    sample_weight : array-like (m,), optional
        How often each row counts. Rows at which y or quantiles are NaN are ignored if their weight
        is 0; otherwise ValueError is raised.
    by_row : bool, default=False
        Whether to return the loss of each row, (m,) or (m, n_targets), instead of the mean.

    Notes
    -----
    Half the mean absolute error if 0.5 is the only level, as in scikit-learn. O(m k).

    Examples
    --------
    >>> from triegp.metrics import pinball
    >>> pinball([1.0, 3.0], [[0.0, 2.0], [0.0, 2.0]], [0.25, 0.75])
    0.5
    """
    whole, observed = boolean("by_row", by_row), read_observed(y, sample_weight)
    level = check_quantiles(levels)
    given = float_array("quantiles", to_host(quantiles))
    if given.ndim == 1 and level.size == 1:
        given = given[:, None]
    found = _read_ends("quantiles", given, level.size, observed)
    above = observed.y[:, None, :] - found
    column = level[:, None]
    by_level = np.maximum(column * above, (column - 1.0) * above)
    return observed.result(by_level.mean(axis=1), whole=whole)


def interval_score(
    y: Any, interval: Any, coverage: float, *, sample_weight: Any = None, by_row: bool = False
) -> float | Floats:
    """Interval score of Winkler, in units of y; lower is better.

    The width of the interval, plus 2 / (1 - coverage) times the distance of y if it lies outside.

    Parameters
    ----------
    y : array-like (m,) or (m, n_targets)
        Observed targets.
    interval : array-like (m, 2) or (m, 2, n_targets)
        Lower and upper ends, as `predict_interval` returns them.
    coverage : float
        Nominal coverage of the intervals, strictly between 0 and 1.
    sample_weight : array-like (m,), optional
        How often each row counts. Rows at which y or the interval is NaN are ignored if their
        weight is 0; otherwise ValueError is raised.
    by_row : bool, default=False
        Whether to return the score of each row, (m,) or (m, n_targets), instead of the mean.

    Notes
    -----
    4 / (1 - coverage) times the mean pinball loss of both ends. O(m).

    Examples
    --------
    >>> from triegp.metrics import interval_score
    >>> interval_score([0.5, 3.0], [[0.0, 2.0], [0.0, 2.0]], coverage=0.9, by_row=True)
    array([ 2., 22.])
    """
    whole, observed = boolean("by_row", by_row), read_observed(y, sample_weight)
    tail = interval_quantiles(coverage)[0]
    low, high = _ends(interval, observed)
    outside = np.maximum(low - observed.y, 0.0) + np.maximum(observed.y - high, 0.0)
    width = np.subtract(high, low, out=np.zeros_like(low), where=low < high)  # inf - inf is 0
    return observed.result(width + outside / tail, whole=whole)


def coverage(
    y: Any, interval: Any, *, sample_weight: Any = None, by_row: bool = False
) -> float | Floats:
    """Share of the targets that lie in their intervals, ends included.

    Parameters
    ----------
    y, interval, sample_weight
        As in `interval_score`.
    by_row : bool, default=False
        Whether to return 1 or 0 for each row, (m,) or (m, n_targets), instead of the share.

    Examples
    --------
    >>> from triegp.metrics import coverage
    >>> coverage([0.5, 3.0], [[0.0, 2.0], [0.0, 2.0]])
    0.5
    """
    whole, observed = boolean("by_row", by_row), read_observed(y, sample_weight)
    low, high = _ends(interval, observed)
    inside = np.where((low <= observed.y) & (observed.y <= high), 1.0, 0.0)
    inside[np.isnan(low) | np.isnan(high) | np.isnan(observed.y)] = np.nan
    return observed.result(inside, whole=whole)


def _ends(interval: Any, observed: Observed) -> tuple[Floats, Floats]:
    """Lower and upper ends, (m, t) each."""
    found = _read_ends("interval", float_array("interval", to_host(interval)), 2, observed)
    low, high = found[:, 0], found[:, 1]
    crossed = (low > high).any(axis=1)
    if crossed.any():
        row = int(np.argmax(crossed))
        raise ValueError(
            f"interval must have lower ends that do not exceed the upper ones, got {found[row].T} "
            f"at row {row}"
        )
    return low, high


def _read_ends(name: str, given: Floats, n_ends: int, observed: Observed) -> Floats:
    """Quantiles of every target, (m, k, t); raises ValueError if they do not fit the targets."""
    n_rows, n_targets = observed.y.shape
    shape = (n_rows, n_ends) if observed.one_dimensional else (n_rows, n_ends, n_targets)
    if given.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {given.shape}")
    found = given.reshape(n_rows, n_ends, n_targets)
    observed.known(name, np.asarray(np.isnan(found).any(axis=(1, 2))))
    return found
