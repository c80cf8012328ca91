"""The trie: rows sorted by key, linked by the depths at which neighbouring keys first differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.devices import like
from triegp.encoding.codes import Codes
from triegp.engines import CpuEngine, Engine, Links
from triegp.engines.cuts import default_cuts
from triegp.tree.order import BitOrder

MAX_ROWS = 2**30  # ids are int32, and each row has two: a leaf and a node

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Trie:
    """Compressed binary trie over the keys of n rows.

    All arrays except `bits` lie in the memory of the engine.

    Attributes
    ----------
    bits : int64 (D,)
        Canonical bit numbers of a key, most important bit first.
    row_idx : int32 (n,)
        Row numbers in key order. Rows with the same key keep their order.
    links : Links
        Leaves and nodes of the tree over the sorted rows.
    engine : Engine
        Engine that built the trie and computes with it.
    """

    bits: Ints
    row_idx: Ids
    links: Links
    engine: Engine

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.row_idx.size)

    @property
    def n_levels(self) -> int:
        """Number of bits in a key, D."""
        return int(self.bits.size)

    @property
    def n_leaves(self) -> int:
        """Number of distinct keys."""
        return int(np.count_nonzero(self.links.lcp < self.n_levels))

    def sort(self, values: Any) -> Any:
        """Reorder values (n, ...) from row order to key order, on the same device.

        Parameters
        ----------
        values : array (n, ...)
            One entry per row, in row order.
        """
        return like(np.take(self.engine.hold(values), self.row_idx, axis=0), values)

    def unsort(self, values: Any) -> Any:
        """Reorder values (n, ...) from key order to row order, on the same device.

        Parameters
        ----------
        values : array (n, ...)
            One entry per row, in key order.
        """
        held = self.engine.hold(values)
        out = np.empty_like(held)
        out[self.row_idx] = held
        return like(out, values)


def build_trie(
    codes: Codes, order: BitOrder, *, cuts: Any = None, engine: Engine | None = None
) -> Trie:
    """Sort rows by their keys and link them into a trie.

    Parameters
    ----------
    codes : Codes
        The rows; all must lie inside the training box.
    order : BitOrder
        The bits of a key and their order.
    cuts : integer array, optional
        First leaf of each shard, in key order, starting with 0. The default depends on the number
        of rows only. A cut between rows with the same key is moved behind the last of them. The
        tree does not depend on the cuts; likelihoods do only by rounding errors.
    engine : Engine, optional
        The default is the CPU engine, on all cores.

    Returns
    -------
    Trie

    Examples
    --------
    >>> from triegp.encoding.codes import pack_codes
    >>> order = BitOrder.from_weights([0, 1, 2], [0.5, 0.3, 0.2], nugget="bit")
    >>> trie = build_trie(pack_codes([[6], [1], [7], [6]], precision=3), order)
    >>> trie.row_idx
    array([1, 0, 3, 2], dtype=int32)
    >>> trie.links.lcp
    array([-1,  0,  3,  2], dtype=int32)

    Notes
    -----
    O(n q / 8) to read the first chunk of all keys, O(n) for a radix sort and O(n) for the links.
    The sort reads further chunks only for rows whose keys are equal so far. Memory is about 45
    bytes per row.
    """
    check_codes(codes, order)
    engine = engine or CpuEngine()
    row_idx, lcp = engine.sort_rows(engine.hold(codes.packed), order.key_bits)
    return link_rows(order.key_bits, row_idx, lcp, engine, cuts=cuts)


def rebuild_trie(trie: Trie, codes: Codes, order: BitOrder) -> Trie:
    """Return the trie of the same rows for another order.

    The result equals `build_trie(codes, order)`. Rows are sorted again only below the first key bit
    that differs. If only deep bits differ, the cost is O(n) with a small constant. If no key bit
    differs, `trie` itself is returned.

    Parameters
    ----------
    trie : Trie
        Trie of the rows for an order before.
    codes : Codes
        The rows.
    order : BitOrder
        The new order.
    """
    check_codes(codes, order)
    if codes.n_rows != trie.n_rows or order.n_levels != trie.n_levels:
        raise ValueError(
            f"codes and order must have {trie.n_rows} rows and {trie.n_levels} key bits as the "
            f"trie has, got {codes.n_rows} and {order.n_levels}"
        )
    differ = np.flatnonzero(order.key_bits != trie.bits)
    if not differ.size:
        return trie
    packed = trie.engine.hold(codes.packed)
    row_idx, lcp = trie.engine.resort_rows(
        packed, order.key_bits, trie.row_idx, trie.links.lcp, int(differ[0])
    )
    return link_rows(order.key_bits, row_idx, lcp, trie.engine)


def trie_keys(trie: Trie, codes: Codes) -> Words:
    """Return the keys of the trie's rows in key order, uint64 (n, ceil(D / 64)). O(n q).

    The first key bit is the most significant bit of the first word. The keys lie in the memory of
    the trie's engine.

    Parameters
    ----------
    trie : Trie
        Returned by `build_trie`.
    codes : Codes
        The rows it was built from.
    """
    _check_bits(trie, codes)
    if codes.n_rows != trie.n_rows:
        raise ValueError(f"codes must have the trie's {trie.n_rows} rows, got {codes.n_rows}")
    return trie.engine.keys(trie.engine.hold(codes.packed), trie.bits, trie.row_idx)


class SortedKeys(NamedTuple):
    """New rows, sorted by the key bits of a trie.

    Attributes
    ----------
    row_idx : int32 (k,)
        Row numbers in key order.
    lcp : int32 (k,)
        Number of leading bits that each key shares with the previous key; entry 0 is -1.
    keys : uint64 (k, ceil(D / 64))
        Keys in key order.
    """

    row_idx: Ids
    lcp: Ids
    keys: Words


def sorted_keys(trie: Trie, codes: Codes) -> SortedKeys:
    """Sort k new rows by the key bits of a trie. O(k q / 8 + k log k)."""
    packed = trie.engine.hold(codes.packed)
    row_idx, lcp = trie.engine.sort_rows(packed, trie.bits)
    return SortedKeys(row_idx, lcp, trie.engine.keys(packed, trie.bits, row_idx))


def insert_rows(trie: Trie, keys: Words, codes: Codes) -> tuple[Trie, Words]:
    """Insert k new rows and return the trie and the keys of all rows.

    `keys` are the keys of the trie's n rows (`trie_keys`). New rows are numbered from n on. The
    trie equals that of `build_trie` on all rows. O(k log k + n): the n old rows are only merged
    with the new ones and linked again.

    Parameters
    ----------
    trie : Trie
        Trie of n rows.
    keys : uint64 (n, ceil(D / 64))
        Keys of its rows, as `trie_keys` returns them.
    codes : Codes
        The k new rows.
    """
    _check_bits(trie, codes)
    _refuse_outside(codes)
    if codes.n_rows == 0:
        return trie, keys
    return insert_keys(trie, keys, sorted_keys(trie, codes))


def insert_keys(trie: Trie, keys: Words, new: SortedKeys) -> tuple[Trie, Words]:
    """Insert new rows that are already sorted, at least one. See `insert_rows`. O(n + k)."""
    row_idx, lcp, added = new
    engine = trie.engine
    keys = engine.hold(keys)
    source, out_lcp = engine.merge_keys(keys, trie.links.lcp, added, lcp, trie.n_levels)
    old = source >= 0
    merged_rows = np.empty_like(row_idx, shape=source.shape)
    merged_rows[old] = trie.row_idx
    merged_rows[~old] = row_idx + trie.n_rows
    merged_keys = np.empty_like(keys, shape=(source.size, keys.shape[1]))
    merged_keys[old], merged_keys[~old] = keys, added
    return link_rows(trie.bits, merged_rows, out_lcp, engine), merged_keys


def select_rows(trie: Trie, keys: Words, rows: Ints) -> tuple[Trie, Words]:
    """The trie and keys of some rows of a trie on the host, which are numbered from 0 on. O(n).

    The trie equals that of `build_trie` on these rows.

    Parameters
    ----------
    trie : Trie
        Trie of n rows.
    keys : uint64 (n, ceil(D / 64))
        Keys of its rows, as `trie_keys` returns them.
    rows : int64 (m,)
        Numbers of the rows, at least one, rising.
    """
    if rows.size == trie.n_rows:
        return trie, keys
    number = np.full(trie.n_rows, -1, np.int32)
    number[rows] = np.arange(rows.size, dtype=np.int32)
    place = np.flatnonzero(number[trie.row_idx] >= 0)  # in key order
    # The lcp of two rows is the smallest lcp of neighbours between them.
    first = np.append(0, place[:-1] + 1)
    lcp = np.minimum.reduceat(trie.links.lcp[: place[-1] + 1], first)
    lcp[0] = -1
    row_idx = number[trie.row_idx[place]]
    return link_rows(trie.bits, row_idx, lcp, trie.engine), keys[place]


def with_engine(trie: Trie, engine: Engine) -> Trie:
    """Return the same trie with another engine of the same kind."""
    return replace(trie, engine=engine)


def link_rows(bits: Ints, row_idx: Ids, lcp: Ids, engine: Engine, *, cuts: Any = None) -> Trie:
    """Build the trie of sorted rows, given the lcp of neighbours. O(n)."""
    n_rows = row_idx.size
    first = default_cuts(n_rows) if cuts is None else np.asarray(cuts)
    if (
        first.ndim != 1
        or first.dtype.kind not in "iu"
        or first.size == 0
        or first[0] != 0
        or (np.diff(first) <= 0).any()
        or first[-1] >= n_rows
    ):
        raise ValueError(
            f"cuts must be rising integers from 0 to at most {n_rows - 1}, got {cuts!r}"
        )
    links = engine.link(lcp, int(bits.size), first.astype(np.int64))
    return Trie(bits, row_idx, links, engine)


def check_codes(codes: Codes, order: BitOrder) -> None:
    """Raise ValueError if no trie of this order can be built over the codes."""
    if codes.n_rows == 0:
        raise ValueError("codes must have at least one row, got none")
    if codes.n_rows > MAX_ROWS:
        raise ValueError(f"codes must have at most {MAX_ROWS} rows, got {codes.n_rows}")
    if codes.n_bits != order.n_bits:
        raise ValueError(f"order must have {codes.n_bits} bits as the codes do, got {order.n_bits}")
    _refuse_outside(codes)


def _check_bits(trie: Trie, codes: Codes) -> None:
    # With nugget="row" keys omit the last bit of the order, and after `cut_order` more of them.
    n_read = int(trie.bits.max(initial=-1)) + 1
    if codes.n_bits < n_read:
        raise ValueError(
            f"codes must have the bits that the trie reads, at least {n_read}, got {codes.n_bits}"
        )


def _refuse_outside(codes: Codes) -> None:
    if codes.unrelated is not None and codes.unrelated.any():
        row = int(np.argmax(codes.unrelated))
        raise ValueError(f"codes of a trie must lie inside the box, row {row} does not")
