"""The posterior: O(n) once, then one search a point. The training rows are not needed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_vector
from triegp.devices import like, to_host
from triegp.encoding.codes import Codes, inner_rows, select_codes
from triegp.tree.likelihood import check_order, leaf_messages
from triegp.tree.order import BitOrder
from triegp.tree.rows import (
    Rows,
    add_noise,
    check_rows,
    hold_rows,
    join_rows,
    refuse_zero_weights,
)
from triegp.tree.trie import Trie, insert_rows, sorted_keys, trie_keys

Floats = npt.NDArray[np.float64]
Messages = npt.NDArray[Any]


class Prediction(NamedTuple):
    """Mean and variance of the function f, (m,) each; var is None where it was not asked for."""

    mean: Floats
    var: Floats | None


@dataclass(frozen=True, eq=False)
class Posterior:
    """All that is known of f after the data; keys and messages in the memory of the trie's engine.

    Attributes
    ----------
    trie : Trie
        The training rows' trie.
    keys : uint64 (n, ceil(D / 64))
        Their keys, sorted.
    order : BitOrder
        Bit order and levels.
    noise : float
        Noise that all rows share, nugget not included.
    rows : Rows
        Targets, noise and weights, in the order of the rows, where the targets came from: on the
        host or in the engine's memory.
    inside, outside : pairs of float (2n,)
        Messages from below and from the rest of the tree, by id.
    above : int32 (2n,)
        Depth at which each outside message is held.
    """

    trie: Trie
    keys: npt.NDArray[np.uint64]
    order: BitOrder
    noise: float
    rows: Rows
    inside: tuple[Messages, Messages]
    outside: tuple[Messages, Messages]
    above: npt.NDArray[np.int32]

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.trie.n_rows

    @property
    def new_noise(self) -> float:
        """Variance that a new observation has on top of f's: noise and nugget."""
        return self.noise + self.order.nugget_variance


def condition(
    trie: Trie,
    codes: Codes,
    order: BitOrder,
    y: Any,
    noise: float,
    *,
    known_noise: Any = None,
    sample_weight: Any = None,
    dtype: npt.DTypeLike = np.float64,
) -> Posterior:
    """Condition f on the data.

    Parameters
    ----------
    trie : Trie
        Made by `build_trie(codes, order)`.
    codes : Codes
        The training rows; not needed after this.
    order, y, noise, known_noise, sample_weight, dtype
        As for `likelihood`.

    Returns
    -------
    Posterior

    Notes
    -----
    O(n q / 8) for the keys, O(n) for one sweep up and one down.
    """
    check_order(trie, order)
    if codes.n_rows != trie.n_rows:
        raise ValueError(f"codes must have the trie's {trie.n_rows} rows, got {codes.n_rows}")
    rows = check_rows(
        y,
        n_rows=trie.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        dtype=dtype,
        engine=trie.engine,
    )
    return condition_rows(trie, codes, order, rows, noise, dtype=dtype)


def condition_rows(
    trie: Trie,
    codes: Codes,
    order: BitOrder,
    rows: Rows,
    noise: float,
    *,
    dtype: npt.DTypeLike = np.float64,
) -> Posterior:
    """`condition` on rows of one target that have been checked."""
    refuse_zero_weights(rows)
    known = _own(add_noise(rows, order, noise, dtype=dtype))
    return restore(trie, trie_keys(trie, codes), order, noise, known, dtype)


def predict(posterior: Posterior, codes: Codes, *, var: bool = True) -> Prediction:
    """Mean and variance of f at new rows.

    A new observation has the variance `posterior.new_noise` more. Rows outside the box are
    unrelated to the data: mean 0 and the prior variance.

    Parameters
    ----------
    posterior : Posterior
        What is known.
    codes : Codes
        The new rows, made by the same encoder.
    var : bool
        Whether the variance is wanted; without it no work is done for it.

    Returns
    -------
    Prediction
        Arrays on the host, or on the device that the new rows' codes lie on.

    Notes
    -----
    O(m (q / 8 + log n)) at most for m rows; the new rows are sorted first, which makes the searches
    short.
    """
    _check_codes(posterior, codes)
    mean = np.zeros_like(codes.packed, dtype=np.float64, shape=(codes.n_rows,))
    spread = np.full_like(mean, posterior.order.prior_variance) if var else None
    near = None if codes.unrelated is None else inner_rows(codes)
    inner = codes if near is None else select_codes(codes, near)
    if inner.n_rows:
        trie = posterior.trie
        query = sorted_keys(trie, inner)
        located = trie.engine.locate(trie.links, posterior.keys, query.keys, query.row_idx)
        inner_mean, inner_var = trie.engine.predict(
            trie.links,
            posterior.order.levels,
            located,
            posterior.inside,
            posterior.outside,
            with_var=var,
        )
        where = slice(None) if near is None else near
        mean[where] = like(inner_mean, mean)
        if spread is not None:
            spread[where] = like(inner_var, mean)
    return Prediction(mean, spread)


def leave_one_out(posterior: Posterior) -> Prediction:
    """Mean and variance of f at every training row, given all other rows.

    A row of weight c > 1 loses one of its c copies: it stays with weight c - 1. An observation has
    the variance `posterior.rows.noise` more. O(n), no refit. The result lies where
    `posterior.rows` do.
    """
    trie, rows = posterior.trie, posterior.rows
    stays = trie.engine.hold(rows.remainder)
    if rows.weight is not None:
        stays = trie.sort(stays)
    mean, var = trie.engine.leave_out(
        trie.links,
        posterior.order.levels,
        (*posterior.outside, posterior.above),
        posterior.inside[0],
        stays,
    )
    return Prediction(like(trie.unsort(mean), rows.y), like(trie.unsort(var), rows.y))


def insert(
    posterior: Posterior,
    codes: Codes,
    y: Any,
    *,
    known_noise: Any = None,
    sample_weight: Any = None,
) -> Posterior:
    """Add rows to the data: the same bits as `condition` gives on all rows.

    Parameters
    ----------
    posterior : Posterior
        What is known so far; it is not changed.
    codes : Codes
        The new rows, made by the same encoder, inside the box.
    y, known_noise, sample_weight
        Their targets and, optionally, known noise and weights.

    Notes
    -----
    O(k log k + n) for k new rows: the old rows are neither encoded nor sorted again.
    """
    _check_codes(posterior, codes)
    if codes.unrelated is not None and codes.unrelated.any():
        row = int(np.argmax(codes.unrelated))
        raise ValueError(f"codes of added rows must lie inside the box, row {row} does not")
    if codes.n_rows == 0:
        for name, given in (("y", y), ("known_noise", known_noise), ("weight", sample_weight)):
            if given is not None:
                finite_vector(name, given, 0, to_host)
        return posterior
    dtype = posterior.inside[0].dtype
    rows = check_rows(
        y,
        n_rows=codes.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        dtype=dtype,
        engine=posterior.trie.engine,
    )
    held = hold_rows(rows, lambda array: like(array, posterior.rows.y))
    trie, keys = insert_rows(posterior.trie, posterior.keys, codes)
    return insert_sorted(posterior, trie, keys, held)


def insert_sorted(
    posterior: Posterior, trie: Trie, keys: npt.NDArray[np.uint64], rows: Rows
) -> Posterior:
    """The posterior with checked rows of one target; trie and keys: of all rows. O(n)."""
    dtype = posterior.inside[0].dtype
    added = add_noise(rows, posterior.order, posterior.noise, dtype=dtype)
    together = join_rows([posterior.rows, added])
    return restore(trie, keys, posterior.order, posterior.noise, together, dtype)


def log_evidence(posterior: Posterior) -> float:
    """Log marginal likelihood of the rows that a posterior is conditioned on. O(n)."""
    trie, rows = posterior.trie, posterior.rows
    sums, _ = trie.engine.evaluate(
        trie.links,
        posterior.order.levels,
        trie.row_idx,
        rows.y,
        rows.variance,
        np.dtype(np.float64),
        False,
    )
    return -(sums.nll + rows.constant)


def restore(
    trie: Trie,
    keys: npt.NDArray[np.uint64],
    order: BitOrder,
    noise: float,
    rows: Rows,
    dtype: npt.DTypeLike,
) -> Posterior:
    """The posterior of what is already checked and sorted, by one sweep up and one down. O(n)."""
    m, s = leaf_messages(trie, rows, dtype)
    trie.engine.inside(trie.links, order.levels, m, s)
    mo, so, above = trie.engine.outside(trie.links, order.levels, m, s)
    return Posterior(trie, keys, order, float(noise), rows, (m, s), (mo, so), above)


def _own(rows: Rows) -> Rows:
    """The same rows, in arrays that nobody else can change."""
    weight = None if rows.weight is None else rows.weight.copy()
    return Rows(rows.y.copy(), rows.noise, weight)


def _check_codes(posterior: Posterior, codes: Codes) -> None:
    if codes.n_bits != posterior.order.n_bits:
        raise ValueError(
            f"codes must have {posterior.order.n_bits} bits as the posterior does, "
            f"got {codes.n_bits}"
        )
