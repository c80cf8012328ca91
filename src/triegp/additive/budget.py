"""Planning the solve on all rows for a time budget.

Almost all of its time goes into products with the kernel matrix. The unit of work is one row of one
column of a product. Its time is measured once, on some of the rows. Training gets the time that the
solve and the calibration leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triegp.additive.conditioning import START_RANK
from triegp.additive.forest import build_forest, multiply
from triegp.additive.model import rank_for
from triegp.additive.preconditioner import BLOCK_ROWS
from triegp.additive.start import EncodedRows, Parameters
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch

MEASURED_ROWS, MEASURED_COLUMNS = 4_000, 16
SOLVE_UNITS = 500  # per row: a solve with a good preconditioner, one column, and the smooth part
BLOCK_SECONDS = 5e-5  # per row of the calibration: its share of a block of nearby rows
TAIL_ROWS = 22_000  # most rows of the calibration
LEAST_ROWS = 250  # fewest rows of a smaller solve
LEAST_RANK = 32
START_PARTS = (4, 8, 16, 32)  # a smaller solve has n divided by one of these rows
SOLVE_SHARE, TAIL_SHARE = 0.4, 0.2  # largest shares of the time reserved for these


@dataclass(frozen=True)
class Plan:
    """Seconds reserved for the solve on all rows, and for the calibration."""

    solve: float
    tails: float


def measure_unit(
    data: EncodedRows, parameters: Parameters, engine: Engine, watch: Stopwatch
) -> float:
    """Seconds per row and column of a product with the trees, measured on at most 4,000 rows."""
    n = min(MEASURED_ROWS, data.rows.n_rows)
    codes = data.select(np.arange(n)).codes
    forest = build_forest(codes, parameters.orders(), engine)
    columns = engine.hold(np.ones((n, MEASURED_COLUMNS)))
    multiply(forest, columns[:, :1])
    began = watch.elapsed()
    engine.norms(multiply(forest, columns))
    return (watch.elapsed() - began) / (n * MEASURED_COLUMNS)


def plan_forest(left: float, unit: float, n_rows: int, calibrated: bool) -> Plan:
    """Divide the seconds left among training, the solve on all rows and the calibration.

    The later stages get the time they need, but at most 40 % for the solve and 20 % for the
    calibration. Training gets the rest.
    """
    full = precondition_seconds(n_rows, rank_for(n_rows), unit) + n_rows * SOLVE_UNITS * unit
    tails = min(n_rows, TAIL_ROWS) * BLOCK_SECONDS if calibrated else 0.0
    return Plan(min(full, SOLVE_SHARE * left), min(tails, TAIL_SHARE * left))


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
