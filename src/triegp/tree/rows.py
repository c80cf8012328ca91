"""Rows with their targets, noise and weights: one record from the estimator to the engine.

All arrays of a record lie in the same memory as the targets, on the host or in an engine's memory
(`Engine.hold`). The exception is a noise common to all rows, which lies on the host. Expressions
here combine scalars with arrays of one library only, so numpy's functions dispatch to that library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_vector, non_negative_vector, positive_number
from triegp.devices import on_device, to_host
from triegp.engines import Engine
from triegp.tree.order import BitOrder

RANGES = {
    # dtype: (smallest noise, largest noise, largest |target|) that messages of this dtype can store
    np.dtype(np.float64): (1e-300, 1e300, 1e150),
    np.dtype(np.float32): (1e-30, 1e30, 1e15),
}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Targets with their noise and weights, and optionally the features.

    Attributes
    ----------
    y : float64 (n,) or (n, k)
        Targets. The functions of one tree take a single target, `target(j)`.
    known_noise : float64 (n,), (n, k) or None
        Known noise variance of each row, as the user passes it; None if there is none.
    weight : float64 (n,) or None
        How often each row counts; None if each counts once.
    X : float (n, d) or None
        Features; None if they are no longer needed.
    noise : float64 (n,), (1,) or None
        Noise variance of each row under a model: its noise and nugget, and the known noise. None
        until `add_noise` sets it. It has shape (1,) and lies on the host if all rows share it.
    copies : float64 (n,) or None
        How many observations each row stands for; None if that is its weight. A row of weight c
        and one copy is one observation whose noise variance is divided by c.
    scatter : float64 (n,), (n, k) or None
        Weighted sum of squared deviations of a row's observations from their mean, which is y;
        None if they are all equal to it.
    pulling : bool
        Whether the weights only pull the posterior mean. They are then 1 while parameters are
        learned: weights of copies say nothing about the noise.
    """

    y: Floats
    known_noise: Floats | None = None
    weight: Floats | None = None
    X: npt.NDArray[Any] | None = None
    noise: Floats | None = None
    copies: Floats | None = None
    scatter: Floats | None = None
    pulling: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.y.shape[0])

    @property
    def n_targets(self) -> int:
        """Number of targets, k."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def count(self) -> float:
        """Number of observations of each target: the sum of the copies, or of the weights, or n."""
        each = self.weight if self.copies is None else self.copies
        return float(self.n_rows if each is None else each.sum())

    @property
    def features(self) -> npt.NDArray[Any]:
        """Features X; raises ValueError if X is None."""
        if self.X is None:
            raise ValueError("these rows have no features: X is None")
        return self.X

    @property
    def total_noise(self) -> Floats:
        """Noise of rows returned by `add_noise`, (n,) or (1,); raises ValueError if None."""
        if self.noise is None:
            raise ValueError("these rows have no noise yet: call add_noise first")
        return self.noise

    @property
    def variance(self) -> Floats:
        """Variance of each row's message, noise / weight, (n,) or (1,); inf if the weight is 0."""
        if self.weight is None:
            return self.total_noise
        with np.errstate(divide="ignore"):
            return _one_or_all(self.total_noise) / self.weight

    @property
    def remainder(self) -> Floats:
        """Variance of each row's message after one copy of the row is removed, (n,) or (1,).

        This is noise / (weight - 1), and inf if no copy is left.
        """
        if self.weight is None:
            return np.array([np.inf])
        with np.errstate(divide="ignore"):
            return _one_or_all(self.total_noise) / np.maximum(self.weight - 1.0, 0.0)

    @property
    def constant(self) -> float:
        """Constant that weights, copies and scatter add to the nll.

        k observations of noise variance v / c_i each, with sum of weights c and weighted mean y,
        enter the trie as one message (y, v / c). The constant is the difference to the nll of the
        k observations: ((k - 1) log(2 pi v) + log c + scatter / v) / 2. If k is not c, the term
        -sum log(c_i) / 2, which no parameter changes, is left out. Several targets are added up.
        """
        if self.weight is None:
            return 0.0
        counts = self.weight > 0
        c, noise = self.weight[counts], self.total_noise
        k = c if self.copies is None else self.copies[counts]
        own = float(noise[0]) if noise.size == 1 else noise[counts]
        terms = (k - 1.0) * (math.log(2.0 * math.pi) + np.log(own)) + np.log(c)
        terms = self.n_targets * terms
        if self.scatter is not None:
            terms = terms + _add_targets(self.scatter)[counts] / own
        return 0.5 * float(terms.sum())

    def noise_gradient(self, by_variance: Floats) -> Floats:
        """Convert d nll / d message variance, (n,), to d nll / d noise of each row, (n,).

        The nll is that of all targets.
        """
        if self.weight is None:
            return by_variance
        c = self.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = by_variance / c + self.noise_offset
        return np.where(c > 0, gradient, 0.0)

    @property
    def noise_offset(self) -> Floats:
        """Derivative of `constant` by the noise of each row, (n,); the rows must have weights."""
        assert self.weight is not None
        noise = _one_or_all(self.total_noise)
        k = self.weight if self.copies is None else self.copies
        offset = self.n_targets * (k - 1.0) / (2.0 * noise)
        if self.scatter is not None:
            offset = offset - _add_targets(self.scatter) / (2.0 * noise * noise)
        return offset

    @property
    def within(self) -> float:
        """Sum of scatter / noise over the rows: the squares that the messages leave out."""
        if self.scatter is None:
            return 0.0
        return float((_add_targets(self.scatter) / _one_or_all(self.total_noise)).sum())

    def for_training(self) -> Rows:
        """The rows that parameters are learned from: without weights that only pull the mean."""
        if not self.pulling:
            return self
        return replace(self, weight=None, copies=None, scatter=None, pulling=False)

    def target(self, j: int) -> Rows:
        """Return the rows with target j only, y (n,)."""
        known, scatter = (
            part if part is None or part.ndim == 1 else part[:, j]
            for part in (self.known_noise, self.scatter)
        )
        return replace(self, y=self.y[:, j], known_noise=known, scatter=scatter)

    def targets(self, columns: Sequence[int]) -> Rows:
        """Return the rows with some of their targets, y (n, len(columns))."""
        known, scatter = (
            part if part is None or part.ndim == 1 else part[:, columns]
            for part in (self.known_noise, self.scatter)
        )
        return replace(self, y=self.y[:, columns], known_noise=known, scatter=scatter)

    def select(self, some: npt.NDArray[Any] | slice) -> Rows:
        """Return some of the rows, by index or mask in the memory of y, or by slice.

        A noise of shape (1,) is kept as it is.
        """
        shared = self.noise is not None and self.noise.shape[0] != self.n_rows
        kept = self.noise if shared else None
        parts = (self.known_noise, self.weight, self.X, None if shared else self.noise)
        known, weight, X, noise = (None if part is None else part[some] for part in parts)
        extras = (None if part is None else part[some] for part in (self.copies, self.scatter))
        copies, scatter = extras
        noise = kept if shared else noise
        return Rows(self.y[some], known, weight, X, noise, copies, scatter, self.pulling)


def check_rows(
    y: Any,
    *,
    n_rows: int,
    known_noise: Any = None,
    sample_weight: Any = None,
    dtype: npt.DTypeLike = np.float64,
    engine: Engine | None = None,
) -> Rows:
    """Check the targets, noise and weights of one target, and return them as Rows.

    Parameters
    ----------
    y : array (n_rows,)
        Targets: finite, at most 1e150 in absolute value (1e15 with float32).
    known_noise : array (n_rows,), optional
        Known noise variance of each row, added to the noise of the model.
    sample_weight : array (n_rows,), optional
        Weights >= 0. An integer weight is equivalent to that many copies of the row. Rows of
        weight 0 are ignored.
    dtype : float64 or float32, default=float64
        Storage type of the messages.
    engine : Engine, optional
        If y lies on a device, all arrays are copied to this engine's memory. Otherwise they are
        copied to the host.
    """
    hold = engine.hold if engine is not None and on_device(y) else to_host
    targets = finite_vector("y", y, n_rows, hold)
    known, weight = None, None
    if known_noise is not None:
        known = non_negative_vector("known_noise", known_noise, n_rows, hold)
    if sample_weight is not None:
        weight = non_negative_vector("sample_weight", sample_weight, n_rows, hold)
    rows = Rows(targets, known, weight)
    check_range(rows, dtype)
    return rows


def check_range(rows: Rows, dtype: npt.DTypeLike = np.float64) -> None:
    """Raise ValueError if a target is too large for messages of this dtype."""
    furthest = RANGES[check_dtype(dtype)][2]
    if max(rows.y.max(), -rows.y.min()) > furthest:
        i = int(np.argmax(np.abs(rows.y).reshape(rows.n_rows, -1).max(axis=1)))
        raise ValueError(f"y must be at most {furthest:g} in size, got {rows.y[i]} at row {i}")


def add_noise(
    rows: Rows, order: BitOrder, noise: float, *, dtype: npt.DTypeLike = np.float64
) -> Rows:
    """Return rows whose noise is the sum of noise, nugget and known noise.

    `noise` must lie between 1e-300 and 1e300 (1e-30 and 1e30 with float32). O(n), or O(1) if there
    is neither known noise nor a weight.
    """
    smallest, largest, _ = RANGES[check_dtype(dtype)]
    level = positive_number("noise", noise)
    if not smallest <= level <= largest:
        raise ValueError(f"noise must lie in [{smallest:g}, {largest:g}], got {level}")
    if order.scale > largest:
        raise ValueError(f"scale of order must be at most {largest:g}, got {order.scale}")
    if rows.noise is not None:
        raise ValueError("rows must not have noise yet: add_noise was called before")
    shared = level + order.nugget_variance
    total = np.array([shared])
    if rows.known_noise is not None:
        total = shared + rows.known_noise
        if total.max() > largest:
            raise ValueError(f"known_noise must be at most {largest:g}, got {total.max()}")
    if rows.weight is not None:
        check_weight_range(total, rows.weight, smallest, largest)
    return replace(rows, known_noise=None, noise=total)


def hold_rows(rows: Rows, hold: Callable[[Floats], Floats]) -> Rows:
    """Return the rows in other memory, for example an engine's; X is dropped."""
    extras = (rows.known_noise, rows.weight, rows.copies, rows.scatter)
    known, weight, copies, scatter = (None if part is None else hold(part) for part in extras)
    return Rows(hold(rows.y), known, weight, copies=copies, scatter=scatter)


def move_rows(rows: Rows, hold: Callable[[Any], Any]) -> Rows:
    """Return the rows in other memory, with features and noise.

    A noise that all rows share stays on the host.
    """
    known, weight, X, copies, scatter = (
        None if part is None else hold(part)
        for part in (rows.known_noise, rows.weight, rows.X, rows.copies, rows.scatter)
    )
    noise = rows.noise
    if noise is not None and noise.size == rows.n_rows and rows.n_rows > 1:
        noise = hold(noise)
    return Rows(hold(rows.y), known, weight, X, noise, copies, scatter, rows.pulling)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of several parts, one after the other, all in the same memory.

    Missing weights are 1, missing known noise and scatter are 0, missing copies are the weights. A
    noise that all rows share stays (1,). Parts have noise either all or none. Features are joined
    if all parts have them.
    """

    def join(columns: Sequence[Any], fill: float) -> Any:
        if all(column is None for column in columns):
            return None
        pairs = zip(columns, parts, strict=True)
        shape = next(column.shape[1:] for column in columns if column is not None)
        filled = (
            np.full_like(part.y, fill, shape=(part.n_rows, *shape)) if column is None else column
            for column, part in pairs
        )
        return np.concatenate(list(filled))

    noise = None
    if any(part.noise is not None for part in parts):
        noise = _join_noise(parts)
    copies = [part.copies for part in parts]
    if any(each is not None for each in copies):
        copies = [part.weight if part.copies is None else part.copies for part in parts]
    return Rows(
        np.concatenate([part.y for part in parts]),
        join([part.known_noise for part in parts], 0.0),
        join([part.weight for part in parts], 1.0),
        np.concatenate([part.features for part in parts]) if parts[0].X is not None else None,
        noise,
        join(copies, 1.0),
        join([part.scatter for part in parts], 0.0),
    )


def refuse_zero_weights(rows: Rows) -> None:
    """Raise ValueError if all rows have weight 0."""
    if rows.weight is not None and not rows.weight.any():
        raise ValueError("sample_weight must not be zero for all rows")


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` as a numpy dtype; raise ValueError unless it is float64 or float32."""
    try:
        known = dtype is not None and np.dtype(dtype) in RANGES
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
    return np.dtype(dtype)


def _join_noise(parts: Sequence[Rows]) -> Floats:
    noise = [part.total_noise for part in parts]
    if all(one.size == 1 and float(one[0]) == float(noise[0][0]) for one in noise):
        return noise[0]
    like = (np.ones_like(part.y, shape=(part.n_rows,)) for part in parts)
    return np.concatenate([_each_row(one, own) for one, own in zip(noise, like, strict=True)])


def check_weight_range(variance: Floats, weight: Floats, smallest: float, largest: float) -> None:
    """Raise ValueError if noise / weight of a row is out of range."""
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


def _add_targets(scatter: Floats) -> Floats:
    """Scatter (n,) or (n, k), summed over the targets, (n,)."""
    return scatter if scatter.ndim == 1 else scatter.sum(axis=1)


def _one_or_all(noise: Floats) -> Floats | float:
    """Return noise (n,) unchanged, and noise (1,) as a float."""
    return float(noise[0]) if noise.size == 1 else noise


def _each_row(noise: Floats, like: Floats) -> Floats:
    """Return the noise of each row, (n,), in the memory of `like`."""
    return np.full_like(like, float(noise[0])) if noise.size == 1 else noise
