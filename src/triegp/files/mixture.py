"""Conversion of a mixture to a header and flat arrays, its part of a model file, and back.

The rows take one of two layouts. Model files hold the intervals of all values (`intervals.py`).
Pickles, files of few rows, and files before format version 7 hold the sorted keys of every member.
That is larger, but takes less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine
from triegp.files.cells import pack_cells, unpack_cells
from triegp.files.contents import (
    check_array,
    check_counts,
    check_memory,
    check_mixing,
    check_noisy_rows,
    check_sorted_rows,
)
from triegp.files.intervals import pack_rows, unpack_rows
from triegp.files.members import MemberParameters, check_member, pack_member
from triegp.mixture.calibration import Calibration
from triegp.mixture.members import Ensemble, Member
from triegp.tree.order import BitOrder
from triegp.tree.posterior import lend_posterior, restore
from triegp.tree.trie import Trie, Words, build_trie, link_rows

Arrays = dict[str, npt.NDArray[Any]]

FEW_ROWS = 1 << 11  # with fewer, a file is small anyway, and threads cost more than they save


def pack_ensemble(
    ensemble: Ensemble, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of an ensemble for a model file; names begin with prefix.

    Few rows are stored as keys, so that a small model loads in the least time.
    """
    if ensemble.n_rows < FEW_ROWS or ensemble.held is not None:
        return pack_ensemble_quickly(ensemble, prefix, encoders)
    facts, arrays = _pack_parameters(ensemble, prefix, encoders)
    posteriors = [member.posteriors[0] for member in ensemble.members]
    precision = [member.encoder.precision_ for member in ensemble.members]
    return facts, arrays | pack_rows(posteriors, precision, prefix, CpuEngine())


def pack_ensemble_quickly(
    ensemble: Ensemble, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of an ensemble, as they are in memory; names begin with prefix."""
    if ensemble.held is not None:
        return pack_cells(ensemble, prefix, encoders)
    facts, arrays = _pack_parameters(ensemble, prefix, encoders)
    for k, member in enumerate(ensemble.members):
        posterior = member.posteriors[0]
        arrays[f"{prefix}.{k}.row_idx"] = posterior.trie.row_idx
        arrays[f"{prefix}.{k}.lcp"] = posterior.trie.links.lcp
        arrays[f"{prefix}.{k}.keys"] = posterior.keys
    return facts, arrays


def unpack_ensemble(
    header: dict[str, Any],
    arrays: Arrays,
    prefix: str,
    encoders: Sequence[Quantiser],
    engine: Engine | None = None,
) -> Ensemble:
    """Restore an ensemble of either layout; codes, keys and messages are computed again.

    Everything that the engines rely on is checked first, since a file may contain anything. Members
    are restored in parallel. engine: the default is the CPU engine, on all cores.
    """
    if "n_summed" in header:
        return unpack_cells(header, arrays, prefix, encoders)
    targets = check_array(arrays, f"{prefix}.targets", np.float64, (None, None))
    mixing = check_array(
        arrays, f"{prefix}.weight", np.float64, (targets.shape[0], len(header["members"]))
    )
    tempering = check_array(arrays, f"{prefix}.tempering", np.float64, (targets.shape[0], 4))
    check_mixing(mixing, tempering)
    shared = check_counts(arrays, prefix, targets.shape)
    parts = [
        check_member(facts, arrays, f"{prefix}.{k}", encoders)
        for k, facts in enumerate(header["members"])
    ]
    _check_noises(arrays, prefix, len(parts), targets.shape[0])
    check_memory(sum(_count_bytes(part, *targets.shape) for part in parts))
    engine = engine or CpuEngine()
    codes: list[Codes | None] = [None] * len(parts)
    if f"{prefix}.n_intervals" in arrays:
        precision = [part.encoder.precision_ for part in parts]
        codes[:] = unpack_rows(arrays, prefix, precision, targets.shape[1], engine)

    def restore_member(its_engine: Engine, k: int) -> Member:
        name, part, own = f"{prefix}.{k}", parts[k], codes[k]
        codes[k] = None  # not needed when the keys are there
        order, dtype = part.trained.order, part.dtype
        rows = [
            check_noisy_rows(y, arrays, f"{name}.noise.{t}", shared[t], dtype)
            for t, y in enumerate(targets)
        ]
        if own is None:
            row_idx, lcp, keys = check_sorted_rows(arrays, name, targets.shape[1], order.n_levels)
            trie = link_rows(order.key_bits, row_idx, lcp, its_engine)
        else:
            trie, keys = _sort_codes(own, order, its_engine)
        posteriors = (restore(trie, keys, order, part.noise, each, dtype) for each in rows)
        lent = tuple(lend_posterior(each, engine) for each in posteriors)
        return Member(part.encoder, part.trained, lent)

    if len(parts) == 1 or targets.shape[1] < FEW_ROWS:
        members = [restore_member(engine, k) for k in range(len(parts))]
    else:
        members = engine.each(restore_member, range(len(parts)))
    calibrations = tuple(
        Calibration(weight, *numbers)
        for weight, numbers in zip(mixing, tempering.tolist(), strict=True)
    )
    apart, averaged = (bool(header.get(name, False)) for name in ("apart", "averaged"))
    return Ensemble(tuple(members), calibrations, apart, averaged)


def _pack_parameters(
    ensemble: Ensemble, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of everything except where the rows lie."""
    arrays: Arrays = {
        f"{prefix}.weight": np.stack([part.weight for part in ensemble.calibrations]),
        f"{prefix}.tempering": np.array(
            [[p.shrink, p.scale, p.outlier, p.outlier_var] for p in ensemble.calibrations]
        ),
    }
    first = ensemble.members[0].posteriors
    arrays[f"{prefix}.targets"] = np.stack([posterior.rows.y for posterior in first])
    if first[0].rows.weight is not None:
        arrays[f"{prefix}.row_weight"] = first[0].rows.weight
    if first[0].rows.copies is not None:
        arrays[f"{prefix}.copies"] = first[0].rows.copies
    if first[0].rows.scatter is not None:
        arrays[f"{prefix}.scatter"] = np.stack([np.asarray(part.rows.scatter) for part in first])
    members = []
    for k, member in enumerate(ensemble.members):
        facts, own = pack_member(member, f"{prefix}.{k}", encoders)
        arrays |= own
        members.append(facts)
    return {"members": members, "apart": ensemble.apart, "averaged": ensemble.averaged}, arrays


def _check_noises(arrays: Arrays, prefix: str, n_members: int, n_targets: int) -> None:
    """Raise ValueError unless all members have one noise, or all have one per row."""
    sizes = {
        arrays[f"{prefix}.{k}.noise.{t}"].size for k in range(n_members) for t in range(n_targets)
    }
    if len(sizes) > 1:
        raise ValueError(f"{prefix}: noise must have the same size in all members, got {sizes}")


def _count_bytes(part: MemberParameters, n_targets: int, n_rows: int) -> int:
    """Memory of a member: trie, keys, and four messages for twice as many ids."""
    trie_and_keys = 24 + 8 * -(-part.trained.order.n_levels // 64)
    return n_rows * (trie_and_keys + n_targets * 8 * part.dtype.itemsize)


def _sort_codes(codes: Codes, order: BitOrder, engine: Engine) -> tuple[Trie, Words]:
    """Trie of the rows, and their sorted keys.

    The keys are made in the order of the rows and sorted then: at a million rows this takes a
    quarter of the time of `trie_keys`, which reads the codes in the order of the keys.
    """
    trie = build_trie(codes, order, engine=engine)
    rows = np.arange(codes.n_rows, dtype=np.int32)
    return trie, np.take(engine.keys(codes.packed, trie.bits, rows), trie.row_idx, axis=0)
