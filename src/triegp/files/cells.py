"""Conversion of a mixture that holds cells to a header and flat arrays, and back.

A member stores the prefix, the weight and the mean of each of its cells. The rows that the model
holds are stored once, with their features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.files.contents import (
    check_array,
    check_cells,
    check_counts,
    check_mixing,
    check_noisy_rows,
)
from triegp.files.members import check_member, pack_member
from triegp.mixture.calibration import Calibration
from triegp.mixture.members import Ensemble, Member
from triegp.tree.posterior import restore
from triegp.tree.rows import Rows
from triegp.tree.trie import link_rows

Arrays = dict[str, npt.NDArray[Any]]


def pack_cells(
    ensemble: Ensemble, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a mixture that holds cells; names of arrays begin with prefix."""
    held = ensemble.held
    assert held is not None
    weight = np.stack([part.weight for part in ensemble.calibrations])
    arrays: Arrays = {f"{prefix}.weight": weight, f"{prefix}.held.X": held.features}
    arrays[f"{prefix}.held.targets"] = np.ascontiguousarray(held.y.T)
    for name, values in (("row_weight", held.weight), ("copies", held.copies)):
        if values is not None:
            arrays[f"{prefix}.held.{name}"] = values
    if held.scatter is not None:
        arrays[f"{prefix}.held.scatter"] = np.ascontiguousarray(held.scatter.T)
    members = []
    for k, member in enumerate(ensemble.members):
        name, first = f"{prefix}.{k}", member.posteriors[0]
        facts, own = pack_member(member, name, encoders)
        members.append(facts | {"n_levels": first.trie.n_levels})
        arrays |= own
        arrays[f"{name}.keys"] = first.keys
        arrays[f"{name}.targets"] = np.stack([part.rows.y for part in member.posteriors])
        scatter = [np.asarray(part.rows.scatter) for part in member.posteriors]
        arrays[f"{name}.scatter"] = np.stack(scatter)
        arrays[f"{name}.row_weight"] = np.asarray(first.rows.weight)
        if first.rows.copies is not None:
            arrays[f"{name}.copies"] = first.rows.copies
    flags = {"apart": ensemble.apart, "averaged": ensemble.averaged, "pulling": held.pulling}
    return {"members": members, "n_summed": ensemble.n_summed, **flags}, arrays


def unpack_cells(
    header: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[Quantiser]
) -> Ensemble:
    """Restore a mixture that holds cells; messages are computed again.

    Everything that the engines rely on is checked first, since a file may contain anything.
    """
    held = _unpack_held(header, arrays, prefix, encoders)
    shape = (held.n_targets, len(header["members"]))
    weight = check_array(arrays, f"{prefix}.weight", np.float64, shape)
    check_mixing(weight, np.tile([1.0, 1.0, 0.0, 1.0], (held.n_targets, 1)))
    members = tuple(
        _unpack_member(facts, arrays, f"{prefix}.{k}", encoders, held.n_targets)
        for k, facts in enumerate(header["members"])
    )
    return Ensemble(
        members,
        tuple(Calibration(own) for own in weight),
        bool(header["apart"]),
        bool(header["averaged"]),
        held,
        header["n_summed"],
    )


def _unpack_held(
    header: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[Quantiser]
) -> Rows:
    """The rows that a model with cells holds, checked."""
    X = arrays[f"{prefix}.held.X"]
    kind = np.float32 if X.dtype == np.float32 else np.float64
    X = check_array(arrays, f"{prefix}.held.X", kind, (None, encoders[0].n_working))
    targets = check_array(arrays, f"{prefix}.held.targets", np.float64, (None, X.shape[0]))
    counts = check_counts(arrays, f"{prefix}.held", targets.shape)
    scatter = None
    if counts[0].scatter is not None:
        scatter = np.stack([np.asarray(one.scatter) for one in counts], axis=1)
    if type(header["n_summed"]) is not int or header["n_summed"] < 0:
        raise ValueError(f"n_summed must be an int >= 0, got {header['n_summed']!r:.40}")
    return Rows(
        np.ascontiguousarray(targets.T),
        weight=counts[0].weight,
        X=X,
        copies=counts[0].copies,
        scatter=scatter,
        pulling=bool(header["pulling"]),
    )


def _unpack_member(
    facts: dict[str, Any], arrays: Arrays, name: str, encoders: Sequence[Quantiser], n_targets: int
) -> Member:
    """Restore a member from its cells, which are checked first; messages are computed again."""
    encoder, trained, noise, dtype = check_member(facts, arrays, name, encoders)
    order = trained.order
    n_levels = facts["n_levels"]
    if type(n_levels) is not int or not max(1, order.n_used) <= n_levels <= order.n_levels:
        raise ValueError(f"{name}: n_levels must reach all used bits, got {n_levels!r:.40}")
    keys, lcp = check_cells(arrays, name, n_levels)
    targets = check_array(arrays, f"{name}.targets", np.float64, (n_targets, lcp.size))
    counts = check_counts(arrays, name, targets.shape)
    weight = counts[0].weight
    if weight is None or counts[0].scatter is None or weight.min() < 1e-30 or weight.max() > 1e30:
        raise ValueError(f"{name} must have cells of weights in [1e-30, 1e30], with their scatter")
    row_idx = np.arange(lcp.size, dtype=np.int32)
    trie = link_rows(order.bits[:n_levels], row_idx, lcp, CpuEngine())
    if any(arrays[f"{name}.noise.{t}"].size != 1 for t in range(n_targets)):
        raise ValueError(f"{name}.noise must be one number: cells have no known noise")
    posteriors = tuple(
        restore(
            trie,
            keys,
            order,
            noise,
            check_noisy_rows(y, arrays, f"{name}.noise.{t}", counts[t], dtype),
            dtype,
        )
        for t, y in enumerate(targets)
    )
    return Member(encoder, trained, posteriors)
