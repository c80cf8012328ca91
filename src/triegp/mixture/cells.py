"""Cells of one tree: rows that share the first bits of their keys, summed up.

Cut an order after L bits (`cut_order`): the rows of a cell are then observations of one latent
value, and all that the posterior needs of them is their number and the sum of their targets. So a
tree over any number of rows takes the memory of its cells, and rows can be summed in pieces, in any
order and on any machine.

Sums are those of integers: targets, times their weights, are rounded to multiples of 2^-52 of the
largest one. So they do not depend on how rows are divided into pieces, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.engines import CpuEngine, Engine
from triegp.tree.order import BitOrder, cut_order
from triegp.tree.posterior import Posterior, restore
from triegp.tree.rows import Rows, add_noise
from triegp.tree.trie import link_rows, sorted_keys

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

FRACTION_BITS = 52  # of a summed value, below the largest one
LOW_BITS = 26  # of these, in the second of two integers; sums of 2^37 rows do not overflow


@dataclass(frozen=True)
class Units:
    """Largest sizes of the summed values, from which their rounding follows.

    Attributes
    ----------
    target, square : tuple of float
        Largest |weight * target| and weight * target^2 of each target.
    weight : float or None
        Largest weight; None if all weights are 1.
    """

    target: tuple[float, ...]
    square: tuple[float, ...]
    weight: float | None

    @property
    def n_columns(self) -> int:
        """Number of integers per row: a count, two per target, and two for a weight."""
        return 1 + 2 * len(self.target) + (0 if self.weight is None else 2)


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums of rows by the first L bits of their keys.

    Attributes
    ----------
    n_levels : int
        Length of the prefix, L.
    keys : uint64 (c, ceil(L / 64))
        Distinct prefixes, sorted, with zeros behind them.
    lcp : int32 (c,)
        Number of leading bits that each prefix shares with the one before; entry 0 is -1.
    sums : int64 (c, Units.n_columns)
        Number of rows, then high and low part of each summed value.
    """

    n_levels: int
    keys: Words
    lcp: Ids
    sums: Ints

    @property
    def n_cells(self) -> int:
        """Number of cells, c."""
        return int(self.lcp.size)


def integer_rows(rows: Rows, units: Units) -> Ints:
    """Integers of each row that cells sum up, int64 (n, units.n_columns). y: (n, k)."""
    out = np.empty((rows.n_rows, units.n_columns), np.int64)
    out[:, 0] = 1
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    for j, largest in enumerate(units.target):
        out[:, 1 + 2 * j : 3 + 2 * j] = _split(weight * rows.y[:, j], largest)
    if units.weight is not None:
        out[:, -2:] = _split(weight, units.weight)
    return out


def sum_squares(rows: Rows, units: Units) -> tuple[int, ...]:
    """Sum of weight * target^2 of each target, in multiples of 2^-52 of the largest."""
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    found = []
    for j, largest in enumerate(units.square):
        high, low = _split(weight * np.square(rows.y[:, j]), largest).sum(axis=0).tolist()
        found.append((high << LOW_BITS) + low)
    return tuple(found)


def sum_rows(codes: Codes, bits: Ints, integers: Ints, engine: Engine | None = None) -> Cells:
    """Sum rows by the first len(bits) bits of their keys. O(n q / 8), one radix sort.

    bits: int64 (L,), at least one, canonical numbers; integers: of `integer_rows`. Without rows
    there are no cells.
    """
    if not codes.n_rows:
        keys = np.empty((0, -(-bits.size // 64)), np.uint64)
        return Cells(int(bits.size), keys, np.empty(0, np.int32), integers)
    engine = engine or CpuEngine(n_threads=1)
    row_idx, lcp = engine.sort_rows(codes.packed, bits)
    first = np.flatnonzero(lcp < bits.size)
    keys = engine.keys(codes.packed, bits, row_idx[first])
    return Cells(int(bits.size), keys, lcp[first], _sum_from(integers[row_idx], first))


def join_cells(one: Cells, other: Cells, engine: Engine | None = None) -> Cells:
    """Cells of the rows of both, at the shorter of their prefixes. O(c)."""
    engine = engine or CpuEngine(n_threads=1)
    n_levels = min(one.n_levels, other.n_levels)
    one, other = shorten(one, n_levels), shorten(other, n_levels)
    if not (one.n_cells and other.n_cells):
        return one if one.n_cells else other
    source, lcp = engine.merge_keys(one.keys, one.lcp, other.keys, other.lcp, n_levels)
    old = source >= 0
    keys = np.empty((source.size, one.keys.shape[1]), np.uint64)
    keys[old], keys[~old] = one.keys, other.keys
    sums = np.empty((source.size, one.sums.shape[1]), np.int64)
    sums[old], sums[~old] = one.sums, other.sums
    first = np.flatnonzero(lcp < n_levels)
    return Cells(n_levels, keys[first], lcp[first], _sum_from(sums, first))


def shorten(cells: Cells, n_levels: int) -> Cells:
    """Cells of the same rows at a shorter prefix; the same if it is as long. O(c)."""
    if n_levels == cells.n_levels:
        return cells
    first = np.flatnonzero(cells.lcp < n_levels)
    keys = cells.keys[first, : -(-n_levels // 64)]
    if n_levels % 64:
        keys[:, -1] &= ~np.uint64(0) << np.uint64(64 - n_levels % 64)
    return Cells(n_levels, keys, cells.lcp[first], _sum_from(cells.sums, first))


def limit_cells(cells: Cells, most: int) -> Cells:
    """Cells at the longest prefix of which there are at most `most`; at least one bit. O(c).

    More rows never have fewer cells. So the prefix of some of the rows is never shorter than that
    of all, and cells may be limited while rows are summed: the result does not depend on it.
    """
    if cells.n_cells <= most:
        return cells
    new_at = np.bincount(cells.lcp[1:], minlength=cells.n_levels)
    n_cells = 1 + np.cumsum(new_at)  # with prefixes of 1, 2, ... bits
    fits = np.flatnonzero(n_cells <= most)
    return shorten(cells, int(fits[-1]) + 1 if fits.size else 1)


def cell_rows(
    cells: Cells, squares: Sequence[int], units: Units, *, unit: float, divided: bool
) -> list[Rows]:
    """What was observed in each cell, one record per target.

    The scatter within cells enters the likelihood as a sum over all cells only. It is known as
    such, and divided among them by weight.

    squares: of `sum_squares`. unit: weight of one observation. divided: whether weights divide the
    noise of an observation, rather than count it.
    """
    count = cells.sums[:, 0].astype(np.float64)
    total = count
    if units.weight is not None:
        total = _join(cells.sums[:, -2:], units.weight)
    share = total / total.sum()
    found = []
    for j, largest in enumerate(units.target):
        y = _join(cells.sums[:, 1 + 2 * j : 3 + 2 * j], largest) / total
        square = squares[j] * (units.square[j] / 2.0**FRACTION_BITS)
        within = max(square - float(total @ np.square(y)), 0.0) / unit
        copies = count if divided else None
        found.append(Rows(y, weight=total / unit, copies=copies, scatter=within * share))
    return found


def condition_cells(
    cells: Cells, order: BitOrder, rows: list[Rows], noise: float, dtype: npt.DTypeLike
) -> tuple[BitOrder, tuple[Posterior, ...]]:
    """The order cut to the cells, and its posterior for each target. O(c)."""
    order = cut_order(order, cells.n_levels)
    row_idx = np.arange(cells.n_cells, dtype=np.int32)
    trie = link_rows(order.bits[: cells.n_levels], row_idx, cells.lcp, CpuEngine())
    posteriors = tuple(
        restore(trie, cells.keys, order, noise, add_noise(one, order, noise, dtype=dtype), dtype)
        for one in rows
    )
    return order, posteriors


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """f at rows that are in the cells, given all other rows, (m,) each.

    run: variance of the unbranched run above a row that is alone in its cell; otherwise 0.
    """

    mean: Floats
    var: Floats
    run: Floats


def leave_out_rows(posterior: Posterior, codes: Codes, y: Floats, weight: Floats) -> LeftOutRows:
    """Leave out each of m rows that the cells contain, alone. O(m log c).

    codes: of the rows. y, weight: (m,), what each row contributed to its cell.
    """
    trie, levels = posterior.trie, posterior.order.levels
    query = sorted_keys(trie, codes)
    located = trie.engine.locate(trie.links, posterior.keys, query.keys, query.row_idx)
    cell = np.empty(codes.n_rows, np.int32)
    cell[located.row_idx] = located.node
    if (located.leaves_at < trie.n_levels).any():
        raise ValueError("rows that are left out must be in the cells")
    messages = posterior.messages
    above = levels[trie.links.above_leaves[cell]] - levels[-1]
    mean = messages.outside[0][cell].astype(np.float64)
    var = messages.outside[1][cell] + above
    rows = posterior.rows
    assert rows.weight is not None
    rest = rows.weight[cell] - weight
    alone = rest <= 1e-9 * rows.weight[cell]
    rest = np.where(alone, 1.0, rest)
    others = (rows.weight[cell] * rows.y[cell] - weight * y) / rest
    noise = rows.total_noise if rows.total_noise.size == 1 else rows.total_noise[cell]
    share = var / (var + noise / rest)
    mean = np.where(alone, mean, mean + share * (others - mean))
    left = np.where(alone, var, var * (1.0 - share))
    return LeftOutRows(mean, left, np.where(alone, np.minimum(above, left), 0.0))


def add_rows(posterior: Posterior, codes: Codes, rows: Rows) -> Posterior:
    """The posterior with k more rows of one target in its cells, some of them new. O(c + k log k).

    Equals conditioning on all rows, to rounding.
    """
    trie, old = posterior.trie, posterior.rows
    query = sorted_keys(trie, codes)
    first = np.flatnonzero(query.lcp < trie.n_levels)
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    each = np.stack([weight, weight * rows.y, weight * np.square(rows.y), np.ones(rows.n_rows)])
    each = np.add.reduceat(each[:, query.row_idx], first, axis=1)
    held = (trie.engine.hold(query.keys[first]), query.lcp[first])
    source, lcp = trie.engine.merge_keys(posterior.keys, trie.links.lcp, *held, trie.n_levels)
    is_old = source >= 0
    keys = np.empty((source.size, posterior.keys.shape[1]), np.uint64)
    keys[is_old], keys[~is_old] = posterior.keys, held[0]
    assert old.weight is not None
    assert old.scatter is not None
    copies = old.weight if old.copies is None else old.copies
    sums = np.empty((4, source.size))
    squares = old.scatter + old.weight * np.square(old.y)
    sums[:, is_old] = np.stack([old.weight, old.weight * old.y, squares, copies])
    sums[:, ~is_old] = each
    into = np.flatnonzero(lcp < trie.n_levels)
    total, targets, squares, number = np.add.reduceat(sums, into, axis=1)
    y = targets / total
    together = Rows(
        y,
        weight=total,
        copies=None if old.copies is None else number,
        scatter=np.maximum(squares - total * np.square(y), 0.0),
    )
    order, noise, dtype = posterior.order, posterior.noise, posterior.dtype
    row_idx = np.arange(into.size, dtype=np.int32)
    grown = link_rows(trie.bits, row_idx, lcp[into], trie.engine)
    known = add_noise(together, order, noise, dtype=dtype)
    return restore(grown, keys[into], order, noise, known, dtype)


def _split(values: Floats, largest: float) -> Ints:
    """Values as integers (n, 2): high and low part of values / largest * 2^52."""
    scaled = np.rint(values * (2.0**FRACTION_BITS / largest) if largest else values)
    whole = scaled.astype(np.int64)
    return np.stack([whole >> LOW_BITS, whole & ((1 << LOW_BITS) - 1)], axis=1)


def _join(parts: Ints, largest: float) -> Floats:
    """Sums of values from the sums of their parts (c, 2)."""
    whole = parts[:, 0] * 2.0**LOW_BITS + parts[:, 1]
    return np.asarray(whole * (largest / 2.0**FRACTION_BITS))


def _sum_from(values: Ints, first: Ints) -> Ints:
    """Sums of values (n, k) from each of the `first` rows up to the next."""
    if first.size == values.shape[0]:
        return values
    return np.asarray(np.add.reduceat(values, first, axis=0))
