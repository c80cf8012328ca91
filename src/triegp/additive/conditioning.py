"""Conditioning a forest on rows: the solve, the scale, leave-one-out, and adding rows later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest, build_forest
from triegp.additive.model import TOLERANCE, ForestModel, precondition, rank_for
from triegp.additive.preconditioner import Nystrom
from triegp.additive.settings import Settings
from triegp.additive.solve import Solution, Tell, solve_forest
from triegp.additive.start import EncodedRows, Parameters, rescale, row_noise
from triegp.additive.variance import leave_out, with_diagonal
from triegp.encoding.codes import Codes
from triegp.encoding.grids import encode_grids
from triegp.engines import Engine
from triegp.models.interface import Residuals
from triegp.models.jobs import Stopwatch
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, join_rows
from triegp.tree.trie import insert_rows, trie_keys

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of a solve, and its progress.

    Attributes
    ----------
    watch : Stopwatch
        Ends the solve.
    rank : int or None
        Rank of the preconditioner; None is the usual one, 0 is no preconditioner.
    start_rows : int
        If not 0, the solve starts from the solution on so many random rows. It then is at least as
        good as conditioning on these rows alone, however soon it ends.
    tell : callable or None
        Called with the name of a part and the share that is done, from 0 to 1.
    """

    watch: Stopwatch
    rank: int | None = None
    start_rows: int = 0
    tell: Callable[[str, float], None] | None = None

    def part(self, name: str) -> Tell | None:
        """Progress of one part."""
        tell = self.tell
        return None if tell is None else lambda share: tell(name, share)


SCALE_RESIDUAL = 0.05  # largest relative residual at which the scale can be read off a solution
START_RANK = 100  # of the preconditioner of a smaller solve
LARGEST = 1e9  # largest sample weight, and largest known noise relative to the variance of y


def check_extremes(rows: Rows) -> None:
    """Raise ValueError for weights or known noise too extreme for solves in float64."""
    for name, values, least in (
        ("sample_weight", rows.weight, 1.0 / LARGEST),
        ("known_noise", rows.known_noise, 0.0),
    ):
        if values is None:
            continue
        bad = np.flatnonzero((values > LARGEST) | ((values > 0) & (values < least)))
        if bad.size:
            i = int(bad[0])
            raise ValueError(
                f"{name} must be 0 or in [{least:g}, {LARGEST:g}], got {values[i]} at row {i} "
                "(known noise relative to the variance of y)"
            )


def condition_forest(
    data: EncodedRows,
    parameters: Parameters,
    settings: Settings,
    seed: int,
    engine: Engine,
    solver: Engine | None = None,
    limits: Limits | None = None,
) -> ForestModel:
    """Condition the forest of these parameters on all rows, at the scale of highest likelihood.

    Parameters
    ----------
    data : EncodedRows
        The rows.
    parameters : Parameters
        Orders, scales and noise; kernel and noise are rescaled unless noise is known.
    settings : Settings
        How variances are computed later on.
    seed : int
        Seed of the preconditioner's rows and of samples.
    engine : Engine
        The engine that the model works on.
    solver : Engine, optional
        The engine that solves; by default `engine`.
    limits : Limits, optional
        Limits of the solve; `model.residual` tells how far it came.
    """
    codes, rows = data.codes, data.rows
    orders = parameters.orders()
    forest = build_forest(codes, orders, engine)
    noisy = replace(row_noise(rows, orders, parameters.noise), X=None)
    nystrom: Nystrom | None
    start, factor = None, 1.0
    if limits is not None and limits.start_rows:
        start, factor = _solve_fewer(data, orders, noisy, seed, solver or engine, limits)
    if solver is None:
        nystrom, solution = _solve_targets(forest, noisy, seed, start, limits)
    else:
        lent = build_forest(codes, orders, solver)
        nystrom, solution = None, _solve_targets(lent, noisy, seed, start, limits)[1]
        solution = replace(solution, x=solver.fetch(solution.x))
    if start is None or solution.residual.max() <= SCALE_RESIDUAL:
        factor = (float(rows.y @ solution.x) + noisy.within) / rows.count
    if rows.known_noise is None and np.isfinite(factor) and factor > 1e-12:
        parameters = rescale(parameters, factor)
        orders = parameters.orders()
        forest = Forest(forest.tries, tuple(order.levels for order in orders))
        noisy = replace(noisy, noise=factor * noisy.total_noise)
        solution = replace(solution, x=solution.x / factor)
        nystrom = None  # computed again when needed, as after loading: the same bits
    keys = engine.each(lambda _, t: trie_keys(forest.tries[t], codes[t]), range(len(orders)))
    return ForestModel(
        encoders=data.encoders,
        orders=orders,
        noise=parameters.noise,
        forest=forest,
        keys=tuple(keys),
        rows=noisy,
        present=np.ones(rows.n_rows, bool),
        alpha=solution.x,
        residual=float(solution.residual.max()),
        variance_by=settings.variance,
        variance_error=float(settings.variance_error),
        seed=seed,
        known_preconditioner=nystrom,
    )


def move_model(
    model: ForestModel, codes: Sequence[Codes], solver: Engine | None
) -> ForestModel | None:
    """The model in the memory of `solver`, for solves; None if `solver` is None."""
    if solver is None:
        return None
    forest = build_forest(codes, model.orders, solver)
    return replace(model, forest=forest, known_preconditioner=None)


def residuals_of(
    model: ForestModel,
    fresh: npt.NDArray[np.bool_],
    solver: ForestModel | None = None,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
) -> tuple[ForestModel, Residuals | None]:
    """The model with the diagonal that leave-one-out needs, and its residuals.

    fresh: bool (n,), rows held out of training. Rows that the parameters were trained on have
    smaller residuals than new rows, even if they are left out. solver, watch, tell: as in
    `with_diagonal`. If the watch stops, there are no residuals.
    """
    model = with_diagonal(model, solver, watch, tell)
    if model.known_diagonal is None:
        return model, None
    mean, var = leave_out(model)
    rows = model.rows
    noise = np.broadcast_to(rows.total_noise, var.shape)
    every = np.flatnonzero(model.present)
    return model, Residuals(every, mean, var + noise, rows.y, rows.weight, fresh)


def insert_into_forest(model: ForestModel, rows: Rows) -> ForestModel:
    """The model conditioned on more rows: inserted into every trie; the solve starts from alpha."""
    counts = np.ones(rows.y.size, bool) if rows.weight is None else rows.weight > 0
    new = rows.select(np.flatnonzero(counts))
    present = np.append(model.present, counts)
    if not new.y.size:
        return replace(model, present=present)
    engine = model.forest.engine
    codes = encode_grids(model.encoders, new.features, engine)
    grown = engine.each(
        lambda _, t: insert_rows(model.forest.tries[t], model.keys[t], codes[t]),
        range(len(codes)),
    )
    forest = Forest(tuple(trie for trie, _ in grown), model.forest.levels)
    noisy = replace(row_noise(new, model.orders, model.noise), X=None)
    together = join_rows([model.rows, noisy])
    start = np.append(model.alpha, np.zeros(new.y.size))
    nystrom, solution = _solve_targets(forest, together, model.seed, start)
    return replace(
        model,
        forest=forest,
        keys=tuple(keys for _, keys in grown),
        rows=together,
        present=present,
        alpha=solution.x,
        residual=float(solution.residual.max()),
        known_diagonal=None,
        known_preconditioner=nystrom,
    )


def _solve_fewer(
    data: EncodedRows,
    orders: Sequence[BitOrder],
    noisy: Rows,
    seed: int,
    engine: Engine,
    limits: Limits,
) -> tuple[Floats, float]:
    """Solution on some rows, 0 at the others, (n,), and the scale of highest likelihood there."""
    n = noisy.n_rows
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(n, size=min(limits.start_rows, n), replace=False))
    forest = build_forest(data.select(some).codes, orders, engine)
    own = noisy.select(some)
    watch = limits.watch.within(limits.watch.left() / 2)
    part = Limits(watch, START_RANK)
    found = _solve_targets(forest, own, seed, limits=part)[1]
    start: Floats = np.zeros(n)
    start[some] = engine.fetch(found.x)
    good = found.residual.max() <= SCALE_RESIDUAL
    return start, float(own.y @ start[some]) / own.count if good else 1.0


def _solve_targets(
    forest: Forest,
    rows: Rows,
    seed: int,
    start: Floats | None = None,
    limits: Limits | None = None,
) -> tuple[Nystrom | None, Solution]:
    """The solution, and the preconditioner if it has the usual rank."""
    limits = limits or Limits(Stopwatch())
    variance: Any = np.broadcast_to(rows.variance, rows.y.shape)
    nystrom = None
    if limits.rank != 0:
        tell = limits.part("preconditioner")
        nystrom = precondition(forest, variance, seed, limits.watch, tell, limits.rank)
    found = solve_forest(
        forest,
        variance,
        rows.y,
        preconditioner=nystrom,
        start=start,
        tolerance=TOLERANCE,
        watch=limits.watch,
        tell=limits.part("solve"),
    )
    if nystrom is not None and nystrom.core.shape[0] < min(rank_for(rows.n_rows), rows.n_rows):
        nystrom = None
    return nystrom, found
