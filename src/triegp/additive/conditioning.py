"""Conditioning a forest on rows: the solve, the scale, leave-one-out, and adding rows later."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.evidence import EXACT_ROWS
from triegp.additive.forest import Forest, build_forest
from triegp.additive.model import (
    TOLERANCE,
    ForestModel,
    Points,
    forest_mean,
    new_keys,
    precondition,
    read_points,
)
from triegp.additive.nearby import Nearby, insert_nearby, nearby_weights
from triegp.additive.preconditioner import Preconditioner
from triegp.additive.sampling import draw_prior
from triegp.additive.settings import Settings
from triegp.additive.solve import NotConverged, Solution, Tell, solve_forest, solve_held
from triegp.additive.start import EncodedRows, Parameters, rescale, row_noise
from triegp.additive.variance import Known, leave_out, with_factor
from triegp.encoding.grids import encode_grids
from triegp.engines import Engine, threads_of
from triegp.models.interface import Residuals
from triegp.models.jobs import Stopwatch
from triegp.smooth.dense import make_dense
from triegp.smooth.induced import make_induced
from triegp.smooth.interface import HostSmooth
from triegp.smooth.linear import Linear
from triegp.tree.rows import Rows, join_rows
from triegp.tree.trie import insert_rows, trie_keys

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


MAX_STEPS = 1_000
N_PROBES = 4
PROBE_TOLERANCE, WORST_PROBE = 1e-2, 0.1  # relative residuals: wanted, and largest of use
UNIT_ROWS, UNIT_TOLERANCE = 64, 1e-4
MOST_INDUCING, FEWEST_INDUCING = 1_024, 64
MOST_NEIGHBOURS, FEWEST_NEIGHBOURS = 60, 12
PHI_FLOATS = 1 << 26  # largest n * inducing rows
DENSE_ROWS = 200_000  # up to this many rows, a solver on a device takes the kernel as it is
FEW_NEW = 32  # rows that are inserted one by one
PENDING_SHARE = 0.02  # of the rows: with more rows since the last solve, it begins again
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
    held: Ints | None = None,
) -> ForestModel:
    """Condition trees and smooth part on all rows, at the scale of highest likelihood.

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
    orders = parameters.orders()
    smooth = make_smooth(data, parameters, seed, engine, solver, held)
    forest = build_forest(codes, orders, engine, smooth)
    noisy = replace(row_noise(rows, orders, parameters.noise), X=None)
    start, factor = None, 1.0
    if limits is not None and limits.start_rows:
        start, factor = _solve_fewer(data, parameters, noisy, seed, engine, limits)
    lent = forest
    if solver is not None:
        lent = build_forest(codes, orders, solver, None if smooth is None else smooth.lend(solver))
    made, solution = _solve_targets(lent, noisy, seed, start, limits)
    if solver is not None:
        solution = replace(solution, x=solver.fetch(solution.x))
    if start is None or solution.residual.max() <= SCALE_RESIDUAL:
        factor = (float(rows.y @ solution.x) + noisy.within) / rows.count
    known: Known | None = None
    if rows.n_rows > EXACT_ROWS:  # before the scale changes: the preconditioner still fits
        solve = _solve_probe if solver is None else _solve_units
        known = solve(forest, lent, noisy, made, seed, limits)
    if rows.known_noise is None and np.isfinite(factor) and factor > 1e-12:
        parameters = rescale(parameters, factor)
        orders = parameters.orders()
        smooth = None if smooth is None else smooth.rescaled(factor)
        forest = Forest(forest.tries, tuple(order.levels for order in orders), smooth)
        noisy = replace(noisy, noise=factor * noisy.total_noise)
        solution = replace(solution, x=solution.x / factor)
        known = None if known is None else known._replace(inverse=known.inverse / factor)
        made = None  # computed again when needed, as after loading: the same bits
    keys = engine.each(lambda _, t: trie_keys(forest.tries[t], codes[t]), range(len(orders)))
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
        known_preconditioner=made if solver is None and limits is None else None,
    )
    if known is not None:
        return with_factor(model, known)
    if rows.n_rows > EXACT_ROWS and not (limits is not None and limits.watch.stop):
        warnings.warn(
            "the solves for the factor of nearby variances did not converge: deviations may be too "
            'large, variance="exact" is not affected',
            NotConverged,
            stacklevel=2,
        )
    return model


def residuals_of(
    model: ForestModel, fresh: npt.NDArray[np.bool_], rows: Ints | None = None
) -> Residuals:
    """Predictions of rows without themselves.

    fresh: bool (n,), rows held out of training. Rows that the parameters were trained on have
    smaller residuals than new rows, even if they are left out. rows: some of the n, by default all.
    """
    every = np.arange(model.rows.n_rows) if rows is None else rows
    mean, var = leave_out(model, every)
    own = model.rows.select(every)
    noise = np.broadcast_to(own.total_noise, var.shape)
    number = np.flatnonzero(model.present)[every]
    return Residuals(number, mean, var + noise, own.y, own.weight, fresh[every])


def insert_into_forest(model: ForestModel, rows: Rows) -> ForestModel:
    """The model conditioned on more rows; they are inserted into every trie and the smooth part.

    A few rows correct the solution only where they are felt (`_correct`). Otherwise, and once there
    are many of them, the solve begins again from alpha.
    """
    counts = np.ones(rows.y.size, bool) if rows.weight is None else rows.weight > 0
    new = rows.select(np.flatnonzero(counts))
    present = np.append(model.present, counts)
    if not new.y.size:
        return replace(model, present=present)
    n, k = model.rows.n_rows, new.y.size
    noisy = replace(row_noise(new, model.orders, model.noise), X=None)
    pending = model.n_pending + k
    if n > EXACT_ROWS and k <= FEW_NEW and pending <= PENDING_SHARE * n:
        alpha = model.alpha
        for i in range(k):
            one = np.array([i])
            points = read_points(model, new.features[one])
            alpha, near = _correct(model, points, noisy.select(one))
            model = _grow(model, new.features[one], noisy.select(one), points.inputs)
            n_clustered = near.n_clustered
            model = replace(model, alpha=alpha, known_nearby=near, n_clustered=n_clustered)
        return replace(model, present=present, n_pending=pending)
    if n <= EXACT_ROWS < n + k:  # variances are no longer exact
        model = with_factor(model, Known(np.arange(n), model.exact_diagonal, False))
    points = read_points(model, new.features)
    model = _grow(model, new.features, noisy, points.inputs)
    start = np.append(model.alpha, np.zeros(k))
    made, solution = _solve_targets(model.forest, model.rows, model.seed, start)
    return replace(
        model,
        present=present,
        alpha=solution.x,
        residual=float(solution.residual.max()),
        n_pending=0,
        known_preconditioner=made,
    )


def _grow(model: ForestModel, X: Array, noisy: Rows, inputs: Floats) -> ForestModel:
    """The model with more rows in its tries and its smooth part; alpha is that of before."""
    engine = model.forest.engine
    codes = encode_grids(model.encoders, X, engine)
    grown = engine.each(
        lambda _, t: insert_rows(model.forest.tries[t], model.keys[t], codes[t]),
        range(len(codes)),
    )
    smooth = None if model.smooth is None else model.smooth.extend(inputs)
    return replace(
        model,
        forest=Forest(tuple(trie for trie, _ in grown), model.forest.levels, smooth),
        keys=tuple(keys for _, keys in grown),
        rows=join_rows([model.rows, noisy]),
        inputs=np.concatenate([model.inputs, inputs]),
        n_clustered=model.rows.n_rows + noisy.n_rows,
        known_nearby=None,
        known_preconditioner=None,
    )


def _correct(model: ForestModel, points: Points, row: Rows) -> tuple[Floats, Nearby]:
    """Alpha (n + 1,) after one more row, corrected at the rows near it; and these rows in cells.

    With A_NN of the near rows N, k their covariance with the new row and r its residual, the
    correction is that of these rows alone: r / s at the new row, s = k0 + noise - k' A_NN^-1 k, and
    -A_NN^-1 k r / s at the near rows.
    """
    keys, inputs = new_keys(model, points), model.scale_inputs(points.inputs)
    members, weights, var = nearby_weights(model.nearby, inputs, keys)
    own = float(np.broadcast_to(row.variance, (1,))[0])
    residual = float(row.y[0] - forest_mean(model, points)[0])
    last = residual / (var + own)
    alpha = np.append(model.alpha, last)
    alpha[members] -= last * weights
    return alpha, insert_nearby(model.nearby, inputs, keys, np.array([own]))


def make_smooth(
    data: EncodedRows,
    parameters: Parameters,
    seed: int,
    engine: Engine,
    solver: Engine | None,
    held: Ints | None = None,
) -> HostSmooth | None:
    """The smooth part over all rows, in the host's memory; None if there is none.

    On the host: by inducing rows and neighbours, fewer for many rows. For a solver on a device:
    exact, and from 200,000 rows on by inducing rows alone.
    """
    kernel, n = parameters.smooth, data.rows.n_rows
    if kernel is None:
        return None
    if solver is not None and n <= DENSE_ROWS:
        return make_dense(kernel, data.inputs / kernel.lengthscale, keep=False)
    n_inducing, n_neighbours = smooth_sizes(n)
    if solver is not None:
        n_neighbours = 0
    sizes = (n_inducing, n_neighbours, seed, threads_of(engine), held)
    return Linear(make_induced(kernel, data.inputs, *sizes))


def smooth_sizes(n_rows: int) -> tuple[int, int]:
    """Inducing rows and neighbours per row: 1,024 and 60, fewer from 65,000 rows on."""
    n_inducing = min(MOST_INDUCING, max(FEWEST_INDUCING, PHI_FLOATS // max(n_rows, 1)))
    return n_inducing, max(FEWEST_NEIGHBOURS, MOST_NEIGHBOURS * n_inducing // MOST_INDUCING)


def _solve_fewer(
    data: EncodedRows,
    parameters: Parameters,
    noisy: Rows,
    seed: int,
    engine: Engine,
    limits: Limits,
) -> tuple[Floats, float]:
    """Solution on some rows, 0 at the others, (n,), and the scale of highest likelihood there."""
    n = noisy.n_rows
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(n, size=min(limits.start_rows, n), replace=False))
    fewer = data.select(some)
    smooth = make_smooth(fewer, parameters, seed, engine, None)
    forest = build_forest(fewer.codes, parameters.orders(), engine, smooth)
    own = noisy.select(some)
    watch = limits.watch.within(limits.watch.left() / 2)
    part = Limits(watch, START_RANK)
    found = _solve_targets(forest, own, seed, limits=part)[1]
    start: Floats = np.zeros(n)
    start[some] = found.x
    good = found.residual.max() <= SCALE_RESIDUAL
    return start, float(own.y @ start[some]) / own.count if good else 1.0


def _solve_probe(
    forest: Forest,
    lent: Forest,
    rows: Rows,
    made: Preconditioner | None,
    seed: int,
    limits: Limits | None,
) -> Known | None:
    """Squares of (K + noise)^-1 z for draws z of N(0, K + noise); None if they fail.

    The solutions consist mostly of directions with little more variance than the noise, which
    conjugate gradients find last. So the tolerance is relative to the noise.
    """
    rng = np.random.default_rng([seed, 1])
    variance: Any = np.broadcast_to(rows.variance, rows.y.shape)
    z = draw_prior(forest, N_PROBES, rng)
    z += np.sqrt(variance)[:, None] * rng.standard_normal(z.shape)
    ratio = float(variance.min()) / max(forest.prior_variance, 1e-300)
    tolerance = float(np.clip(np.sqrt(ratio), 1e-3, 1.0)) * PROBE_TOLERANCE
    found = _solve_more(lent, variance, z, made, tolerance, limits)
    return None if found is None else Known(np.arange(len(z)), np.square(found), True)


def _solve_units(
    forest: Forest,
    lent: Forest,
    rows: Rows,
    made: Preconditioner | None,
    seed: int,
    limits: Limits | None,
) -> Known | None:
    """The diagonal of (K + noise)^-1 at 64 random rows; None if solves fail.

    For a device, where many columns cost little and prior draws are approximations.
    """
    n, rng = rows.n_rows, np.random.default_rng([seed, 1])
    chosen = np.sort(rng.choice(n, min(UNIT_ROWS, n), replace=False))
    unit = np.zeros((n, chosen.size))
    unit[chosen, np.arange(chosen.size)] = 1.0
    variance: Any = np.broadcast_to(rows.variance, rows.y.shape)
    found = _solve_more(lent, variance, unit, made, UNIT_TOLERANCE, limits)
    if found is None:
        return None
    return Known(chosen, found[chosen, np.arange(chosen.size)], False)


def _solve_more(
    lent: Forest,
    variance: Any,
    b: Floats,
    made: Preconditioner | None,
    tolerance: float,
    limits: Limits | None,
) -> Floats | None:
    """(K + noise)^-1 b for b (n, k), in the host's memory; None if it is far from converged."""
    found = solve_held(
        lent,
        variance,
        lent.engine.hold(b),
        preconditioner=made,
        tolerance=tolerance,
        max_steps=MAX_STEPS,
        watch=None if limits is None else limits.watch,
    )
    if found.residual.max() > WORST_PROBE:
        return None
    return np.asarray(lent.engine.fetch(found.x))


def _solve_targets(
    forest: Forest,
    rows: Rows,
    seed: int,
    start: Floats | None = None,
    limits: Limits | None = None,
) -> tuple[Preconditioner | None, Solution]:
    """The preconditioner, if there is one, and the solution."""
    limits = limits or Limits(Stopwatch())
    variance: Any = np.broadcast_to(rows.variance, rows.y.shape)
    made = None
    if limits.rank != 0:
        tell = limits.part("preconditioner")
        made = precondition(forest, variance, seed, limits.watch, tell, limits.rank)
    found = solve_forest(
        forest,
        variance,
        rows.y,
        preconditioner=made,
        start=start,
        tolerance=TOLERANCE,
        watch=limits.watch,
        tell=limits.part("solve"),
    )
    return made, found
