"""Negative log likelihood (nll) and its full gradient, O(n + q) for a given trie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.devices import like
from triegp.encoding.codes import Codes, hold_codes
from triegp.engines import Adjoints, Candidate, CpuEngine, Engine, Evaluated
from triegp.tree.order import BitOrder
from triegp.tree.rows import (
    Rows,
    add_noise,
    check_dtype,
    check_rows,
    hold_rows,
    refuse_zero_weights,
)
from triegp.tree.trie import Trie, check_codes

NO_GRADIENT = "the nll exceeds float64 and has no gradient: scale y or raise noise"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gradient:
    """Derivatives of the nll.

    Attributes
    ----------
    by_level : float64 (D + 1,)
        d nll / d W(l) for l = 0..D, where W(l) is the prior variance of the levels down to depth
        l, scale included. Entry 0 is minus the sum of the others, since the nll depends on
        differences of W only.
    by_noise : float
        d nll / d noise, for the noise variance common to all rows.
    by_row_noise : float64 (n,) or None
        d nll / d noise variance of each row; None unless `row_gradients=True`.
    by_target : float64 (n,) or None
        d nll / d y = (K + noise)^-1 y; None unless `row_gradients=True`.
    """

    by_level: Floats
    by_noise: float
    by_row_noise: Floats | None = None
    by_target: Floats | None = None


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Negative log likelihood of all rows, and its gradient or None if it was not requested."""

    nll: float
    gradient: Gradient | None = None


def likelihood(
    trie: Trie,
    order: BitOrder,
    y: Any,
    noise: float,
    *,
    known_noise: Any = None,
    sample_weight: Any = None,
    gradient: bool = False,
    row_gradients: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> Likelihood:
    """Compute the negative log likelihood of y = f + noise.

    Parameters
    ----------
    trie : Trie
        Trie of the rows, built by `build_trie` with the same order.
    order : BitOrder
        Bit order. Its levels give the variances along the trie. With nugget="row" its nugget is
        added to the noise.
    y : array (n,)
        Targets, in the order of the rows.
    noise : float
        Noise variance common to all rows, > 0.
    known_noise : array (n,), optional
        Known noise variance of each row, added to `noise`.
    sample_weight : array (n,), optional
        An integer weight is equivalent to that many copies of the row. Rows of weight 0 are
        ignored.
    gradient : bool, default=False
        Whether to return the gradient too.
    row_gradients : bool, default=False
        Whether to return the gradient, including the derivatives with respect to each row's noise
        and target.
    dtype : float64 or float32, default=float64
        Storage type of the messages. float32 halves the memory; arithmetic and sums stay float64.

    Returns
    -------
    Likelihood
        nll is +inf if its value exceeds float64. Derivatives per row are the same kind of array as
        y, on the same device. All other values are on the host.

    Raises
    ------
    OverflowError
        If the gradient is requested and exceeds float64.

    Examples
    --------
    >>> from triegp.encoding import pack_codes
    >>> from triegp.tree import build_trie
    >>> order = BitOrder.from_weights([0, 1], [0.5, 0.5], nugget="bit")
    >>> trie = build_trie(pack_codes([[0], [3]], precision=2), order)
    >>> round(likelihood(trie, order, [1.0, -1.0], noise=0.5).nll, 6)  # two independent rows
    2.910009

    Notes
    -----
    O(n) time: one sweep up the trie, and one down for the gradient. 32 bytes per row (16 with
    float32).
    """
    rows = check_rows(
        y,
        n_rows=trie.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        dtype=dtype,
        engine=trie.engine,
    )
    refuse_zero_weights(rows)
    found = rows_likelihood(
        trie, order, rows, noise, gradient=gradient, row_gradients=row_gradients, dtype=dtype
    )
    if not row_gradients or found.gradient is None:
        return found
    by_row = (like(part, y) for part in (found.gradient.by_row_noise, found.gradient.by_target))
    return Likelihood(
        found.nll, Gradient(found.gradient.by_level, found.gradient.by_noise, *by_row)
    )


def rows_likelihood(
    trie: Trie,
    order: BitOrder,
    rows: Rows,
    noise: float,
    *,
    gradient: bool = False,
    row_gradients: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> Likelihood:
    """Compute `likelihood` of rows that are already checked; training checks them only once."""
    check_order(trie, order)
    rows = add_noise(rows, order, noise, dtype=dtype)
    sums, adjoints = trie.engine.evaluate(
        trie.links,
        order.levels,
        trie.row_idx,
        rows.y,
        rows.variance,
        check_dtype(dtype),
        gradient or row_gradients,
    )
    nll = sums.nll + rows.constant
    if not (gradient or row_gradients):
        return Likelihood(nll)
    if adjoints is None:
        raise OverflowError(NO_GRADIENT)
    return Likelihood(nll, _gradient(trie, rows, adjoints, row_gradients))


def evaluate_orders(
    codes: Codes,
    orders: Sequence[BitOrder],
    y: Any,
    noise: float,
    *,
    known_noise: Any = None,
    sample_weight: Any = None,
    gradient: bool = False,
    dtype: npt.DTypeLike = np.float64,
    engine: Engine | None = None,
) -> list[Likelihood]:
    """Compute the likelihoods of many orders over the same rows, in parallel.

    Each order's trie is built and evaluated on one thread. If `engine.batches` is True, the engine
    evaluates many orders in one call instead. Results are in the order of `orders`, and bitwise
    equal to those of `likelihood` for one order at a time; on the CUDA engine they may differ by
    rounding: other kernels compute them, and derivatives by the noise are added up in another
    order.

    Parameters
    ----------
    codes : Codes
        The training rows.
    orders : sequence of BitOrder
        Bit orders and levels.
    y, noise, known_noise, sample_weight, gradient, dtype : array-like, float, bool
        As for `likelihood`.
    engine : Engine, optional
        Who computes; the CPU on all cores by default.
    """
    if not orders:
        return []
    engine = engine or CpuEngine()
    rows = check_rows(
        y,
        n_rows=codes.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        dtype=dtype,
        engine=engine,
    )
    refuse_zero_weights(rows)
    codes, rows = hold_codes(codes, engine.hold), hold_rows(rows, engine.hold)
    cases = [Case(codes, order, rows) for order in orders]
    return evaluate_cases(cases, noise, engine, gradient=gradient, dtype=dtype)


class Case(NamedTuple):
    """A bit order with rows of one target; arrays lie in the memory of the evaluating engine."""

    codes: Codes
    order: BitOrder
    rows: Rows


def evaluate_cases(
    cases: Sequence[Case],
    noise: float,
    engine: Engine,
    *,
    gradient: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> list[Likelihood]:
    """Compute the likelihoods of many cases, each with its own order and rows.

    Results are in the order of `cases`, and equal to those of `rows_likelihood` for one case at
    a time. No trie is kept: every call sorts the rows again.
    """
    candidates, observed = [], []
    for codes, order, given in cases:
        check_codes(codes, order)
        rows = add_noise(given, order, noise, dtype=dtype)
        observed.append(rows)
        candidates.append(
            Candidate(codes.packed, order.key_bits, order.levels, rows.y, rows.variance)
        )
    weighted = gradient and any(rows.weight is not None for rows in observed)
    found = engine.evaluate_many(candidates, check_dtype(dtype), gradient, weighted)
    return [
        _evaluated(rows, one, gradient, check_dtype(dtype))
        for rows, one in zip(observed, found, strict=True)
    ]


def leaf_messages(
    trie: Trie, rows: Rows, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return messages (m, s), (2n,) each: filled in for the leaves, uninitialised for nodes."""
    return trie.engine.leaves(trie.row_idx, rows.y, rows.variance, check_dtype(dtype))


def check_order(trie: Trie, order: BitOrder) -> None:
    """Raise ValueError if the trie was built with other key bits than those of `order`.

    It may leave out key bits at the end whose weights are 0 (`cut_order`).
    """
    n = trie.n_levels
    if n < order.n_used or not np.array_equal(trie.bits, order.key_bits[:n]):
        raise ValueError(
            "order must be the one the trie was built with, with key bits "
            f"{trie.bits!r:.60}, got {order.key_bits!r:.60}"
        )


def _gradient(trie: Trie, rows: Rows, adjoints: Adjoints, row_gradients: bool) -> Gradient:
    by_level, by_mean, by_var = adjoints

    def by_row(values: npt.NDArray[Any]) -> Floats:
        found: Floats = like(trie.unsort(values.astype(np.float64)), rows.y)
        return found

    with np.errstate(over="ignore", invalid="ignore"):  # overflow is checked below
        if rows.weight is None and not row_gradients:
            by_noise, by_row_noise = float(by_var.sum(dtype=np.float64)), None
        else:
            by_row_noise = rows.noise_gradient(by_row(by_var))
            by_noise = float(by_row_noise.sum())
    _refuse_overflow(by_level, by_noise, by_var.dtype)
    if not row_gradients:
        return Gradient(by_level, by_noise)
    return Gradient(by_level, by_noise, by_row_noise, by_row(by_mean))


def _evaluated(rows: Rows, found: Evaluated, gradient: bool, dtype: np.dtype[Any]) -> Likelihood:
    """Combine an engine's result with the constant and the weights of the rows."""
    nll = found.sums.nll + rows.constant
    if not gradient:
        return Likelihood(nll)
    if found.by_level is None:
        raise OverflowError(NO_GRADIENT)
    by_noise = found.by_noise
    if rows.weight is not None:
        assert found.by_var is not None
        with np.errstate(over="ignore", invalid="ignore"):
            by_noise = float(rows.noise_gradient(found.by_var).sum())
    _refuse_overflow(found.by_level, by_noise, dtype)
    return Likelihood(nll, Gradient(found.by_level, by_noise))


def _refuse_overflow(by_level: Floats, by_noise: float, dtype: np.dtype[Any]) -> None:
    if not (np.isfinite(by_level).all() and math.isfinite(by_noise)):
        raise OverflowError(f"the gradient exceeds {dtype}: scale y or raise noise")
