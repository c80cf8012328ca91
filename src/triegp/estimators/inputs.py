"""Checks of targets, weights and known noise; standardisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, non_negative_vector, real_number, refuse_masked
from triegp.encoding.reading import rows_of_lists
from triegp.imports import scipy
from triegp.tree.rows import Rows, refuse_zero_weights

Floats = npt.NDArray[np.float64]

WEIGHTS = (1e-30, 1e30)  # smallest and largest sample weight other than 0
MOST_APART = 2.0  # scales of targets that share known noise
LARGE_OFFSET = 1e-6  # of a target: its deviation is less than this times its size


def read_rows(
    X: npt.NDArray[Any], y: Any, sample_weight: Any, known_noise: Any, *, all_zero: bool = False
) -> Rows:
    """Check the arguments and return them as Rows with y (n, k).

    X: as `real_array` returns it. all_zero: whether all weights may be 0.
    """
    n_rows = X.shape[0]
    targets = check_targets(y)
    if n_rows != targets.shape[0]:
        raise ValueError(
            f"X and y must have the same number of rows, got {n_rows} and {targets.shape[0]}"
        )
    weight = check_weight(sample_weight, n_rows)
    known = None
    if known_noise is not None:
        known = non_negative_vector("known_noise", known_noise, n_rows)
        known = known if known.any() else None
    rows = Rows(targets, known, weight, X)
    if not all_zero:
        refuse_zero_weights(rows)
    return rows


def check_targets(y: Any) -> Floats:
    """Targets as columns (n, k); raises ValueError unless they are finite numbers."""
    if y is None:
        raise ValueError("y must be given: this estimator requires y to be passed, got None")
    if scipy.sparse.issparse(y):
        raise ValueError(f"y must be a dense array, got a sparse {type(y).__name__}")
    refuse_masked("y", y)
    array = np.asarray(rows_of_lists("y", y))
    if array.dtype.kind == "O":
        array = _plain_numbers(array)
    if array.ndim not in (1, 2) or array.shape[0] == 0 or (array.ndim == 2 and array.shape[1] < 1):
        raise ValueError(f"y must have shape (n_rows,) or (n_rows, k), got {array.shape}")
    targets = float_array("y", array)
    if not np.isfinite(targets).all():
        where = np.argwhere(~np.isfinite(targets))[0]
        value = "NaN" if np.isnan(targets[tuple(where)]) else str(targets[tuple(where)])
        raise ValueError(f"y must be finite, got {value} at row {where[0]}")
    return targets.reshape(targets.shape[0], -1)


def check_weight(sample_weight: Any, n_rows: int) -> Floats | None:
    """Sample weights as a vector (n,), or None; a single number applies to all rows.

    Raises ValueError unless every weight is 0 or lies in WEIGHTS.
    """
    if sample_weight is None:
        return None
    weight = float_array("sample_weight", sample_weight)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    weight = non_negative_vector("sample_weight", weight, n_rows)
    smallest, largest = WEIGHTS
    bad = (weight > largest) | ((weight > 0) & (weight < smallest))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight must be 0 or in [{smallest:g}, {largest:g}], got {weight[i]} at row "
            f"{i}: noise / weight must stay within float64"
        )
    return weight


def copy_rows(rows: Rows) -> Rows:
    """Copy the rows, so that the caller cannot change them; float32 features stay float32."""
    X = np.array(rows.X)
    if X.dtype != np.float32:
        X = X.astype(np.float64)
    extras = (rows.known_noise, rows.weight)
    known, weight = (None if part is None else np.array(part, float) for part in extras)
    return Rows(rows.y.copy(), known, weight, X)


def location_and_scale(targets: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of each target, (k,) each.

    A row of weight c equals c rows. After n equal targets, the rule of succession gives the next a
    probability of 1 / (n + 2) to differ; by how much they do not say, but the more of them agree,
    the less: a share of 1 / n**2 of their size is assumed, with size 1 for targets of 0. So the
    deviation of a constant target is this share over sqrt(n + 2), at least a millionth of the size.
    Raises ValueError if the difference of a target and the mean exceeds float64.
    """
    if weight is None:  # sorted, so that sums do not depend on the order of the rows
        targets, count = np.sort(targets, axis=0), np.ones(targets.shape[0])
    else:
        order = np.lexsort([weight, *targets.T])
        targets, count = targets[order], weight[order]
    total = count.sum()
    size = np.abs(targets[count > 0]).max(axis=0)
    size = np.where(size > 0, size, 1.0)  # squares of huge targets must not overflow

    def moments(columns: Floats) -> tuple[Floats, Floats]:
        mean = count @ columns / total
        var = count @ (columns - mean) ** 2 / max(total - 1.0, min(total, 1.0))
        return mean, np.sqrt(var)

    mean, sd = moments(targets / size)
    mean *= size
    offset = sd < LARGE_OFFSET
    if offset.any():  # subtract one of the targets first: the difference is exact
        first = targets[np.argmax(count > 0), offset]
        differences = np.where((count > 0)[:, None], targets[:, offset] - first, 0.0)
        shift, sd[offset] = moments(differences / size[offset])
        mean[offset] = first + shift * size[offset]
    with np.errstate(over="ignore"):
        far = np.isinf(targets - mean).any(axis=0) | np.isinf(scale := sd * size)
    if far.any():
        raise ValueError(
            "y must differ from its mean by less than 1.8e308, got targets of size "
            f"{size[np.argmax(far)]}"
        )
    constant = sd <= 2.0 * np.finfo(np.float64).eps  # no more than the targets' rounding errors
    share = max(1.0 / (np.sqrt(total + 2.0) * max(total, 1.0) ** 2), LARGE_OFFSET)
    return mean, np.where(constant, np.maximum(size * share, scale), scale)


def common_scale(targets: Floats, scale: Floats) -> Floats:
    """One scale for all targets, (k,): the root mean square of theirs.

    Raises ValueError if they differ much: calibration takes each standardised target to have a
    variance of about 1.
    """
    varying = np.ptp(targets, axis=0) > 0
    if not varying.any():
        return np.full_like(scale, scale.max())
    smallest, largest = scale.min(), scale.max()
    if not varying.all() or largest > MOST_APART * smallest:
        found = f"{smallest:.3g} to {largest:.3g}" if varying.all() else "0, a constant column"
        raise ValueError(
            'known_noise with multi_target="shared" requires columns of y of about the same scale, '
            f'got deviations of {found}: rescale the columns, or use multi_target="own"'
        )
    # Squares of huge scales must not overflow.
    return np.full_like(scale, largest * np.sqrt(np.mean(np.square(scale / largest))))


def standardise(rows: Rows, mean: Floats, scale: Floats) -> Rows:
    """Targets (n, k) and known noise (n, k) in standardised units; mean, scale: float64 (k,).

    The scatter of folded rows is in standardised units already.
    """
    known = None if rows.known_noise is None else rows.known_noise[:, None] / scale / scale
    with np.errstate(over="ignore"):  # targets far outside: checks see inf
        y = (rows.y - mean) / scale
    return replace(rows, y=y, known_noise=known)


def _plain_numbers(array: npt.NDArray[Any]) -> Floats:
    """An array of objects as float64; raises ValueError unless all of them are numbers."""
    for cell in array.ravel().tolist():
        try:
            real_number(cell)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"y must be an array of real numbers, got {cell!r:.40}") from None
    return array.astype(np.float64)
