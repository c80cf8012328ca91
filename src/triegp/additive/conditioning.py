"""Conditioning a forest on rows: the solve, the scale, and leave-one-out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.exact import factor_rows, is_exact, solve_factored
from triegp.additive.folds import predict_last
from triegp.additive.forest import Forest, build_forest, multiply
from triegp.additive.model import (
    TOLERANCE,
    ForestModel,
    column_of,
    precondition,
    tolerance_for,
)
from triegp.additive.nearby import make_process, stack_keys
from triegp.additive.neighbours import Neighbours
from triegp.additive.preconditioner import Preconditioner
from triegp.additive.probes import Probes, draw_probes, read_probes, solve_units
from triegp.additive.settings import Settings
from triegp.additive.solve import NotConverged, Solution, Tell, solve_forest
from triegp.additive.start import EncodedRows, Parameters, raise_noise, rescale, row_noise
from triegp.additive.variance import Known, with_factor
from triegp.engines import Engine, one_blas_thread, threads_of
from triegp.models.interface import Residuals
from triegp.models.jobs import Stopwatch
from triegp.smooth.dense import Dense, make_dense
from triegp.smooth.induced import make_induced
from triegp.smooth.interface import HostSmooth
from triegp.smooth.kernel import Kernel
from triegp.smooth.linear import Linear
from triegp.tree.rows import Rows
from triegp.tree.trie import trie_keys

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of a solve, and its progress.

    Attributes
    ----------
    watch : Stopwatch
        Ends the solve.
    share : float
        Of the usual sizes of smooth part and preconditioner, from 0 to 1. With 0, trees alone have
        no preconditioner, and a smooth part has its smallest sizes.
    start_rows : int
        If not 0, the solve starts from the solution on so many random rows. It then is at least as
        good as conditioning on these rows alone, however soon it ends.
    tell : callable or None
        Called with the name of a part and the share that is done, from 0 to 1.
    """

    watch: Stopwatch
    share: float = 1.0
    start_rows: int = 0
    tell: Callable[[str, float], None] | None = None

    def part(self, name: str) -> Tell | None:
        """Progress of one part."""
        tell = self.tell
        return None if tell is None else lambda share: tell(name, share)


MOST_INDUCING, FEWEST_INDUCING = 256, 64
MOST_NEIGHBOURS, FEWEST_NEIGHBOURS = 512, 64
NEIGHBOUR_FLOATS = 1 << 24  # largest n * neighbours
SCALE_RESIDUAL = 0.05  # largest relative residual at which the scale can be read off a solution
# A solve from a start reduces its residual at least by this factor: where rows were inserted, and
# where the start misses the held-out rows, at which its residual is as small as their noise.
START_GAIN, HELD_GAIN = 1e-2, 0.1
START_SHARE = 0.125  # of the usual sizes, in a smaller solve
# Least noise of many rows, relative to the prior variance of f. With less, conjugate gradients do
# not converge, because preconditioners are stored in float32. Of a function without noise: 5 steps
# for 6,000 rows and 14 for 30,000; with a quarter of it, no solution in 100 steps.
SOLVED_NOISE = 1e-6
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
    held: Ints | None = None,
) -> ForestModel:
    """Condition trees and smooth part on all rows, at the scale of highest likelihood.

    Several targets take one solve with as many right-hand sides.

    Parameters
    ----------
    data : EncodedRows
        The rows.
    parameters : Parameters
        Orders, kernel, scales and noise; kernels and noise are rescaled unless noise is known.
    settings : Settings
        Size of the smooth part.
    seed : int
        Seed of inducing rows, of the preconditioner's rows and of the probe.
    engine : Engine
        The engine that the model works on.
    solver : Engine, optional
        The engine that solves; by default `engine`.
    limits : Limits, optional
        Limits of the solve; `model.residual` tells how far it came.
    held : int64, optional
        Rows held out of training. They come last in the order of the smooth part, so that without
        themselves they are predicted as new rows are.
    """
    codes, rows = data.codes, data.rows
    if is_exact(rows.n_rows):
        solver = None  # a device would save less than it costs to reach it
    else:
        parameters = raise_noise(parameters, SOLVED_NOISE)
    orders = parameters.orders()
    share = 1.0 if limits is None else limits.share
    smooth = make_smooth(parameters.smooth, data.inputs, seed, engine, solver, held, share)
    forest = build_forest(codes, orders, engine, smooth)
    noisy = replace(row_noise(rows, orders, parameters.noise), X=None)
    start, factor = None, 1.0
    if limits is not None and limits.start_rows:
        start, factor = _solve_fewer(data, parameters, noisy, seed, engine, limits)
    lent = forest
    if solver is not None:
        dense = smooth.lend(solver) if isinstance(smooth, Dense) else None
        lent = build_forest(codes, orders, solver, dense)
    keys = engine.each(lambda _, t: trie_keys(forest.tries[t], codes[t]), range(len(orders)))
    process = None
    if isinstance(smooth, Linear) and solver is None:
        process = process_of(forest, keys, data.inputs, noisy)
    n_held = 0 if held is None else held.size
    estimated = not is_exact(rows.n_rows)
    probes = draw_probes(forest, noisy, seed) if estimated and solver is None else None
    made, solution, held_mean, known = solve_targets(
        lent, noisy, seed, start, limits, process, n_held, probes
    )
    if solver is not None:
        solution = replace(solution, x=solver.fetch(solution.x))
    if start is None or solution.residual.max() <= SCALE_RESIDUAL:
        factor = _best_factor(noisy, solution.x)
    if estimated and solver is not None:  # before the scale changes: the preconditioner still fits
        watch = None if limits is None else limits.watch
        known = solve_units(lent, noisy, made, seed, watch)
    if rows.known_noise is None and np.isfinite(factor) and factor > 1e-12:
        parameters = rescale(parameters, factor)
        orders = parameters.orders()
        smooth = None if smooth is None else smooth.rescaled(factor)
        forest = Forest(forest.tries, tuple(order.levels for order in orders), smooth)
        noisy = replace(noisy, noise=factor * noisy.total_noise)
        solution = replace(solution, x=solution.x / factor)
        known = None if known is None else known._replace(inverse=known.inverse / factor)
        made = made.rescaled(factor) if isinstance(made, Neighbours) else None
    model = ForestModel(
        encoders=data.encoders,
        orders=orders,
        noise=parameters.noise,
        forest=forest,
        keys=tuple(keys),
        rows=noisy,
        present=np.ones(rows.n_rows, bool),
        alpha=solution.x,
        residual=float(solution.residual.max()),
        coordinates=data.coordinates,
        inputs=data.inputs,
        goes_on=settings.goes_on,
        seed=seed,
        n_clustered=rows.n_rows,
        n_nearby=settings.n_nearby,
        held_mean=held_mean,
        known_preconditioner=made if solver is None and share == 1.0 else None,
    )
    if known is not None:
        return with_factor(model, known)
    if estimated and not (limits is not None and limits.watch.stop):
        warnings.warn(
            "the solves for the factor of nearby variances did not converge: deviations may be too "
            'large, variance="exact" is not affected',
            NotConverged,
            stacklevel=2,
        )
    return model


def residuals_of(
    model: ForestModel,
    left: tuple[Floats, Floats],
    fresh: npt.NDArray[np.bool_],
    rows: Ints | None = None,
    *,
    alone: bool = False,
) -> tuple[Residuals, ...]:
    """Residuals of rows from predictions without them, for each target.

    left: mean and variance of f at the rows, as `leave_out` or `predict_folds` returns them. fresh:
    bool (n,), rows held out of training. Rows that the parameters were trained on have smaller
    residuals than new rows, even if they are left out. rows: some of the n, by default all.
    """
    every = np.arange(model.rows.n_rows) if rows is None else rows
    mean, var = left
    own = model.rows.select(every)
    noise = np.broadcast_to(own.total_noise, var.shape)
    number, total = np.flatnonzero(model.present)[every], var + noise
    return tuple(
        Residuals(
            number, column_of(mean, c), total, column_of(own.y, c), own.weight, fresh[every], alone
        )
        for c in range(model.n_targets)
    )


def make_smooth(
    kernel: Kernel | None,
    inputs: Floats,
    seed: int,
    engine: Engine,
    solver: Engine | None = None,
    held: Ints | None = None,
    share: float = 1.0,
) -> HostSmooth | None:
    """The smooth part over all rows, in the host's memory; None if there is none.

    Few rows, and for a solver on a device: exact. Otherwise by inducing rows and neighbours, fewer
    for many rows or with a smaller share.
    """
    n = inputs.shape[0]
    if kernel is None:
        return None
    if takes_dense(n, solver):
        return make_dense(kernel, inputs / kernel.lengthscale, keep=False)
    n_inducing, n_neighbours = smooth_sizes(n, share)
    sizes = (n_inducing, n_neighbours, seed, threads_of(engine), held)
    return Linear(make_induced(kernel, inputs, *sizes))


def takes_dense(n_rows: int, solver: Engine | None) -> bool:
    """Whether the smooth part of so many rows is exact."""
    return is_exact(n_rows) or solver is not None


def smooth_sizes(n_rows: int, share: float = 1.0) -> tuple[int, int]:
    """Inducing rows and neighbours of a block: 256 and 512; a share of them, at least 64.

    Neighbours fall from 32,768 rows on.
    """
    n_inducing = share * MOST_INDUCING
    n_neighbours = share * min(MOST_NEIGHBOURS, NEIGHBOUR_FLOATS // max(n_rows, 1))
    return max(FEWEST_INDUCING, round(n_inducing)), max(FEWEST_NEIGHBOURS, round(n_neighbours))


def process_of(forest: Forest, keys: Sequence[Array], inputs: Floats, rows: Rows) -> Any:
    """The rows of a forest, for covariances between any of them.

    keys: sorted keys of each trie, (n, w); inputs: (n, p); rows: with noise.
    """
    by_row = [part[np.argsort(trie.row_idx)] for trie, part in zip(forest.tries, keys, strict=True)]
    stacked = stack_keys(by_row, forest.n_rows, max(part.shape[1] for part in by_row))
    variance = np.broadcast_to(rows.variance, (rows.n_rows,))
    assert forest.smooth is not None
    kernel = forest.smooth.kernel
    return make_process(inputs / kernel.lengthscale, stacked, forest.levels, variance, kernel)


def _solve_fewer(
    data: EncodedRows,
    parameters: Parameters,
    noisy: Rows,
    seed: int,
    engine: Engine,
    limits: Limits,
) -> tuple[Floats, float]:
    """Solution on some rows, 0 at the others, and the scale of highest likelihood there."""
    n = noisy.n_rows
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(n, size=min(limits.start_rows, n), replace=False))
    fewer = data.select(some)
    smooth = make_smooth(parameters.smooth, fewer.inputs, seed, engine, share=START_SHARE)
    forest = build_forest(fewer.codes, parameters.orders(), engine, smooth)
    own, process = noisy.select(some), None
    if isinstance(smooth, Linear):
        trees = range(len(fewer.codes))
        keys = engine.each(lambda _, t: trie_keys(forest.tries[t], fewer.codes[t]), trees)
        process = process_of(forest, keys, fewer.inputs, own)
    watch = limits.watch.within(limits.watch.left() / 2)
    part = Limits(watch, START_SHARE)
    found = solve_targets(forest, own, seed, limits=part, process=process)[1]
    start: Floats = np.zeros_like(noisy.y)
    start[some] = found.x
    good = found.residual.max() <= SCALE_RESIDUAL
    return start, _best_factor(own, found.x) if good else 1.0


def _best_factor(rows: Rows, alpha: Floats) -> float:
    """Factor of all variances that maximises the likelihood of all targets; rows: with noise."""
    square = float(np.vdot(rows.y, alpha)) + rows.within
    return square / (rows.count * rows.n_targets)


def solve_targets(
    forest: Forest,
    rows: Rows,
    seed: int,
    start: Floats | None = None,
    limits: Limits | None = None,
    process: Any = None,
    n_held: int = 0,
    probes: Probes | None = None,
) -> tuple[Preconditioner | None, Solution, Floats | None, Known | None]:
    """The preconditioner, if there is one, the solution, of the shape of the targets, and the mean.

    The mean is that of f at the last n_held rows given the others, on the host; None if there are
    none or the time does not suffice. Last, what the probes tell, which are solved for together
    with the targets. Few rows are solved exactly, whatever the limits. process: the rows, for
    covariances between any of them; needed with a smooth part in linear time.
    """
    limits = limits or Limits(Stopwatch())
    variance: Any = np.broadcast_to(rows.variance, (rows.n_rows,))
    if is_exact(rows.n_rows):
        return None, _solve_exactly(forest, variance, rows.y), None, None
    made = None
    if limits.share > 0 or isinstance(forest.smooth, Linear):
        tell = limits.part("preconditioner")
        made = precondition(forest, process, variance, seed, limits.watch, tell, limits.share)
    tolerance, engine, mean, gain = tolerance_for(rows), forest.engine, None, START_GAIN
    if n_held and start is None:
        given = (forest, engine.hold(variance), engine.hold(rows.y), n_held, made, tolerance)
        last = predict_last(*given, limits.watch)
        if last is not None:
            start, mean, gain = last[0], engine.fetch(last[1]), HELD_GAIN
    if start is not None:  # what it leaves may lie at a few rows alone
        y = engine.hold(rows.y.reshape(rows.n_rows, -1))
        left = y - multiply(forest, start, engine.hold(variance)).reshape(y.shape)
        size = np.maximum(engine.norms(y), 1e-300)
        relative = float(np.min(engine.norms(left) / size))
        tolerance = min(tolerance, max(TOLERANCE, gain * relative))
    b, n_columns, wanted = rows.y, rows.y.size // rows.n_rows, np.full(1, tolerance)
    if probes is not None:
        b = np.column_stack([rows.y, probes.z])
        wanted = np.append(
            np.full(n_columns, tolerance), np.full(probes.z.shape[1], probes.tolerance)
        )
        if start is not None:
            start = np.column_stack([start, 0.0 * probes.z])
    found = solve_forest(
        forest,
        variance,
        b,
        preconditioner=made,
        start=start,
        tolerance=wanted,
        n_told=n_columns,
        watch=limits.watch,
        tell=limits.part("solve"),
    )
    if probes is None:
        return made, found, mean, None
    x, residual = found.x[:, :n_columns].reshape(rows.y.shape), found.residual[:n_columns]
    solved = replace(found, x=x, residual=residual)
    others = replace(found, x=found.x[:, n_columns:], residual=found.residual[n_columns:])
    return made, solved, mean, read_probes(others)


def _solve_exactly(forest: Forest, variance: Floats, y: Floats) -> Solution:
    """By a dense factor."""
    with one_blas_thread():
        x = solve_factored(factor_rows(forest, variance), y)
    left = (y - multiply(forest, x, variance)).reshape(forest.n_rows, -1)
    size = np.maximum(np.linalg.norm(y.reshape(left.shape), axis=0), 1e-300)
    return Solution(x, np.asarray(np.linalg.norm(left, axis=0) / size), 0, True)
