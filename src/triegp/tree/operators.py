"""Linear algebra with the kernel matrix K of a trie: one sweep up and one sweep down per operation.

Results are the same kind of array as the argument x, on the same device, unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_columns, finite_vector
from triegp.devices import like, to_host
from triegp.imports import scipy
from triegp.tree.likelihood import check_order, leaf_messages
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, add_noise, check_rows
from triegp.tree.trie import Trie

MAX_SIZE = 1e150  # bound on levels and vectors that keeps their products finite

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factor:
    """Factorization of K + noise, given by the variances of the inside messages.

    Attributes
    ----------
    trie : Trie
        Trie of the rows.
    levels : float64 (D + 1,)
        Remaining variance R(l) per depth l.
    s : float64 (2n,)
        Variances of the inside messages per id, in the memory of the trie's engine.
    log_det : float
        log det(K + noise), over the rows with non-zero weight.
    """

    trie: Trie
    levels: Floats
    s: Floats
    log_det: float


def factorize(
    trie: Trie, order: BitOrder, noise: float, *, known_noise: Any = None, sample_weight: Any = None
) -> Factor:
    """Factorize K + noise, for solves and the log determinant. O(n).

    The noise matrix is diagonal with entries (noise + nugget + known_noise) / sample_weight. A row
    of weight 0 has infinite noise: solves return 0 for it, and the log determinant is that of the
    other rows.

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie`.
    order : BitOrder
        Bit order and levels.
    noise : float
        Noise variance common to all rows.
    known_noise : array-like (n,), optional
        Known noise variance per row.
    sample_weight : array-like (n,), optional
        Weights of the rows.
    """
    check_order(trie, order)
    rows = check_rows(
        trie.engine.hold(np.zeros(trie.n_rows)),
        n_rows=trie.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        engine=trie.engine,
    )
    return factorize_rows(trie, order.levels, add_noise(rows, order, noise))


def factorize_rows(trie: Trie, levels: Floats, rows: Rows) -> Factor:
    """Factorize K + noise for any non-increasing levels R(0..D) and any noise of the rows. O(n)."""
    m, s = leaf_messages(trie, rows, np.float64)
    m[: trie.n_rows] = 0.0
    sums = trie.engine.inside(trie.links, levels, m, s)
    return Factor(trie, levels, s, sums.log_det)


def product(trie: Trie, levels: Any, x: Any) -> Floats:
    """Compute K x for x (n,) or (n, k), in the order of the rows. O(n k).

    `levels` are R(0..D): `BitOrder.levels` or any non-increasing sequence.

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie`.
    levels : array-like (D + 1,)
        R(0..D), as `BitOrder.levels`.
    x : array-like (n,) or (n, k)
        Vectors, in the order of the rows.
    """
    levels = check_levels(trie, levels)
    columns, shape = _columns(trie, x)
    return _rows(trie, trie.engine.product(trie.links, levels, columns), x, shape)


def solve(factor: Factor, x: Any) -> Floats:
    """Compute (K + noise)^-1 x for x (n,) or (n, k), in the order of the rows. O(n k).

    Parameters
    ----------
    factor : Factor
        Returned by `factorize`.
    x : array-like (n,) or (n, k)
        Right-hand sides, in the order of the rows.
    """
    trie = factor.trie
    columns, shape = _columns(trie, x)
    return _rows(trie, trie.engine.solve(trie.links, factor.levels, factor.s, columns), x, shape)


def whiten(factor: Factor, x: Any) -> Floats:
    """Compute T x with T'T = (K + noise)^-1, for x (n,) or (n, k). O(n k).

    Under the model, the entries of whiten(factor, y) are n independent standard normals. Entries
    are in key order, not in the order of the rows. Entry i > 0 is the standardised difference of
    the two messages that meet at node i, the separator between leaves i - 1 and i. Entry 0 is that
    of the message at the root.

    Parameters
    ----------
    factor : Factor
        Returned by `factorize`.
    x : array-like (n,) or (n, k)
        Vectors, in the order of the rows.
    """
    trie = factor.trie
    columns, shape = _columns(trie, x)
    found = trie.engine.whiten(trie.links, factor.levels, factor.s, columns)
    out: Floats = like(found.reshape(shape), x)
    return out


def inverse_diagonal(factor: Factor) -> Floats:
    """Compute the diagonal of (K + noise)^-1, (n,), on the host. O(n).

    Entry i is 1 / (leave-one-out predictive variance of y_i).

    Parameters
    ----------
    factor : Factor
        Returned by `factorize`.
    """
    trie, engine = factor.trie, factor.trie.engine
    zeros = np.zeros_like(factor.s)
    outside = engine.outside(trie.links, factor.levels, zeros, factor.s)
    nothing = np.array([np.inf])
    _, var = engine.leave_out(trie.links, factor.levels, outside, zeros, nothing)
    return engine.fetch(trie.unsort(1.0 / (var + factor.s[: trie.n_rows])))


def level_products(trie: Trie, x: Any, z: Any = None) -> Floats:
    """Compute the quadratic form x' K_l z for every depth l = 0..D. O(n k).

    Entry (a, b) of K_l is 1 if rows a and b share their first l key bits, otherwise 0. The default
    of z is x. The result is (D + 1,) for x (n,), and (D + 1, k) for x (n, k). With weights w and
    scale 1, x' K x is the sum over l >= 1 of w_l x' K_l x.

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie`.
    x, z : array-like (n,) or (n, k)
        Vectors, in the order of the rows.
    """
    columns, shape = _columns(trie, x)
    others = columns if z is None else _columns(trie, z)[0]
    if others.shape != columns.shape:
        raise ValueError(f"z must have the shape of x, {shape}, got {np.shape(z)}")
    by_level: Floats = like(trie.engine.level_products(trie.links, columns, others), x)
    return by_level[:, 0] if len(shape) == 1 else by_level


def kernel_operator(trie: Trie, levels: Any) -> scipy.sparse.linalg.LinearOperator:
    """Return K as a symmetric LinearOperator of scipy, (n, n).

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie`.
    levels : array-like (D + 1,)
        R(0..D), as `BitOrder.levels`.
    """
    levels = check_levels(trie, levels)
    return _symmetric(trie, lambda x: product(trie, levels, x))


def inverse_operator(factor: Factor) -> scipy.sparse.linalg.LinearOperator:
    """Return (K + noise)^-1 as a symmetric LinearOperator of scipy, (n, n).

    Parameters
    ----------
    factor : Factor
        Returned by `factorize`.
    """
    return _symmetric(factor.trie, lambda x: solve(factor, x))


def check_levels(trie: Trie, levels: Any) -> Floats:
    """Return `levels` as float64 (D + 1,); raise ValueError unless finite and non-increasing."""
    out = finite_vector("levels", levels, trie.n_levels + 1, to_host)
    rises = np.flatnonzero(np.diff(out) > 0)
    if rises.size:
        i = int(rises[0])
        raise ValueError(f"levels must never rise, got {out[i]}, {out[i + 1]} at {i}, {i + 1}")
    if out[0] - out[-1] > MAX_SIZE:
        raise ValueError(f"levels must span at most {MAX_SIZE:g}, got {out[0]} to {out[-1]}")
    return out


def _symmetric(trie: Trie, multiply: Any) -> scipy.sparse.linalg.LinearOperator:
    shape = (trie.n_rows, trie.n_rows)
    return scipy.sparse.linalg.LinearOperator(
        shape, matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply, dtype=float
    )


def _columns(trie: Trie, x: Any) -> tuple[Floats, tuple[int, ...]]:
    """Return x as columns (n, k) in key order, in the engine's memory, and the shape of x."""
    array = finite_columns("x", x, trie.n_rows, trie.engine.hold)
    if array.size and max(array.max(), -array.min()) > MAX_SIZE:
        raise ValueError(f"x must be at most {MAX_SIZE:g} in size, got {np.abs(array).max()}")
    return trie.sort(array.reshape(trie.n_rows, -1)), array.shape


def _rows(trie: Trie, columns: Floats, x: Any, shape: tuple[int, ...]) -> Floats:
    """Return columns in the order of the rows, with the given shape and as the same kind as x."""
    out: Floats = like(trie.unsort(columns).reshape(shape), x)
    return out
