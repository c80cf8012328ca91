"""Functions drawn from the smooth part: inducing rows, neighbours, and a rest keyed by the inputs.

Given its values at the training rows, the approximation by inducing rows and neighbours has
independent values at all other inputs. So a function drawn at the training rows goes on to any
input by phi(x)' u + b(x)' r_N + sqrt(v(x)) z(x), with a standard normal z(x) that is keyed by x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import low_rank
from triegp.models.draws import Stream, normals_of
from triegp.models.repeats import hash_inputs
from triegp.smooth.factor import colour
from triegp.smooth.induced import Induced
from triegp.smooth.means import Prepared
from triegp.smooth.points import InducedPoints, continue_known

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class SmoothDraws:
    """Functions drawn from the smooth part.

    Attributes
    ----------
    seeds : uint64 (k,)
        One per function.
    known : Prepared
        What the inducing rows and the neighbours of a row contribute, (m_i, k) and (n, k).
    deviation : float
        Root of the factor of the kernel.
    weights : float64 (n, k) or None
        Weights of the kernel itself at the rows, if the smooth part is exact.
    """

    seeds: Words
    known: Prepared
    deviation: float = 1.0
    weights: Floats | None = None

    def select(self, some: npt.NDArray[Any]) -> SmoothDraws:
        """Some of the functions."""
        known = Prepared(self.known.inducing[:, some], self.known.rest[:, some])
        weights = None if self.weights is None else self.weights[:, some]
        return SmoothDraws(self.seeds[some], known, self.deviation, weights)


def draw_known(induced: Induced, seeds: Words) -> tuple[Prepared, Floats]:
    """Prior draws: at the inducing rows and of the rest, and their sum at the rows, (n, k)."""
    inducing = normals_of(seeds, Stream.INDUCING, np.arange(induced.inducing.size))
    white = normals_of(seeds, Stream.NEIGHBOURS, np.arange(induced.n_rows))
    rest = colour(induced.factor, white)
    at_rows = rest.copy()
    at_rows[induced.order] += low_rank.expand(induced.phi, inducing, induced.n_threads)
    return Prepared(inducing, rest), at_rows


def evaluate(draws: SmoothDraws, inputs: Floats, points: InducedPoints) -> Floats:
    """Functions at new rows, (m, k); inputs: (m, p). O(m (m_i + m_v) k).

    A value does not depend on the other rows, to the last bit.
    """
    fresh = normals_of(draws.seeds, Stream.REST, hash_inputs(inputs))
    fresh *= draws.deviation * np.sqrt(points.regressed.variances)[:, None]
    return continue_known(points, draws.known.inducing, draws.known.rest) + fresh
