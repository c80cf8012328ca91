"""Functions drawn from the members of a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes, inner_rows, select_codes
from triegp.models.draws import Stream, normals_of
from triegp.tree.draws import evaluate_draws
from triegp.tree.posterior import Posterior, predict

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class MemberDraws:
    """Functions drawn from a mixture.

    Attributes
    ----------
    seeds : uint64 (k,)
        One per function.
    chosen : int64 (k,)
        The member that each function comes from.
    """

    seeds: Words
    chosen: npt.NDArray[np.int64]

    def select(self, some: npt.NDArray[Any]) -> MemberDraws:
        """Some of the functions."""
        return MemberDraws(self.seeds[some], self.chosen[some])


def evaluate_member(
    posterior: Posterior, codes: Codes, seeds: Words, own: Words, names: Words, *, apart: bool
) -> Floats:
    """Functions drawn from one member at m rows, (m, k). O(m (D k + log n)).

    Parameters
    ----------
    posterior : Posterior
        Of the member.
    codes : Codes
        The rows on its grid.
    seeds, own : uint64 (k,)
        Seeds of the functions, and those of their increments in this member.
    names : uint64 (m,)
        Hashes of the rows.
    apart : bool
        Whether runs of rows observed once are drawn anew, for each different row.
    """
    inner = inner_rows(codes)
    if inner.size == codes.n_rows:
        out = evaluate_draws(posterior, codes, own)
    else:
        out = np.sqrt(posterior.order.prior_variance) * normals_of(seeds, Stream.BEYOND, names)
        out[inner] = evaluate_draws(posterior, select_codes(codes, inner), own)
    if not apart:
        return out
    together, alone = predict(posterior, codes), predict(posterior, codes, apart=True)
    extra = np.maximum(alone.variance - together.variance, 0.0)
    some = np.flatnonzero((extra > 0.0) | (alone.mean != together.mean))
    more = np.sqrt(extra[some])[:, None] * normals_of(seeds, Stream.RUN, names[some])
    out[some] += (alone.mean - together.mean)[some][:, None] + more
    return out
