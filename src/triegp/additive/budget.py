"""Planning a forest's training for a time budget.

Almost all of the time goes into products with the kernel matrix. The unit of work is one row of one
column of a product. Its time is measured once, on some of the rows. Every stage takes so many units
for each of its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from triegp.additive.conditioning import START_RANK
from triegp.additive.evidence import EXACT_ROWS
from triegp.additive.forest import build_forest, multiply
from triegp.additive.model import rank_for
from triegp.additive.preconditioner import BLOCK_ROWS
from triegp.additive.start import EncodedRows, Parameters
from triegp.additive.variance import diagonal_samples
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch

MEASURED_ROWS, MEASURED_COLUMNS = 4_000, 16
STAGE_UNITS, STEP_UNITS = 800, 250  # per row: the beginning and end of a stage, and one step
SOLVE_UNITS = 250  # per row: a solve with a good preconditioner, one column
SAMPLE_UNITS = 45  # per row: drawing one sample and solving for it
DENSE_SECONDS = 3e-10  # times n^3: the inverse of a dense matrix
GOOD_STEPS, FEW_STEPS = 10, 3  # steps that a first and a second stage should have time for
LEAST_ROWS = 250  # fewest rows to train on
LEAST_RANK = 32
START_PARTS = (4, 8, 16, 32)  # a smaller solve has n divided by one of these rows
SOLVE_SHARE, TAIL_SHARE = 0.4, 0.2  # largest shares of the time reserved for these
TAIL_ROWS = (20_000, 10_000, 5_000, 2_000, 1_000, 500, 250)  # rows of a smaller forest for tails


@dataclass(frozen=True)
class Plan:
    """Seconds reserved for what follows training, and the rows of the first stage.

    Attributes
    ----------
    solve, tails : float
        Seconds for the solve on all rows, and for learning the tails.
    train_rows : int
        Number of rows of the first training stage.
    """

    solve: float
    tails: float
    train_rows: int


def measure_unit(
    data: EncodedRows, parameters: Parameters, engine: Engine, watch: Stopwatch
) -> float:
    """Seconds per row and column of a product, measured on at most 4,000 rows."""
    n = min(MEASURED_ROWS, data.rows.n_rows)
    codes = data.select(np.arange(n)).codes
    forest = build_forest(codes, parameters.orders(), engine)
    columns = engine.hold(np.ones((n, MEASURED_COLUMNS)))
    multiply(forest, columns[:, :1])
    began = watch.elapsed()
    engine.norms(multiply(forest, columns))
    return (watch.elapsed() - began) / (n * MEASURED_COLUMNS)


def plan_forest(left: float, unit: float, n_rows: int, train_rows: int, calibrated: bool) -> Plan:
    """Divide the seconds left among training, the solve on all rows and the tails.

    The later stages get the time they need, but at most 40 % for the solve and 20 % for the tails.
    Training gets the rest. It uses fewer rows if there is no time for 10 steps on `train_rows`.
    """
    full = precondition_seconds(n_rows, rank_for(n_rows), unit) + n_rows * SOLVE_UNITS * unit
    solve = min(full, SOLVE_SHARE * left)
    tails = 0.0
    if calibrated:
        rows = tail_rows(TAIL_SHARE * left, n_rows, unit)
        tails = tails_seconds(rows, n_rows, unit) if rows else 0.0
    units = STAGE_UNITS + GOOD_STEPS * STEP_UNITS
    most = (left - solve - tails) / (units * unit) if unit > 0 else math.inf
    return Plan(solve, tails, int(max(min(LEAST_ROWS, train_rows), min(most, train_rows))))


def stage_seconds(n_rows: int, n_steps: int, unit: float) -> float:
    """Estimated time of a training stage."""
    return n_rows * (STAGE_UNITS + n_steps * STEP_UNITS) * unit


def precondition_seconds(n_rows: int, rank: int, unit: float) -> float:
    """Estimated time of making a preconditioner."""
    return 1.2 * n_rows * (rank + BLOCK_ROWS) * unit


def fitting_rank(left: float, n_rows: int, unit: float) -> int:
    """Largest rank, of the usual one and its halves, that leaves time for the solve; or 0."""
    rank = rank_for(n_rows)
    while rank >= LEAST_RANK:
        if precondition_seconds(n_rows, rank, unit) + n_rows * SOLVE_UNITS * unit <= left:
            return rank
        rank //= 2
    return 0


def start_rows(left: float, n_rows: int, unit: float) -> int:
    """Number of rows of a smaller solve that starts the one on all rows, in a third of the time."""
    options = [n_rows // parts for parts in START_PARTS if n_rows // parts >= LEAST_ROWS]
    units = 1.2 * (START_RANK + BLOCK_ROWS) + SOLVE_UNITS
    fits = (rows for rows in options if rows * units * unit <= left / 3)
    return next(fits, options[-1] if options else 0)


def tail_rows(left: float, n_rows: int, unit: float) -> int:
    """Number of rows from which tails can be learned in the time left; 0 if there is no time."""
    options = (n_rows, *(rows for rows in TAIL_ROWS if rows < n_rows))
    return next((rows for rows in options if tails_seconds(rows, n_rows, unit) <= left), 0)


def tails_seconds(n_tail_rows: int, n_rows: int, unit: float) -> float:
    """Estimated time of learning tails from some of the rows; fewer need a solve of their own."""
    rank, n = rank_for(n_tail_rows), n_tail_rows
    again = precondition_seconds(n, rank, unit) + n * SOLVE_UNITS * unit if n < n_rows else 0.0
    if n <= EXACT_ROWS:
        return again + n**2 * unit + n**3 * DENSE_SECONDS
    sampled = n * diagonal_samples(n) * SAMPLE_UNITS * unit
    return again + precondition_seconds(n, rank, unit) + sampled
