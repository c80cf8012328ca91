"""A mixture in a model file: trees with the rows of the model, or with cells that sum them up.

The rows take one of two layouts. Model files hold the intervals of all values (`intervals.py`).
Pickles, files of few rows and mixtures with cells hold the sorted keys of every member. That is
larger, but takes less time. Tries and messages are computed again, to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine
from triegp.files.codec import LARGEST, LEAST, RULES, Packing, Reading, Rule
from triegp.files.intervals import Intervals, pack_rows, unpack_rows
from triegp.files.memory import check_memory
from triegp.files.trees import check_leaves, check_noisy_rows
from triegp.mixture.calibration import Calibration
from triegp.mixture.members import Ensemble, Member
from triegp.mixture.optimise import TrainedOrder
from triegp.tree.order import BitOrder
from triegp.tree.posterior import lend_posterior, restore
from triegp.tree.rows import RANGES, Rows
from triegp.tree.trie import SortedKeys, Trie, Words, build_trie, link_rows

__all__ = ["Ensemble"]

FEW_ROWS = 1 << 11  # with fewer, a file is small anyway, and threads cost more than they save
CELL_WEIGHTS = (1e-30, 1e30)


@dataclass(frozen=True, eq=False)
class StoredMember:
    """A member as it is stored.

    Attributes
    ----------
    encoder : Quantiser
        Its grid.
    trained : TrainedOrder
        Its order.
    noise : float
        Noise variance that all rows share.
    dtype : dtype
        Storage type of the messages.
    rows : tuple of Rows
        Rows or cells with their noise, one record per target.
    n_levels : int
        Number of bits in a key: those of the order, or fewer with cells.
    leaves : SortedKeys or None
        Where the rows or cells lie; None if that follows from the intervals.
    """

    encoder: Quantiser
    trained: TrainedOrder
    noise: float
    dtype: np.dtype[Any]
    rows: tuple[Rows, ...]
    n_levels: int
    leaves: SortedKeys | None

    @property
    def n_bytes(self) -> int:
        """Memory of the member: trie, keys, and four messages for twice as many ids."""
        trie_and_keys = 24 + 8 * -(-self.n_levels // 64)
        return self.rows[0].n_rows * (trie_and_keys + len(self.rows) * 8 * self.dtype.itemsize)


def _store_members(ensemble: Ensemble, packing: Packing) -> tuple[StoredMember, ...]:
    members, with_keys = [], not _has_intervals(ensemble, packing)
    for member in ensemble.members:
        first = member.posteriors[0]
        leaves = SortedKeys(first.trie.row_idx, first.trie.links.lcp, first.keys)
        rows = tuple(part.rows for part in member.posteriors)
        own = (first.noise, first.dtype, rows, first.trie.n_levels, leaves if with_keys else None)
        members.append(StoredMember(member.encoder, member.trained, *own))
    return tuple(members)


def _store_intervals(ensemble: Ensemble, packing: Packing) -> Intervals | None:
    if not _has_intervals(ensemble, packing):
        return None
    posteriors = [member.posteriors[0] for member in ensemble.members]
    precision = [member.encoder.precision_ for member in ensemble.members]
    return pack_rows(posteriors, precision, CpuEngine())


def _has_intervals(ensemble: Ensemble, packing: Packing) -> bool:
    few = ensemble.n_rows < FEW_ROWS or ensemble.held is not None
    return not (few or packing.quickly)


def _restore(
    reading: Reading,
    members: tuple[StoredMember, ...],
    calibrations: tuple[Calibration, ...],
    held: Rows | None,
    n_summed: int,
    intervals: Intervals | None,
    **flags: bool,
) -> Ensemble:
    """The mixture; members are restored in parallel. All is checked first that engines rely on."""
    n_targets = len(calibrations)
    if not members or not n_targets:
        raise ValueError("a mixture must have members and targets")
    if any(mixed.weight.size != len(members) for mixed in calibrations):
        raise ValueError(f"calibrations must have {len(members)} weights")
    if any(len(member.rows) != n_targets for member in members):
        raise ValueError(f"members must have rows of {n_targets} targets")
    if held is None:
        _check_shared(members)
    else:
        _check_cells(members, held, n_targets)
    check_memory(sum(member.n_bytes for member in members))
    engine = reading.engine if held is None else CpuEngine()
    codes: list[Codes | None] = [None] * len(members)
    n_rows = members[0].rows[0].n_rows
    if intervals is not None:
        precision = [member.encoder.precision_ for member in members]
        codes[:] = unpack_rows(intervals, precision, n_rows, engine)

    def restore_member(its_engine: Engine, k: int) -> Member:
        part, own = members[k], codes[k]
        codes[k] = None  # not needed when the keys are there
        order = part.trained.order
        if own is not None:
            trie, keys = _sort_codes(own, order, its_engine)
        elif part.leaves is not None:
            row_idx, lcp, keys = part.leaves
            check_leaves(part.leaves, part.rows[0].n_rows, part.n_levels)
            trie = link_rows(order.bits[: part.n_levels], row_idx, lcp, its_engine)
        else:
            raise ValueError("leaves of the members must be stored if there are no intervals")
        posteriors = (
            restore(trie, keys, order, part.noise, rows, part.dtype) for rows in part.rows
        )
        lent = tuple(lend_posterior(each, engine) for each in posteriors)
        return Member(part.encoder, part.trained, lent)

    if len(members) == 1 or n_rows < FEW_ROWS:
        restored = [restore_member(engine, k) for k in range(len(members))]
    else:
        restored = engine.each(restore_member, range(len(members)))
    return Ensemble(tuple(restored), calibrations, held=held, n_summed=n_summed, **flags)


def _check_member(member: StoredMember) -> None:
    order, (smallest, largest, _) = member.trained.order, RANGES[member.dtype]
    if order.n_bits != member.encoder.n_bits_:
        raise ValueError(f"order must have {member.encoder.n_bits_} bits, got {order.n_bits}")
    if not (smallest <= member.noise <= largest and order.scale <= largest):
        raise ValueError(f"noise and scale must be in the range of messages in {member.dtype}")
    for rows in member.rows:
        check_noisy_rows(rows, member.dtype)
        if rows.n_rows != member.rows[0].n_rows:
            raise ValueError(f"rows of all targets must be {member.rows[0].n_rows}")


def _check_shared(members: tuple[StoredMember, ...]) -> None:
    """Raise ValueError unless all members have the same rows, but for their noise."""
    for member in members:
        if member.n_levels != member.trained.order.n_levels:
            raise ValueError(f"n_levels must be {member.trained.order.n_levels}")
        for rows, first in zip(member.rows, members[0].rows, strict=True):
            pairs = ((rows.y, first.y), (rows.weight, first.weight), (rows.copies, first.copies))
            sizes = {rows.total_noise.size, members[0].rows[0].total_noise.size}
            if len(sizes) > 1 or not all(_same(*pair) for pair in pairs):
                raise ValueError("members must have the same rows")


def _check_cells(members: tuple[StoredMember, ...], held: Rows, n_targets: int) -> None:
    """Raise ValueError unless the members hold cells, and rows with features are held."""
    shape = (held.n_rows, members[0].encoder.n_working)
    if held.X is None or held.X.shape != shape or not np.isfinite(held.X).all():
        raise ValueError(f"held.X must be finite, of shape {shape}")
    if held.y.shape[1:] != (n_targets,):
        raise ValueError(f"held must be rows of {n_targets} targets")
    least, most = CELL_WEIGHTS
    for member in members:
        order, n_levels = member.trained.order, member.n_levels
        if not max(1, order.n_used) <= n_levels <= order.n_levels:
            raise ValueError(f"n_levels must reach all used bits, got {n_levels}")
        if member.leaves is None or (member.leaves.lcp >= n_levels).any():
            raise ValueError("leaves of cells must be stored, and differ")
        for rows in member.rows:
            weight = rows.weight
            if weight is None or rows.scatter is None or not least <= weight.min():
                raise ValueError("cells must have weights and scatter")
            if weight.max() > most or rows.total_noise.size != 1:
                raise ValueError(f"cells must have weights up to {most:g} and one noise")


def _same(a: npt.NDArray[Any] | None, b: npt.NDArray[Any] | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _check_weights(calibration: Calibration) -> None:
    if abs(calibration.weight.sum() - 1.0) > 1e-6:
        raise ValueError(f"weight must sum to 1, got {calibration.weight.sum()}")


def _sort_codes(codes: Codes, order: BitOrder, engine: Engine) -> tuple[Trie, Words]:
    """Trie of the rows, and their sorted keys.

    The keys are made in the order of the rows and sorted then: at a million rows this takes a
    quarter of the time of `trie_keys`, which reads the codes in the order of the keys.
    """
    trie = build_trie(codes, order, engine=engine)
    rows = np.arange(codes.n_rows, dtype=np.int32)
    return trie, np.take(engine.keys(codes.packed, trie.bits, rows), trie.row_idx, axis=0)


RULES[Ensemble] = Rule(
    without=("members",),
    extra={
        "members": (tuple[StoredMember, ...], _store_members),
        "intervals": (Intervals | None, _store_intervals),
    },
    make=_restore,
)
RULES[StoredMember] = Rule("", {"noise": (LEAST, LARGEST)}, check=_check_member)
RULES[TrainedOrder] = Rule(odd=("nll_per_row", "gain"), without=("line",))
RULES[Calibration] = Rule(
    "weight:k",
    {"weight": (0, 2)},
    without=("shrink", "scale", "outlier", "outlier_var"),
    check=_check_weights,
)
RULES[Intervals] = Rule("n_intervals:d intervals:_,b codes:c")
