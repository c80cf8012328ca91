"""New rows as the models read them: rows whose values training has seen, and variants of others.

A row with unseen values, a gap in a column without gaps or an unknown category, is predicted at 16
variants that have training values in their place. Its predictive distribution is the average of
those of the variants: the values are integrated over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.devices import on_device
from triegp.encoding.layout import N_VARIANTS, Layout, fill_unseen, find_unseen, work_out
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Array

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NewRows:
    """Working columns of m new rows.

    Attributes
    ----------
    seen : array (m_seen, n_working)
        Rows without unseen values, in their order.
    variants : float64 (16 m_unseen, n_working)
        Variants of the other rows, those of a row one after another.
    unseen : bool (m,) or None
        Rows that have variants; None if there are none.
    group : int64 (m_unseen,) or None
        Rows with variants whose unseen values are the same unknown categories have the same number;
        missing values are never the same.
    """

    seen: Array
    variants: Array
    unseen: npt.NDArray[np.bool_] | None = None
    group: Ints | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, m."""
        return int(self.seen.shape[0] if self.unseen is None else self.unseen.size)

    def places(self, copies: int) -> Ints:
        """Numbers of the rows that have so many variants, 1 or 16."""
        if self.unseen is None:
            return np.arange(self.n_rows if copies == 1 else 0)
        return np.flatnonzero(~self.unseen if copies == 1 else self.unseen)

    def at_variant(self, v: int | Ints) -> Array:
        """All rows in their order, those with unseen values at variant v, (m, n_working).

        v: one variant for all, or one for each group.
        """
        if self.unseen is None or self.group is None:
            return self.seen
        out = np.empty((self.n_rows, self.seen.shape[1]))
        own = np.broadcast_to(v, (int(self.group.max()) + 1,))[self.group]
        chosen = self.variants[np.arange(self.group.size) * N_VARIANTS + own]
        out[~self.unseen], out[self.unseen] = self.seen, chosen
        return out


def lay_out(layout: Layout, data: Array) -> NewRows:
    """New rows from the columns of a table, as `read_table` returns them.

    Rows on a device stay there; they must be finite, and the layout plain.
    """
    if on_device(data):
        return NewRows(data, data[:0])
    unseen = find_unseen(layout, data)
    if unseen is None:
        working = work_out(layout, data)
        return NewRows(working, working[:0])
    rows = np.asarray(unseen.any(axis=1))
    variants = fill_unseen(layout, data[rows], unseen[rows])
    seen, others = work_out(layout, data[~rows]), work_out(layout, variants)
    return NewRows(seen, others, rows, _group_unseen(data[rows], unseen[rows]))


def _group_unseen(data: Array, unseen: npt.NDArray[np.bool_]) -> Ints:
    """Number of each row's unseen values: equal for equal categories, distinct for gaps."""
    values = np.where(unseen, data, -1.0)
    gaps = np.isnan(values).any(axis=1)
    values = np.nan_to_num(values, nan=-2.0)
    own = np.where(gaps, np.arange(gaps.size), -1.0)
    table = np.column_stack([values, own])
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def any_unseen(unseen: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    """Rows with an unseen value, (n,), or a scalar False if there are none."""
    return np.asarray(False if unseen is None else unseen.any(axis=1))


def average_variants(mixture: PredictiveDistribution, copies: int) -> PredictiveDistribution:
    """The average of the distributions of each row's variants, one after another."""
    if copies == 1:
        return mixture

    def regroup(values: Floats) -> Floats:
        """(K, copies m) as (copies K, m)."""
        parts = values.reshape(values.shape[0], -1, copies)
        return np.ascontiguousarray(parts.transpose(2, 0, 1).reshape(-1, parts.shape[1]))

    weights = mixture.weights
    weights = np.tile(weights, copies) if weights.ndim == 1 else regroup(weights)
    means, variances = regroup(mixture.means), regroup(mixture.variances)
    return PredictiveDistribution(weights / copies, means, variances)


def join_mixtures(
    rows: NewRows, seen: PredictiveDistribution, unseen: PredictiveDistribution
) -> PredictiveDistribution:
    """Distributions of both kinds of rows in their order; components of weight 0 are added."""
    return _join([(rows.places(1), seen), (rows.places(N_VARIANTS), unseen)])


def put_mixture(
    mixture: PredictiveDistribution, numbers: Ints, other: PredictiveDistribution
) -> PredictiveDistribution:
    """The mixture with other distributions at the rows of these numbers."""
    rest = np.setdiff1d(np.arange(mixture.n_rows), numbers)
    return _join([(rest, mixture.select(rest)), (numbers, other)])


def _join(parts: list[tuple[Ints, PredictiveDistribution]]) -> PredictiveDistribution:
    """Distributions of different rows, with the numbers of these rows."""
    shape = max(part.means.shape[0] for _, part in parts), sum(at.size for at, _ in parts)
    weights, means, variances = np.zeros(shape), np.zeros(shape), np.ones(shape)
    for at, part in parts:
        k = part.means.shape[0]
        own = part.weights if part.weights.ndim == 2 else part.weights[:, None]
        weights[:k, at], means[:k, at], variances[:k, at] = own, part.means, part.variances
    return PredictiveDistribution(weights, means, variances)
