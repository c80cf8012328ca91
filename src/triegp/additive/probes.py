"""Solves that tell the factor of variances from nearby rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import Preconditioner
from triegp.additive.sampling import draw_prior
from triegp.additive.solve import Solution, solve_held
from triegp.additive.variance import Known
from triegp.models.jobs import Stopwatch
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

MAX_STEPS = 1_000
PROBE_VALUES = 20_000  # probes times rows: two at 10,000 rows, one for more; 2 % of the variances
MOST_PROBES = 4
# Relative residuals: wanted, and largest of use. At 60,000 rows the first changes the factor by
# 2 %, four times as much changes it by 30 %, and another draw by 20 %.
PROBE_TOLERANCE, WORST_PROBE = 5e-2, 0.1
UNIT_VALUES, MOST_UNITS = 1 << 23, 64  # unit vectors times rows: 8 for a million rows
UNIT_TOLERANCE = 1e-2


class Probes(NamedTuple):
    """Draws z of N(0, K + noise), (n, k), and the relative residual at which their solves end."""

    z: Floats
    tolerance: float


def draw_probes(forest: Forest, rows: Rows, seed: int) -> Probes:
    """Probes of so many rows.

    The solutions consist mostly of directions with little more variance than the noise, which
    conjugate gradients find last. So the tolerance is relative to the noise.
    """
    rng = np.random.default_rng([seed, 1])
    variance: Any = np.broadcast_to(rows.variance, (rows.n_rows,))
    n_probes = max(1, min(MOST_PROBES, PROBE_VALUES // rows.n_rows))
    z = draw_prior(forest, n_probes, rng)
    z += np.sqrt(variance)[:, None] * rng.standard_normal(z.shape)
    ratio = float(variance.min()) / max(forest.prior_variance, 1e-300)
    return Probes(z, PROBE_TOLERANCE * float(np.clip(np.sqrt(ratio), 1e-3, 1.0)))


def read_probes(solution: Solution) -> Known | None:
    """What solutions (K + noise)^-1 z tell of the diagonal; None if they are far from converged."""
    if solution.residual.max() > WORST_PROBE:
        return None
    return Known(np.arange(len(solution.x)), np.square(solution.x), True)


def solve_units(
    lent: Forest,
    rows: Rows,
    made: Preconditioner | None,
    seed: int,
    watch: Stopwatch | None,
) -> Known | None:
    """The diagonal of A^-1, A = K + noise, at 64 random rows or fewer; None if solves fail.

    For a device, where many columns cost little and prior draws are approximations. The error
    e'x* - e'x = (e - A x)' A^-1 (e - A x) of conjugate gradients from 0 is at most the square of
    the residual over the smallest noise. So a moderate tolerance is enough.
    """
    n, rng = rows.n_rows, np.random.default_rng([seed, 1])
    n_units = min(n, max(1, min(MOST_UNITS, UNIT_VALUES // n)))
    chosen = np.sort(rng.choice(n, n_units, replace=False))
    unit = np.zeros((n, chosen.size))
    unit[chosen, np.arange(chosen.size)] = 1.0
    variance: Any = np.broadcast_to(rows.variance, (rows.n_rows,))
    found = solve_held(
        lent,
        variance,
        lent.engine.hold(unit),
        preconditioner=made,
        tolerance=UNIT_TOLERANCE,
        max_steps=MAX_STEPS,
        watch=watch,
    )
    if found.residual.max() > WORST_PROBE:
        return None
    x = np.asarray(lent.engine.fetch(found.x))
    return Known(chosen, x[chosen, np.arange(chosen.size)], False)
