"""From rows to a forest that predicts: plant, train on some rows, condition on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.model import TOLERANCE, ForestModel, Manner, precondition, rank_for
from triegp.additive.preconditioner import BLOCK_ROWS, Nystrom
from triegp.additive.solve import Solution, solve_forest
from triegp.additive.start import (
    Parameters,
    draw_grids,
    features_of,
    rescale,
    start_even,
    start_random,
)
from triegp.additive.tails import GAUSSIAN, learn_tails
from triegp.additive.variance import leave_out, with_diagonal
from triegp.additive.walk import Learned, Schedule, build_forest, row_noise, train_stage
from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine
from triegp.engines.choice import ROW_BYTES
from triegp.models.jobs import Stopwatch
from triegp.tree.observations import Measured, Observations
from triegp.tree.order import BitOrder
from triegp.tree.posterior import select_codes
from triegp.tree.trie import insert_rows, trie_keys

Floats = npt.NDArray[np.float64]
Data = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]

START_NOISE = 0.1  # of the variance of y, before the scale is found
HELD_ROWS = 2_000  # at most, that training does not see: tails are learned from them
LARGEST = 1e9  # sample weight, and known noise over the variance of y
MANY_ROWS = 60_000  # from here on, tails are learned from a forest of fewer
SOME_ROWS = 20_000  # namely of so many
TREE_BYTES = 48  # that a row takes in a tree on a card, codes not counted
FEW_ROWS = 1_000  # below, all rows are trained on, and tails learned from all


@dataclass(frozen=True)
class ForestPlan:
    """How a forest is fitted.

    Attributes
    ----------
    n_trees : int
        Trees.
    start : {"even", "random", "trained"}
        Orders to begin with.
    slope : float
        How fast the variance falls with the width of the cells, in the start "even".
    stages : tuple of (int, int)
        Rows at most, and steps, one stage after the other.
    schedule : Schedule
        Of all of them, but for the steps.
    calibrated : bool
        Whether tails are learned by leave-one-out.
    manner : Manner
        How variances are found.
    """

    n_trees: int
    start: str
    slope: float
    stages: tuple[tuple[int, int], ...]
    schedule: Schedule
    calibrated: bool
    manner: Manner


@dataclass(frozen=True, eq=False)
class Grown:
    """A fitted forest, how training went, stage by stage, and whether the watch cut it short."""

    model: ForestModel
    stages: tuple[Learned, ...]
    stopped: bool


def train_forest(
    encoders: Sequence[BitEncoder],
    X: Data,
    rows: Measured,
    plan: ForestPlan,
    rng: np.random.Generator,
    engine: Engine,
    watch: Stopwatch,
    progress: Progress,
    trained: Sequence[tuple[BitEncoder, BitOrder]] = (),
    keep: bool = True,
    *,
    host: CpuEngine,
) -> Grown:
    """Fit a forest.

    Parameters
    ----------
    encoders : sequence of BitEncoder
        Without shift; trees take them in turns.
    X : array (n, d)
        Rows as `real_array` gives them.
    rows : Measured
        Standardised targets, known noise, weights.
    engine : Engine
        What the parameters are learned on, and solves run on if it takes many columns at once.
    trained : sequence of (BitEncoder, BitOrder)
        Single trees to start from, where the plan says so.
    keep : bool
        Whether Ctrl-C, which the watch remembers, keeps the best found so far; otherwise it is
        raised.
    host : CpuEngine
        What rows are encoded on, and the fitted forest works on: it lives in the host's memory.

    Notes
    -----
    O(n T) for each of the products that training on the largest stage, one solve on all rows and
    the leave-one-out diagonal take.
    """
    check_measured(rows)
    present = np.ones(rows.y.size, bool) if rows.weight is None else rows.weight > 0
    X, rows = X[present], _select(rows, np.flatnonzero(present))
    grids = draw_grids(encoders, plan.n_trees, rng)
    if plan.start == "trained":
        grids, phi = _from_trained(encoders, grids, trained)
    elif plan.start == "random":
        phi = tuple(start_random(grid, rng) for grid in grids)
    else:
        phi = tuple(start_even(grid, plan.slope, rng) for grid in grids)
    codes = encode_grids(grids, X, host)
    even = np.full(plan.n_trees, -np.log(plan.n_trees))
    parameters = Parameters(phi, even, float(np.log(START_NOISE)))
    features = [features_of(grid) for grid in grids]
    mixed = rng.permutation(rows.y.size)
    held = min(HELD_ROWS, rows.y.size // 5) if rows.y.size >= FEW_ROWS else 0
    found: list[Learned] = []
    seen, stopped = 0, False
    for most, steps in plan.stages:
        some = np.sort(mixed[: min(most, mixed.size - held)])
        if some.size == seen:
            continue
        if watch.stop and found:
            stopped = True
            break
        seen = some.size
        found.append(
            train_stage(
                parameters,
                [select_codes(part, some) for part in codes],
                features,
                _select(rows, some),
                replace(plan.schedule, n_steps=steps),
                engine,
                rng,
                watch,
                progress,
            )
        )
        parameters = found[-1].parameters
        stopped = stopped or found[-1].stopped
    if watch.interrupted and not keep:
        raise KeyboardInterrupt
    manner = replace(plan.manner, seed=int(rng.integers(2**31)))
    solver = engine if engine.batches else None
    given = (codes, parameters, rows)
    model = condition_forest(grids, *given, present, manner, host, solver)
    if plan.calibrated:
        try:
            model = _learn_tails(model, *given, mixed, held, solver)
        except KeyboardInterrupt:
            if not keep:
                raise
            watch.interrupt()
            stopped = True
    return Grown(model, tuple(found), stopped)


def forest_card_bytes(encoders: Sequence[BitEncoder], n_trees: int, n_rows: int) -> int:
    """Memory of a card that a fit takes, about: trees, and a preconditioner while it is made."""
    shifted = [-(-(encoder.n_bits_ + encoder.n_features_in_) // 8) for encoder in encoders]
    trees = sum(shifted[t % len(shifted)] + TREE_BYTES for t in range(n_trees))
    return n_rows * (trees + ROW_BYTES + 2 * 8 * (rank_for(n_rows) + BLOCK_ROWS))


def _learn_tails(
    model: ForestModel,
    codes: Sequence[Codes],
    parameters: Parameters,
    rows: Measured,
    mixed: npt.NDArray[np.int64],
    held: int,
    solver: Engine | None,
) -> ForestModel:
    """The model with tails learned from the rows held out; of many rows, among some of the others.

    Residuals in predicted deviations are much the same for a forest that has seen fewer rows, and
    leaving rows out of all of them takes solves with all.
    """
    if mixed.size < MANY_ROWS:
        last = np.sort(mixed[mixed.size - held :]) if held else None
        return calibrate_forest(model, last, lend_model(model, codes, solver))
    some = np.append(mixed[: SOME_ROWS - held], mixed[mixed.size - held :])
    codes = [select_codes(part, some) for part in codes]
    fewer = condition_forest(
        model.encoders,
        codes,
        parameters,
        _select(rows, some),
        np.ones(some.size, bool),
        model.manner,
        model.forest.engine,
        solver,
    )
    last = np.arange(some.size - held, some.size)
    calibrated = calibrate_forest(fewer, last, lend_model(fewer, codes, solver))
    return replace(model, tails=calibrated.tails)


def lend_model(
    model: ForestModel, codes: Sequence[Codes], solver: Engine | None
) -> ForestModel | None:
    """The model in the memory of another engine, for solves; None where there is no other."""
    if solver is None:
        return None
    forest = build_forest(codes, model.orders, solver)
    return replace(model, forest=forest, known_preconditioner=None)


def check_measured(rows: Measured) -> None:
    """Refuse weights and known noise that leave no room for anything else in float64."""
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
                f"{name} must be 0 or from {least:g} to {LARGEST:g}, got {values[i]} at row {i} "
                "(known noise relative to the variance of y)"
            )


def condition_forest(
    encoders: Sequence[BitEncoder],
    codes: Sequence[Codes],
    parameters: Parameters,
    rows: Measured,
    present: npt.NDArray[np.bool_],
    manner: Manner,
    engine: Engine,
    solver: Engine | None = None,
) -> ForestModel:
    """The forest of these parameters given all rows, at the scale that is most likely.

    engine: what the model works on; solver: what the solve runs on, if not the same.
    """
    orders = parameters.orders()
    forest = build_forest(codes, orders, engine)
    observed = Observations(rows.y, row_noise(orders, parameters.noise, rows), rows.weight)
    nystrom: Nystrom | None
    if solver is None:
        nystrom, solution = _solve_targets(forest, observed, manner.seed)
    else:
        lent = build_forest(codes, orders, solver)
        nystrom, solution = None, _solve_targets(lent, observed, manner.seed)[1]
        solution = replace(solution, x=solver.fetch(solution.x))
    factor = float(rows.y @ solution.x) / rows.count
    if rows.known_noise is None and np.isfinite(factor) and factor > 1e-12:
        parameters = rescale(parameters, factor)
        orders = parameters.orders()
        forest = Forest(forest.tries, tuple(order.levels for order in orders))
        observed = replace(observed, noise=factor * observed.noise)
        solution = replace(solution, x=solution.x / factor)
        nystrom = None  # a model from a file makes it anew, and must answer with the same bits
    keys = engine.each(lambda _, t: trie_keys(forest.tries[t], codes[t]), range(len(orders)))
    return ForestModel(
        encoders=tuple(encoders),
        orders=orders,
        noise=parameters.noise,
        forest=forest,
        keys=tuple(keys),
        rows=observed,
        present=present,
        alpha=solution.x,
        residual=float(solution.residual.max()),
        tails=GAUSSIAN,
        manner=manner,
        known_preconditioner=nystrom,
    )


def calibrate_forest(
    model: ForestModel,
    some: npt.NDArray[np.int64] | None = None,
    solver: ForestModel | None = None,
) -> ForestModel:
    """The model with tails learned by leave-one-out, from some rows or from all.

    Rows that the parameters were fitted to look better than new ones will, even left out. solver:
    as in `with_diagonal`.
    """
    model = with_diagonal(model, solver)
    mean, var = leave_out(model)
    rows = slice(None) if some is None else some
    score = ((model.rows.y - mean) / np.sqrt(var))[rows]
    weight = None if model.rows.weight is None else model.rows.weight[rows]
    return replace(model, tails=learn_tails(score, weight))


def add_rows(model: ForestModel, X: Data, rows: Measured) -> ForestModel:
    """The model with more rows: every trie grows, and the solve goes on from where it was."""
    counts = np.ones(rows.y.size, bool) if rows.weight is None else rows.weight > 0
    X, new = X[counts], _select(rows, np.flatnonzero(counts))
    present = np.append(model.present, counts)
    if not new.y.size:
        return replace(model, present=present)
    engine = model.forest.engine
    codes = encode_grids(model.encoders, X, engine)
    grown = engine.each(
        lambda _, t: insert_rows(model.forest.tries[t], model.keys[t], codes[t]),
        range(len(codes)),
    )
    forest = Forest(tuple(trie for trie, _ in grown), model.forest.levels)
    old = model.rows
    noise = np.append(old.noise, row_noise(model.orders, model.noise, new))
    weight = None
    if old.weight is not None or new.weight is not None:
        parts = [
            np.ones(part.y.size) if part.weight is None else part.weight for part in (old, new)
        ]
        weight = np.concatenate(parts)
    observed = Observations(np.append(old.y, new.y), noise, weight)
    start = np.append(model.alpha, np.zeros(new.y.size))
    nystrom, solution = _solve_targets(forest, observed, model.manner.seed, start)
    return replace(
        model,
        forest=forest,
        keys=tuple(keys for _, keys in grown),
        rows=observed,
        present=present,
        alpha=solution.x,
        residual=float(solution.residual.max()),
        known_diagonal=None,
        known_preconditioner=nystrom,
    )


def _solve_targets(
    forest: Forest, rows: Observations, seed: int, start: Floats | None = None
) -> tuple[Nystrom, Solution]:
    variance = np.broadcast_to(rows.variance, rows.y.shape)
    nystrom = precondition(forest, variance, seed)
    found = solve_forest(
        forest, variance, rows.y, preconditioner=nystrom, start=start, tolerance=TOLERANCE
    )
    return nystrom, found


def _from_trained(
    encoders: Sequence[BitEncoder],
    grids: Sequence[BitEncoder],
    trained: Sequence[tuple[BitEncoder, BitOrder]],
) -> tuple[tuple[BitEncoder, ...], tuple[Floats, ...]]:
    """Orders of single trees, in turns, each on the grids' shifts."""
    by_scaling = {encoder.scaling: encoder for encoder in encoders}
    chosen, phi = [], []
    for t, grid in enumerate(grids):
        own, order = trained[t % len(trained)]
        chosen.append(by_scaling[own.scaling].with_shift(grid.shift_))
        phi.append(order.phi)
    return tuple(chosen), tuple(phi)


def _select(rows: Measured, some: npt.NDArray[np.int64]) -> Measured:
    known = None if rows.known_noise is None else rows.known_noise[some]
    weight = None if rows.weight is None else rows.weight[some]
    return Measured(rows.y[some], known, weight)
