"""Negative log likelihood and its whole gradient, O(n + q) for a given trie."""

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
        d nll / d W(l), W(l) being the prior variance above depth l, scale included. Entry 0 is
        minus the sum of the others: only differences of W enter.
    by_noise : float
        d nll / d noise, the noise that all rows share.
    by_row_noise : float64 (n,) or None
        d nll / d noise of each row, if it was asked for.
    by_target : float64 (n,) or None
        d nll / d y, that is (K + noise)^-1 y, if it was asked for.
    """

    by_level: Floats
    by_noise: float
    by_row_noise: Floats | None = None
    by_target: Floats | None = None


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Negative log likelihood of all rows, and its gradient if it was asked for."""

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
    """Negative log likelihood of y = f + noise.

    Parameters
    ----------
    trie : Trie
        Made by `build_trie` with the same order.
    order : BitOrder
        Its levels are the variances along the trie, its nugget (if per row) adds to the noise.
    y : array (n,)
        Targets in the order of the rows.
    noise : float
        Noise variance, or the floor of it, > 0.
    known_noise : array (n,), optional
        Known variances of the rows, which add to the noise.
    sample_weight : array (n,), optional
        An integer weight is that many copies of the row; 0 drops it.
    gradient : bool
        Whether to return the gradient too.
    row_gradients : bool
        Whether the gradient is to have the derivatives by each row's noise and target.
    dtype : float64 or float32
        What messages are stored in. float32 halves the memory; arithmetic and sums stay float64.

    Returns
    -------
    Likelihood
        nll is +inf where its value exceeds float64. Derivatives by row are arrays as y is, on the
        host or on the device that y came from; all else is the host's.

    Raises
    ------
    OverflowError
        If the gradient is asked for where it exceeds float64.

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
    O(n) time: one sweep up, one down for the gradient. 32 bytes a row (16 in float32).
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
    found = checked_likelihood(
        trie, order, rows, noise, gradient=gradient, row_gradients=row_gradients, dtype=dtype
    )
    if not row_gradients or found.gradient is None:
        return found
    by_row = (like(part, y) for part in (found.gradient.by_row_noise, found.gradient.by_target))
    return Likelihood(
        found.nll, Gradient(found.gradient.by_level, found.gradient.by_noise, *by_row)
    )


def checked_likelihood(
    trie: Trie,
    order: BitOrder,
    rows: Rows,
    noise: float,
    *,
    gradient: bool = False,
    row_gradients: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> Likelihood:
    """`likelihood` of rows that have been checked: training checks them once."""
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
    """Likelihoods of many orders over the same rows, side by side on the cores.

    Each order's trie is built and evaluated on one thread; results come in the order of `orders`
    and are the same bits as `likelihood` gives one by one. An engine that works on many at once
    does (`Engine.batches`).
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
    """An order over rows of one target; arrays in the memory of the engine that evaluates it."""

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
    """Likelihoods of many orders at once, each over rows of its own, in the order of the cases.

    The same as `checked_likelihood` one by one. No tries are kept: every order is sorted anew.
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
    """Messages (m, s) of all ids, (2n,): those of the leaves filled in, those of nodes empty."""
    return trie.engine.leaves(trie.row_idx, rows.y, rows.variance, check_dtype(dtype))


def check_order(trie: Trie, order: BitOrder) -> None:
    """Refuse an order that the trie was not built with."""
    if not np.array_equal(trie.bits, order.key_bits):
        raise ValueError(
            "order must be the one the trie was built with, with key bits "
            f"{trie.bits!r:.60}, got {order.key_bits!r:.60}"
        )


def _gradient(trie: Trie, rows: Rows, adjoints: Adjoints, row_gradients: bool) -> Gradient:
    by_level, by_mean, by_var = adjoints

    def by_row(values: npt.NDArray[Any]) -> Floats:
        found: Floats = like(trie.unsort(values.astype(np.float64)), rows.y)
        return found

    with np.errstate(over="ignore", invalid="ignore"):  # overflow is looked for below
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
    """What an engine found, constants and weights of the rows put in."""
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
