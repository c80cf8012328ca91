"""What a model file says about a member of a mixture beside its rows or cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.checks import positive_number
from triegp.encoding.quantiser import Quantiser
from triegp.files.contents import check_index, check_stored_order
from triegp.mixture.members import Member
from triegp.mixture.optimise import TrainedOrder
from triegp.tree.rows import RANGES, check_dtype

Arrays = dict[str, npt.NDArray[Any]]


class MemberParameters(NamedTuple):
    """Encoder, trained order, noise and storage type of messages."""

    encoder: Quantiser
    trained: TrainedOrder
    noise: float
    dtype: np.dtype[Any]


def pack_member(
    member: Member, name: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a member's parameters; names of arrays begin with `name`."""
    posterior = member.posteriors[0]
    arrays: Arrays = {
        f"{name}.bits": member.order.bits,
        f"{name}.remaining": member.order.remaining,
    }
    if member.encoder.shift_ is not None:
        arrays[f"{name}.shift"] = member.encoder.shift_
    for t, part in enumerate(member.posteriors):
        arrays[f"{name}.noise.{t}"] = part.rows.total_noise
    facts = {
        "encoder": [e.scaling for e in encoders].index(member.encoder.scaling),
        "nugget": member.order.nugget,
        "noise": posterior.noise,
        "dtype": posterior.dtype.name,
        "nll_per_row": member.trained.nll_per_row,
        "n_iter": member.trained.n_iter,
        "n_evaluations": member.trained.n_evaluations,
        "converged": member.trained.converged,
    }
    return facts, arrays


def check_member(
    facts: dict[str, Any], arrays: Arrays, name: str, encoders: Sequence[Quantiser]
) -> MemberParameters:
    """Parameters of a member; raises ValueError if they do not fit together."""
    own = check_index("encoder", facts["encoder"], encoders)
    if f"{name}.shift" in arrays:
        own = own.with_shift(arrays[f"{name}.shift"])
    trained = TrainedOrder(
        check_stored_order(arrays, name, own.n_bits_, facts["nugget"]),
        float(facts["nll_per_row"]),
        None if facts["n_iter"] is None else int(facts["n_iter"]),
        int(facts["n_evaluations"]),
        bool(facts["converged"]),
    )
    noise, dtype = positive_number("noise", facts["noise"]), check_dtype(facts["dtype"])
    smallest, largest, _ = RANGES[dtype]
    if not (smallest <= noise <= largest and trained.order.scale <= largest):
        raise ValueError(f"{name} must have noise and scale in the range of messages in {dtype}")
    return MemberParameters(own, trained, noise, dtype)
