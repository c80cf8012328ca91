"""The posterior: messages computed once in O(n), then one search per point to predict.

The codes of the training rows are not needed after the keys are made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_vector
from triegp.devices import like, to_host
from triegp.encoding.codes import Codes, inner_rows, select_codes
from triegp.engines import Engine, Located, computed_once
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
from triegp.tree.trie import Trie, insert_rows, sorted_keys, trie_keys, with_engine

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


class Prediction(NamedTuple):
    """Posterior mean and variance of f, (m,) each; var is None if it was not requested.

    run: part of `var` that lies below the depth at which each row parts from the data; None if it
    was not requested.
    """

    mean: Floats
    var: Floats | None
    run: Floats | None = None

    @property
    def variance(self) -> Floats:
        """The variance, (m,), which must have been requested."""
        assert self.var is not None
        return self.var


class Messages(NamedTuple):
    """What the rows say at every id of a trie, in the memory of its engine.

    Attributes
    ----------
    inside, outside : pairs of float (2n,)
        Inside and outside messages (mean, variance) per id.
    """

    inside: tuple[Array, Array]
    outside: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of f given the data.

    Keys and messages lie in the memory of the trie's engine. Messages are computed when they are
    first needed: they take 64 bytes per row, trie and keys 32 for keys of up to 64 bits.

    Attributes
    ----------
    trie : Trie
        Trie of the training rows.
    keys : uint64 (n, ceil(D / 64))
        Keys of the training rows, sorted.
    order : BitOrder
        Bit order and levels.
    noise : float
        Noise variance common to all rows, without the nugget.
    rows : Rows
        Targets, noise and weights, in the order of the rows. They lie where the targets were
        passed in: on the host or in the engine's memory.
    dtype : dtype
        Storage type of the messages, float64 or float32.
    """

    trie: Trie
    keys: npt.NDArray[np.uint64]
    order: BitOrder
    noise: float
    rows: Rows
    dtype: np.dtype[Any]

    @computed_once
    def messages(self) -> Messages:
        """Messages of all ids, by one sweep up and one down. O(n)."""
        trie, levels = self.trie, self.order.levels
        m, s = leaf_messages(trie, self.rows, self.dtype)
        trie.engine.inside(trie.links, levels, m, s)
        mo, so, _ = trie.engine.outside(trie.links, levels, m, s)
        return Messages((m, s), (mo, so))

    @property
    def inside(self) -> tuple[Array, Array]:
        """Inside messages (mean, variance), (2n,) each."""
        return self.messages.inside

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.trie.n_rows

    @property
    def new_noise(self) -> float:
        """Noise variance of a new observation given f: noise plus nugget."""
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
    """Compute the posterior of f given the data.

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie(codes, order)`.
    codes : Codes
        The training rows. They are not needed afterwards.
    order, y, noise, known_noise, sample_weight, dtype
        As for `likelihood`.

    Returns
    -------
    Posterior

    Notes
    -----
    O(n q / 8) for the keys, and O(n) for one sweep up and one down the trie.
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
    return condition_rows(trie, codes, order, own_rows(rows), noise, dtype=dtype)


def condition_rows(
    trie: Trie,
    codes: Codes,
    order: BitOrder,
    rows: Rows,
    noise: float,
    *,
    dtype: npt.DTypeLike = np.float64,
) -> Posterior:
    """Compute `condition` for rows of one target that are already checked.

    The posterior keeps the arrays of the rows, which nobody may change any more (`own_rows`). Its
    messages are not computed yet.
    """
    refuse_zero_weights(rows)
    known = replace(add_noise(rows, order, noise, dtype=dtype), X=None)
    return Posterior(trie, trie_keys(trie, codes), order, float(noise), known, np.dtype(dtype))


def predict(
    posterior: Posterior, codes: Codes, *, var: bool = True, apart: bool = False, run: bool = True
) -> Prediction:
    """Compute the posterior mean and variance of f at new rows.

    For the variance of a new observation, add `posterior.new_noise`. Rows outside the training box
    that are unrelated to the data (`codes.unrelated`) have mean 0 and the prior variance.

    Parameters
    ----------
    posterior : Posterior
        Returned by `condition` or `insert`.
    codes : Codes
        The new rows, encoded by the same encoder as the training rows.
    var : bool, default=True
        Whether to compute the variance. If False, the variance is None and costs nothing.
    apart : bool, default=False
        Whether a new row with the key of a training row that was observed once is predicted as if
        it parted from that row where the row parted from all others (`docs/notation.md`), rows of
        weight 0 included.
    run : bool, default=True
        Whether to return `run`, too, with `apart` and `var`.

    Returns
    -------
    Prediction
        Arrays in the memory of the new rows' codes, on the host or on a device.

    Notes
    -----
    At most O(m (q / 8 + log n)) for m rows. The new rows are sorted first, so that most searches
    are short.
    """
    _check_codes(posterior, codes)
    run &= var and apart
    if codes.unrelated is None and codes.n_rows:
        return _predict_inner(posterior, codes, var, apart, run)
    mean = np.zeros_like(codes.packed, dtype=np.float64, shape=(codes.n_rows,))
    spread = np.full_like(mean, posterior.order.prior_variance) if var else None
    below = np.zeros_like(mean) if run else None
    near = inner_rows(codes)
    if near.size:
        inner = _predict_inner(posterior, select_codes(codes, near), var, apart, run)
        mean[near] = inner.mean
        if spread is not None:
            spread[near] = inner.var
        if below is not None:
            below[near] = inner.run
    return Prediction(mean, spread, below)


def _predict_inner(
    posterior: Posterior, codes: Codes, var: bool, apart: bool, run: bool
) -> Prediction:
    """`predict` for rows inside the box, at least one."""
    trie, levels = posterior.trie, posterior.order.levels
    query = sorted_keys(trie, codes)
    located = trie.engine.locate(trie.links, posterior.keys, query.keys, query.row_idx)
    if apart:
        located = _part(posterior, located)
    mean, spread = trie.engine.predict(
        trie.links, levels, located, *posterior.messages, with_var=var
    )
    below = None
    if run:
        held = trie.engine.hold(levels)
        below = np.empty_like(mean)
        below[located.row_idx] = held[located.leaves_at] - held[-1]
    there = codes.packed
    return Prediction(
        like(mean, there),
        None if spread is None else like(spread, there),
        None if below is None else like(below, there),
    )


def leave_one_out(posterior: Posterior, *, whole: bool = False) -> Prediction:
    """Compute the mean and variance of f at every training row, given all other rows.

    A row of weight c > 1 counts as c copies, of which one is left out: it keeps weight c - 1. With
    `whole`, all of its copies are left out. For the variance of an observation, add
    `posterior.rows.noise`. O(n), without refitting. The result lies in the memory of
    `posterior.rows`.

    Parameters
    ----------
    posterior : Posterior
        Returned by `condition`.
    whole : bool, default=False
        Whether all copies of a row are left out.
    """
    trie, rows = posterior.trie, posterior.rows
    weighted = rows.weight is not None and not whole
    messages = posterior.messages
    stays = trie.engine.hold(rows.remainder if weighted else np.array([np.inf]))
    if weighted:
        stays = trie.sort(stays)
    mean, var = trie.engine.leave_out(
        trie.links,
        posterior.order.levels,
        (*messages.outside, trie.links.above_leaves),
        messages.inside[0],
        stays,
    )
    mean = trie.unsort(mean)
    return Prediction(like(mean, rows.y), like(trie.unsort(var), rows.y))


def run_variance(posterior: Posterior) -> Floats:
    """Variance of the unbranched run above each training row, W(D) - W(depth of its parent), (n,).

    Only its sum with the row's noise enters the likelihood. O(n), in the memory of the rows.
    """
    trie = posterior.trie
    levels = trie.engine.hold(posterior.order.levels)
    found: Floats = trie.unsort(levels[trie.links.above_leaves] - levels[-1])
    return like(found, posterior.rows.y)  # type: ignore[no-any-return]


def _part(posterior: Posterior, located: Located) -> Located:
    """Move new rows that end on a leaf of one observation up to where that leaf's run begins."""
    trie, rows = posterior.trie, posterior.rows
    each = rows.weight if rows.copies is None else rows.copies
    ends = (located.leaves_at == trie.links.n_levels) & (located.node < trie.n_rows)
    if each is not None:
        row = trie.row_idx[np.minimum(located.node, trie.n_rows - 1)]
        ends &= trie.engine.hold(each)[row] <= 1.0
    leaves_at = np.where(ends, located.above, located.leaves_at).astype(np.int32)
    return Located(located.row_idx, located.node, located.above, leaves_at)


def insert(
    posterior: Posterior,
    codes: Codes,
    y: Any,
    *,
    known_noise: Any = None,
    sample_weight: Any = None,
) -> Posterior:
    """Add rows to the data. The result is bitwise equal to `condition` on all rows.

    Parameters
    ----------
    posterior : Posterior
        Posterior given the old rows; it is not changed.
    codes : Codes
        The k new rows, encoded by the same encoder. All must lie inside the training box.
    y, known_noise, sample_weight : arrays (k,)
        Targets of the new rows and, optionally, their known noise and weights.

    Returns
    -------
    Posterior
        Posterior given the old and the new rows; new rows are numbered from n on.

    Notes
    -----
    O(k log k + n): the old rows are neither encoded nor sorted again.
    """
    _check_codes(posterior, codes)
    if codes.unrelated is not None and codes.unrelated.any():
        row = int(np.argmax(codes.unrelated))
        raise ValueError(f"codes of added rows must lie inside the box, row {row} does not")
    if codes.n_rows == 0:
        for name, given in (
            ("y", y),
            ("known_noise", known_noise),
            ("sample_weight", sample_weight),
        ):
            if given is not None:
                finite_vector(name, given, 0, to_host)
        return posterior
    rows = check_rows(
        y,
        n_rows=codes.n_rows,
        known_noise=known_noise,
        sample_weight=sample_weight,
        dtype=posterior.dtype,
        engine=posterior.trie.engine,
    )
    held = hold_rows(rows, lambda array: like(array, posterior.rows.y))
    trie, keys = insert_rows(posterior.trie, posterior.keys, codes)
    return insert_sorted(posterior, trie, keys, held)


def insert_sorted(
    posterior: Posterior, trie: Trie, keys: npt.NDArray[np.uint64], rows: Rows
) -> Posterior:
    """Add checked rows of one target, given the trie and keys of all rows. O(n)."""
    dtype = posterior.dtype
    added = add_noise(rows, posterior.order, posterior.noise, dtype=dtype)
    together = join_rows([posterior.rows, added])
    return restore(trie, keys, posterior.order, posterior.noise, together, dtype)


def log_evidence(posterior: Posterior) -> float:
    """Compute the log marginal likelihood of the rows that the posterior is given. O(n)."""
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
    """Compute the posterior from checked rows and sorted keys, with its messages. O(n)."""
    found = Posterior(trie, keys, order, float(noise), rows, np.dtype(dtype))
    _ = found.messages
    return found


def lend_posterior(posterior: Posterior, engine: Engine) -> Posterior:
    """The same posterior with another engine of the same kind; it shares messages that are known.

    O(1).
    """
    lent = replace(posterior, trie=with_engine(posterior.trie, engine))
    if "messages" in vars(posterior):
        vars(lent)["messages"] = posterior.messages
    return lent


def reweigh_posterior(posterior: Posterior, weight: Floats) -> Posterior:
    """The posterior of rows with other weights (n,); its messages are not computed yet."""
    return replace(posterior, rows=replace(posterior.rows, weight=weight))


def own_rows(rows: Rows) -> Rows:
    """Return the rows with their arrays copied, so that callers can't change them later."""
    extras = (rows.known_noise, rows.weight, rows.copies, rows.scatter)
    known, weight, copies, scatter = (None if part is None else part.copy() for part in extras)
    return Rows(rows.y.copy(), known, weight, noise=rows.noise, copies=copies, scatter=scatter)


def _check_codes(posterior: Posterior, codes: Codes) -> None:
    if codes.n_bits != posterior.order.n_bits:
        raise ValueError(
            f"codes must have {posterior.order.n_bits} bits as the posterior does, "
            f"got {codes.n_bits}"
        )
