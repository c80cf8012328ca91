"""Planning what follows training for a time budget.

The unit of work is one row of one column of a product with one tree. Its time is measured once, on
some of the rows; the costs below are in these units and hold for rows of any number. If there is
not enough time for all, a share of it is taken: fewer inducing rows, neighbours and columns of the
preconditioner. Training gets the time that the solve and the calibration leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from triegp.additive.conditioning import START_SHARE, smooth_sizes
from triegp.additive.exact import is_exact
from triegp.additive.forest import build_forest, multiply
from triegp.additive.model import rank_for, tree_columns
from triegp.additive.neighbours import MOST_NEIGHBOURS
from triegp.additive.preconditioner import BLOCK_ROWS as KEY_BLOCK_ROWS
from triegp.additive.start import EncodedRows, Parameters
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch
from triegp.smooth.division import BLOCK_ROWS

MEASURED_ROWS, MEASURED_COLUMNS = 4_000, 16
SHARES = (1.0, 0.5, 0.25, 0.125)
PRODUCT = 0.025  # units of a multiplication in projections
FAST_PRODUCT = 0.015  # the same in products and factors of large matrices
READ_VALUE = 0.17  # units of reading a value of a tall matrix
SEARCH, PAIR, COLUMN = 2_000, 2.0, 0.8  # of dividing a row, of a kernel value, and of a column
FACTOR_PAIR = 1.2  # of a pair of rows and a tree, in dense factors and all that follows from them
STEPS, STEP_POWER = 15, 0.8  # steps of a solve; more with a smaller share
PROBES = 2  # right-hand sides of a solve, in addition to the targets
CALIBRATION_SECONDS = 1e-4  # per row and target: its share of a nearby block, and local noise
SOME_ROWS, MANY_ROWS = 20_000, 40_000  # that calibration learns from, if there are so many
LEAST_ROWS = 250  # fewest rows of a smaller solve
START_PARTS = (4, 8, 16, 32)  # a smaller solve has n divided by one of these rows
SOLVE_SHARE, TAIL_SHARE = 0.5, 0.2  # largest shares of the time reserved for these


@dataclass(frozen=True)
class Work:
    """What a forest has to be conditioned on.

    Attributes
    ----------
    n_rows, n_trees : int
        Number of rows and of trees.
    linear : bool
        Whether there is a smooth part by inducing rows and neighbours.
    unit : float
        Seconds per row and column of a product with one tree.
    n_targets : int
        Number of targets that share the forest.
    """

    n_rows: int
    n_trees: int
    linear: bool
    unit: float
    n_targets: int = 1


@dataclass(frozen=True)
class Plan:
    """Seconds reserved for the solve on all rows, and for the calibration."""

    solve: float
    tails: float


def measure_unit(
    data: EncodedRows, parameters: Parameters, engine: Engine, watch: Stopwatch
) -> float:
    """Seconds per row and column of a product with one tree, measured on at most 4,000 rows."""
    n = min(MEASURED_ROWS, data.rows.n_rows)
    codes = data.select(np.arange(n)).codes
    forest = build_forest(codes, parameters.orders(), engine)
    columns = engine.hold(np.ones((n, MEASURED_COLUMNS)))
    multiply(forest, columns[:, :1])
    began = watch.elapsed()
    engine.norms(multiply(forest, columns))
    return (watch.elapsed() - began) / (n * MEASURED_COLUMNS * len(codes))


def plan_forest(left: float, work: Work, calibrated: bool) -> Plan:
    """Divide the seconds left among training, the solve on all rows and the calibration.

    The later stages get the time they need, but at most 50 % for the solve and 20 % for the
    calibration. Training gets the rest.
    """
    rows = min(work.n_rows, calibration_rows(TAIL_SHARE * left, work.n_targets))
    tails = rows * work.n_targets * CALIBRATION_SECONDS if calibrated else 0.0
    return Plan(
        min(solve_seconds(work, 1.0), SOLVE_SHARE * left),
        min(tails, TAIL_SHARE * left),
    )


def calibration_rows(left: float, n_targets: int = 1) -> int:
    """Rows that calibration learns from in so many seconds: 20,000 to 40,000."""
    return int(np.clip(left / (n_targets * CALIBRATION_SECONDS), SOME_ROWS, MANY_ROWS))


def solve_seconds(work: Work, share: float) -> float:
    """Estimated time of making smooth part and preconditioner, and of the solves."""
    n, n_trees = work.n_rows, work.n_trees
    if is_exact(n):
        return n * n * n_trees * FACTOR_PAIR * work.unit
    steps = STEPS * float(share**-STEP_POWER)
    if not work.linear:
        rank = share * rank_for(n)
        make = 1.2 * n_trees * (rank + KEY_BLOCK_ROWS)
        step = n_trees + READ_VALUE * 2 * rank
    else:
        m_i, m_v = smooth_sizes(n, share)
        columns, near = tree_columns(share), min(m_v, MOST_NEIGHBOURS)
        q = m_i + columns
        make = PRODUCT * m_i * m_i + SEARCH + _regression(m_v, 1, m_i)
        make += _regression(near, n_trees, q) + COLUMN * n_trees * columns + FAST_PRODUCT * q * q
        step = n_trees + READ_VALUE * 2 * (m_i + q + m_v + near)
    return n * work.unit * (make + (work.n_targets + PROBES) * steps * step)


def _regression(n_neighbours: int, n_kernels: int, n_columns: int) -> float:
    """Units per row of regressing blocks on neighbours under what some columns leave of kernels."""
    size = n_neighbours + BLOCK_ROWS
    pairs = 0.5 * size * size / BLOCK_ROWS
    return pairs * (PAIR * n_kernels + FAST_PRODUCT * (n_columns + size / 3))


def fitting_share(left: float, work: Work) -> float:
    """Largest of the shares for which there is time; 0 if there is for none.

    Trees alone have no preconditioner with a share of 0. A smooth part then takes its smallest
    sizes.
    """
    return next((share for share in SHARES if solve_seconds(work, share) <= left), 0.0)


def start_rows(left: float, work: Work) -> int:
    """Number of rows of a smaller solve that starts the one on all rows, in a third of the time."""
    n = work.n_rows
    options = [n // parts for parts in START_PARTS if n // parts >= LEAST_ROWS]

    def seconds(rows: int) -> float:
        return solve_seconds(replace(work, n_rows=rows), START_SHARE)

    return next(
        (rows for rows in options if seconds(rows) <= left / 3), options[-1] if options else 0
    )
