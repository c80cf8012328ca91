"""Conversion of a mixture to a header and flat arrays, its part of a model file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import positive_number
from triegp.encoding.encoder import BitEncoder
from triegp.engines import CpuEngine
from triegp.files.cells import pack_cells, unpack_cells
from triegp.files.contents import (
    check_array,
    check_counts,
    check_index,
    check_mixing,
    check_noisy_rows,
    check_sorted_rows,
    check_stored_order,
)
from triegp.mixture.calibration import Calibration
from triegp.mixture.members import Ensemble, Member
from triegp.mixture.optimise import TrainedOrder
from triegp.tree.posterior import restore
from triegp.tree.rows import check_dtype
from triegp.tree.trie import link_rows

Arrays = dict[str, npt.NDArray[Any]]


def pack_ensemble(
    ensemble: Ensemble, prefix: str, encoders: Sequence[BitEncoder]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of an ensemble; names of arrays begin with prefix."""
    if ensemble.held is not None:
        return pack_cells(ensemble, prefix, encoders)
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
        name = f"{prefix}.{k}"
        posterior = member.posteriors[0]
        if member.encoder.shift_ is not None:
            arrays[f"{name}.shift"] = member.encoder.shift_
        arrays[f"{name}.bits"] = member.order.bits
        arrays[f"{name}.remaining"] = member.order.remaining
        arrays[f"{name}.row_idx"] = posterior.trie.row_idx
        arrays[f"{name}.lcp"] = posterior.trie.links.lcp
        arrays[f"{name}.keys"] = posterior.keys
        for t, part in enumerate(member.posteriors):
            arrays[f"{name}.noise.{t}"] = part.rows.total_noise
        members.append(
            {
                "encoder": [e.scaling for e in encoders].index(member.encoder.scaling),
                "nugget": member.order.nugget,
                "noise": posterior.noise,
                "dtype": posterior.inside[0].dtype.name,
                "nll_per_row": member.trained.nll_per_row,
                "n_iter": member.trained.n_iter,
                "n_evaluations": member.trained.n_evaluations,
                "converged": member.trained.converged,
            }
        )
    return {"members": members, "apart": ensemble.apart, "averaged": ensemble.averaged}, arrays


def unpack_ensemble(
    header: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[BitEncoder]
) -> Ensemble:
    """Restore an ensemble from header and arrays; messages are computed again.

    Everything that the engines rely on is checked first, since a file may contain anything.
    """
    if "n_summed" in header:
        return unpack_cells(header, arrays, prefix, encoders)
    targets = check_array(arrays, f"{prefix}.targets", np.float64, (None, None))
    shared = check_counts(arrays, prefix, targets.shape)
    mixing = check_array(
        arrays, f"{prefix}.weight", np.float64, (targets.shape[0], len(header["members"]))
    )
    tempering = check_array(arrays, f"{prefix}.tempering", np.float64, (targets.shape[0], 4))
    check_mixing(mixing, tempering)
    members = []
    for k, facts in enumerate(header["members"]):
        name = f"{prefix}.{k}"
        own = check_index("encoder", facts["encoder"], encoders)
        if f"{name}.shift" in arrays:
            own = own.with_shift(arrays[f"{name}.shift"])
        order = check_stored_order(arrays, name, own.n_bits_, facts["nugget"])
        row_idx, lcp, keys = check_sorted_rows(arrays, name, targets.shape[1], order.n_levels)
        trie = link_rows(order.key_bits, row_idx, lcp, CpuEngine())
        dtype = check_dtype(facts["dtype"])
        posteriors = tuple(
            restore(
                trie,
                keys,
                order,
                positive_number("noise", facts["noise"]),
                check_noisy_rows(y, arrays, f"{name}.noise.{t}", shared[t], dtype),
                dtype,
            )
            for t, y in enumerate(targets)
        )
        trained = TrainedOrder(
            order,
            float(facts["nll_per_row"]),
            None if facts["n_iter"] is None else int(facts["n_iter"]),
            int(facts["n_evaluations"]),
            bool(facts["converged"]),
        )
        members.append(Member(own, trained, posteriors))
    calibrations = tuple(
        Calibration(weight, *numbers)
        for weight, numbers in zip(mixing, tempering.tolist(), strict=True)
    )
    apart, averaged = (bool(header.get(name, False)) for name in ("apart", "averaged"))
    return Ensemble(tuple(members), calibrations, apart, averaged)
