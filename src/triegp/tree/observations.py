"""What is observed at each row: a target, and the variance with which it tells of f.

The arrays of the rows lie where the targets came from, on the host or in an engine's own memory
(`Engine.hold`), all in the same place but for a noise that all rows share: arithmetic here is with
numbers and with arrays of one kind, and numpy's functions hand over to the library they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_vector, non_negative_vector, positive_number
from triegp.devices import on_device, to_host
from triegp.engines import Engine
from triegp.tree.order import BitOrder

RANGES = {
    # dtype: (smallest noise, largest noise, largest |target|) that its messages can hold
    np.dtype(np.float64): (1e-300, 1e300, 1e150),
    np.dtype(np.float32): (1e-30, 1e30, 1e15),
}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Observations:
    """Targets with their noise, one entry a row (or one for all).

    Attributes
    ----------
    y : float64 (n,)
        Targets.
    noise : float64 (n,) or (1,)
        Variance of a new observation at each row: noise + nugget + known noise. On the host if it
        is one for all rows.
    weight : float64 (n,) or None
        How often each row counts; None is once.
    """

    y: Floats
    noise: Floats
    weight: Floats | None

    @property
    def variance(self) -> Floats:
        """Variance of each row's message, noise / weight, (n,) or (1,); inf where weight is 0."""
        if self.weight is None:
            return self.noise
        with np.errstate(divide="ignore"):
            return _one_or_all(self.noise) / self.weight

    @property
    def remainder(self) -> Floats:
        """Variance of what stays of a row that loses one of its copies, (n,) or (1,); or inf."""
        if self.weight is None:
            return np.array([np.inf])
        with np.errstate(divide="ignore"):
            return _one_or_all(self.noise) / np.maximum(self.weight - 1.0, 0.0)

    @property
    def constant(self) -> float:
        """What tempering by the weights adds to the nll."""
        if self.weight is None:
            return 0.0
        counts = self.weight > 0
        c, noise = self.weight[counts], _each_row(self.noise, self.weight)[counts]
        terms = (c - 1.0) * (math.log(2.0 * math.pi) + np.log(noise)) + np.log(c)
        return 0.5 * float(terms.sum())

    def noise_gradient(self, by_variance: Floats) -> Floats:
        """d nll / d noise of every row, (n,), given d nll / d variance of its message, (n,)."""
        if self.weight is None:
            return by_variance
        c = self.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = by_variance / c + (c - 1.0) / (2.0 * _one_or_all(self.noise))
        return np.where(c > 0, gradient, 0.0)


@dataclass(frozen=True, eq=False)
class Measured:
    """What came with the rows, checked; what `observe` makes observations of for any noise.

    Attributes
    ----------
    y : float64 (n,)
        Targets.
    known_noise : float64 (n,) or None
        Known variances, which add to the noise.
    weight : float64 (n,) or None
        How often each row counts; None is once.
    """

    y: Floats
    known_noise: Floats | None
    weight: Floats | None

    @property
    def count(self) -> float:
        """Number of rows, weights counted."""
        return float(self.y.size if self.weight is None else self.weight.sum())


def measure(
    y: Any,
    *,
    n_rows: int,
    known_noise: Any = None,
    sample_weight: Any = None,
    dtype: npt.DTypeLike = np.float64,
    engine: Engine | None = None,
) -> Measured:
    """Check what is known of the rows' targets.

    Parameters
    ----------
    y : array (n_rows,)
        Targets, finite, at most 1e150 in size.
    known_noise : array (n_rows,), optional
        Known variances of the rows; they add to the noise.
    sample_weight : array (n_rows,), optional
        Weights >= 0: an integer weight is that many copies of the row, 0 drops it.
    dtype : float64 or float32
        What the messages will be held in; float32 narrows the ranges.
    engine : Engine, optional
        Where y lies on a device, all goes to this engine's memory; otherwise to the host's.
    """
    furthest = RANGES[check_dtype(dtype)][2]
    hold = engine.hold if engine is not None and on_device(y) else to_host
    targets = finite_vector("y", y, n_rows, hold)
    if max(targets.max(), -targets.min()) > furthest:
        i = int(np.argmax(np.abs(targets)))
        raise ValueError(f"y must be at most {furthest:g} in size, got {targets[i]} at row {i}")
    known, weight = None, None
    if known_noise is not None:
        known = non_negative_vector("known_noise", known_noise, n_rows, hold)
    if sample_weight is not None:
        weight = non_negative_vector("sample_weight", sample_weight, n_rows, hold)
    return Measured(targets, known, weight)


def observe(
    order: BitOrder, rows: Measured, noise: float, *, dtype: npt.DTypeLike = np.float64
) -> Observations:
    """Combine what is known of the rows with their noise, 1e-300 to 1e300, and the order's nugget.

    O(1) where all rows have the same noise and weight.
    """
    smallest, largest, _ = RANGES[check_dtype(dtype)]
    level = positive_number("noise", noise)
    if not smallest <= level <= largest:
        raise ValueError(f"noise must lie in [{smallest:g}, {largest:g}], got {level}")
    if order.scale > largest:
        raise ValueError(f"scale of order must be at most {largest:g}, got {order.scale}")
    shared = level + order.nugget_variance
    variance = np.array([shared])
    if rows.known_noise is not None:
        variance = shared + rows.known_noise
        if variance.max() > largest:
            raise ValueError(f"known_noise must be at most {largest:g}, got {variance.max()}")
    if rows.weight is not None:
        _refuse_extreme(variance, rows.weight, smallest, largest)
    return Observations(rows.y, variance, rows.weight)


def hold_rows(rows: Measured, hold: Callable[[Floats], Floats]) -> Measured:
    """The same rows where `hold`, an engine's for example, puts them."""
    known, weight = (None if a is None else hold(a) for a in (rows.known_noise, rows.weight))
    return Measured(hold(rows.y), known, weight)


def join(old: Observations, new: Observations) -> Observations:
    """Rows after others, both in the same place."""
    noise, weight = old.noise, None
    if old.noise.size > 1 or new.noise.size > 1 or float(old.noise[0]) != float(new.noise[0]):
        noise = np.concatenate([_each_row(rows.noise, rows.y) for rows in (old, new)])
    if old.weight is not None or new.weight is not None:
        counts = [np.ones_like(r.y) if r.weight is None else r.weight for r in (old, new)]
        weight = np.concatenate(counts)
    return Observations(np.concatenate([old.y, new.y]), noise, weight)


def refuse_silence(rows: Observations | Measured) -> None:
    """Refuse rows that all have weight 0."""
    if rows.weight is not None and not rows.weight.any():
        raise ValueError("sample_weight must not be zero for all rows")


def _refuse_extreme(variance: Floats, weight: Floats, smallest: float, largest: float) -> None:
    """Refuse weights that take a row's variance, noise / weight, out of range."""
    counts = weight > 0
    with np.errstate(over="ignore"):
        ratio = _each_row(variance, weight)[counts] / weight[counts]
    bad = np.flatnonzero((ratio < smallest) | (ratio > largest))
    if bad.size:
        i = int(np.flatnonzero(counts)[bad[0]])
        raise ValueError(
            f"sample_weight must leave noise / weight in [{smallest:g}, {largest:g}], got weight "
            f"{weight[i]} at row {i}, where the noise is {variance[i if variance.size > 1 else 0]}"
        )


def _one_or_all(noise: Floats) -> Floats | float:
    """Noise (n,), or the number that all rows share."""
    return float(noise[0]) if noise.size == 1 else noise


def _each_row(noise: Floats, like: Floats) -> Floats:
    """Noise of every row, (n,), in the memory where the rows are."""
    return np.full_like(like, float(noise[0])) if noise.size == 1 else noise


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` if messages can be held in it."""
    try:
        known = dtype is not None and np.dtype(dtype) in RANGES
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
    return np.dtype(dtype)
