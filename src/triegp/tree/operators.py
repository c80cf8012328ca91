"""Linear algebra with the kernel matrix of a trie: every operation one sweep up and one down.

Results are arrays as x is, on the host or on the device that x came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator

from triegp.checks import finite_columns, finite_vector
from triegp.devices import like, to_host
from triegp.tree.likelihood import check_order, leaf_messages
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, add_noise, check_rows
from triegp.tree.trie import Trie

MAX_SIZE = 1e150  # of levels and vectors: their products are finite

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factor:
    """K + noise in a form that solves: the merged variances of the trie.

    Attributes
    ----------
    trie : Trie
        The rows' trie.
    levels : float64 (D + 1,)
        Remaining variance by depth.
    s : float64 (2n,)
        Inside variances by id, in the memory of the trie's engine.
    log_det : float
        log det(K + noise), over the rows whose weight is not 0.
    """

    trie: Trie
    levels: Floats
    s: Floats
    log_det: float


def factorize(
    trie: Trie, order: BitOrder, noise: float, *, known_noise: Any = None, sample_weight: Any = None
) -> Factor:
    """Factorize K + noise, for solves and log det. O(n).

    The noise matrix is diagonal: (noise + nugget + known_noise) / sample_weight. A row of weight 0
    has infinite noise: solves give 0 there, and log det is that of the other rows.
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
    """Factorize K + noise for any levels R(0..D) that never rise, and any rows' noise."""
    m, s = leaf_messages(trie, rows, np.float64)
    m[: trie.n_rows] = 0.0
    sums = trie.engine.inside(trie.links, levels, m, s)
    return Factor(trie, levels, s, sums.log_det)


def product(trie: Trie, levels: Any, x: Any) -> Floats:
    """K x for x (n,) or (n, k), in the order of the rows. O(n k).

    levels: R(0..D), `BitOrder.levels` or any sequence that never rises.
    """
    levels = check_levels(trie, levels)
    columns, shape = _columns(trie, x)
    return _rows(trie, trie.engine.product(trie.links, levels, columns), x, shape)


def solve(factor: Factor, x: Any) -> Floats:
    """(K + noise)^-1 x for x (n,) or (n, k), in the order of the rows. O(n k)."""
    trie = factor.trie
    columns, shape = _columns(trie, x)
    return _rows(trie, trie.engine.solve(trie.links, factor.levels, factor.s, columns), x, shape)


def whiten(factor: Factor, x: Any) -> Floats:
    """T x with T'T = (K + noise)^-1, for x (n,) or (n, k). O(n k).

    Entry i > 0 is the innovation where the i-th and the one before, in key order, part; entry 0
    that at the root. Under the model, whiten(factor, y) are n independent standard normals.
    """
    trie = factor.trie
    columns, shape = _columns(trie, x)
    found = trie.engine.whiten(trie.links, factor.levels, factor.s, columns)
    out: Floats = like(found.reshape(shape), x)
    return out


def inverse_diagonal(factor: Factor) -> Floats:
    """Diagonal of (K + noise)^-1, (n,), on the host: one over the leave-one-out variances. O(n)."""
    trie, engine = factor.trie, factor.trie.engine
    zeros = np.zeros_like(factor.s)
    outside = engine.outside(trie.links, factor.levels, zeros, factor.s)
    nothing = np.array([np.inf])
    _, var = engine.leave_out(trie.links, factor.levels, outside, zeros, nothing)
    return engine.fetch(trie.unsort(1.0 / (var + factor.s[: trie.n_rows])))


def level_products(trie: Trie, x: Any, z: Any = None) -> Floats:
    """Quadratic forms by depth: x' K_l z for l = 0..D, (D + 1,) or (D + 1, k). O(n k).

    K_l is 1 where two rows share their first l bits; z is x if not given. With weights w, x' K x is
    the sum over l >= 1 of w_l x' K_l x.
    """
    columns, shape = _columns(trie, x)
    others = columns if z is None else _columns(trie, z)[0]
    if others.shape != columns.shape:
        raise ValueError(f"z must have the shape of x, {shape}, got {np.shape(z)}")
    by_level: Floats = like(trie.engine.level_products(trie.links, columns, others), x)
    return by_level[:, 0] if len(shape) == 1 else by_level


def kernel_operator(trie: Trie, levels: Any) -> LinearOperator:
    """K as a symmetric scipy LinearOperator (n, n)."""
    levels = check_levels(trie, levels)
    return _symmetric(trie, lambda x: product(trie, levels, x))


def inverse_operator(factor: Factor) -> LinearOperator:
    """(K + noise)^-1 as a symmetric scipy LinearOperator (n, n)."""
    return _symmetric(factor.trie, lambda x: solve(factor, x))


def check_levels(trie: Trie, levels: Any) -> Floats:
    """Return levels as R(0..D), finite and never rising."""
    out = finite_vector("levels", levels, trie.n_levels + 1, to_host)
    rises = np.flatnonzero(np.diff(out) > 0)
    if rises.size:
        i = int(rises[0])
        raise ValueError(f"levels must never rise, got {out[i]}, {out[i + 1]} at {i}, {i + 1}")
    if out[0] - out[-1] > MAX_SIZE:
        raise ValueError(f"levels must span at most {MAX_SIZE:g}, got {out[0]} to {out[-1]}")
    return out


def _symmetric(trie: Trie, multiply: Any) -> LinearOperator:
    shape = (trie.n_rows, trie.n_rows)
    return LinearOperator(
        shape, matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply, dtype=float
    )


def _columns(trie: Trie, x: Any) -> tuple[Floats, tuple[int, ...]]:
    """x as columns in key order, (n, k), in the engine's memory, and the shape it came in."""
    array = finite_columns("x", x, trie.n_rows, trie.engine.hold)
    if array.size and max(array.max(), -array.min()) > MAX_SIZE:
        raise ValueError(f"x must be at most {MAX_SIZE:g} in size, got {np.abs(array).max()}")
    return trie.sort(array.reshape(trie.n_rows, -1)), array.shape


def _rows(trie: Trie, columns: Floats, x: Any, shape: tuple[int, ...]) -> Floats:
    """Columns in the order of the rows, in the shape and of the kind that x came in."""
    out: Floats = like(trie.unsort(columns).reshape(shape), x)
    return out
