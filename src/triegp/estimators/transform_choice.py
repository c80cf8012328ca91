"""target_transform="auto": the transform under which a quick model predicts y best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import Columns
from triegp.estimators.loading import find_estimator
from triegp.estimators.seeds import generator_of
from triegp.estimators.transforms import IDENTITY, fit_transform
from triegp.models.jobs import Stopwatch
from triegp.models.state import Seed
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

MOST_ROWS = 10_000  # that quick models are fitted to
HURRIED_ROWS = 1_000  # with a time budget
FEWEST_ROWS = 20  # with fewer rows targets are not transformed
CONSTANT = 1e-9  # relative differences of y up to this are none
LEAST_GAIN = 0.01  # nats per row that a transform must gain over the identity
KEY = 0x7A  # of the random numbers that choose a transform, beside those of the models
SHARE = 0.2  # of the time budget


def choose_by_mixtures(
    estimator: Any, rows: Rows, columns: Columns, t: int, seed: Seed, left_out: list[str]
) -> str:
    """Name of the transform for target t of an estimator, by small mixtures of trees on the CPU.

    rows: with the columns of the table, y in its own units. seed: that of the first model; the
    random numbers drawn here are not those of the model. left_out: told if there is no time for
    all transforms.
    """
    rng = generator_of(Seed(seed.entropy, (*seed.key, KEY, t)))
    budget = estimator.time_budget
    watch = Stopwatch(None if budget is None else SHARE * budget / rows.n_targets)
    quick = find_estimator("BinaryTreeGPRegressor")(
        n_members=4,
        n_candidates=8,
        max_iter=50,
        weights=estimator.weights,
        keep_rows=False,
        engine="cpu",
        n_jobs=estimator.n_jobs,
        random_state=int(rng.integers(2**31)),
    )

    def density(some: Rows) -> Floats:
        state, _ = quick._fit_rows(some, True, columns, None)
        quick._restore(state)
        return np.asarray(quick.loo_log_density())

    name = choose_transform(rows.targets([t]), density, rng, watch)
    if watch.out_of_time and "transforms" not in left_out:
        left_out.append("transforms")
    return name


def choose_transform(
    rows: Rows, density: Callable[[Rows], Floats], rng: np.random.Generator, watch: Stopwatch
) -> str:
    """The name of the transform with the highest mean leave-one-out log density of y.

    Parameters
    ----------
    rows : Rows
        With y (n, 1) in its own units; at most 10,000 of them are used, drawn at random.
    density : callable (rows) -> float64 (n,)
        Leave-one-out log densities under a quick model.
    rng : Generator
        Random numbers, to draw rows and halves.
    watch : Stopwatch
        When it stops, the remaining transforms are not tried; if it is limited, 1,000 rows are
        enough.

    Notes
    -----
    The identity is kept unless another gains more than 0.01 nats per row, and more than a standard
    error of the gain. The quantile transform has as many parameters as knots. So it is learned from
    one half of the rows to score the other half, and the other way round.
    """
    used = np.arange(rows.n_rows) if rows.weight is None else np.flatnonzero(rows.weight > 0)
    if used.size < FEWEST_ROWS:
        return IDENTITY
    most = HURRIED_ROWS if watch.limited else MOST_ROWS
    if used.size > most:
        used = np.sort(rng.choice(used, most, replace=False))
    rows = rows.select(used)
    if np.ptp(0.5 * rows.y) <= CONSTANT * np.abs(0.5 * rows.y).max():  # halves do not overflow
        return IDENTITY
    count = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    everyone = np.ones(rows.n_rows, bool)
    half = rng.permutation(rows.n_rows) < rows.n_rows // 2
    base = density(rows)
    best, highest = IDENTITY, 0.0
    for name in ("log", "yeo-johnson", "quantile"):
        if watch.stop or (name == "log" and not (rows.y > 0).all()):
            continue
        parts = (half, ~half) if name == "quantile" else (everyone,)
        gain = _density_under(name, rows, density, parts) - base
        mean = float(np.average(gain, weights=count))
        error = np.sqrt(np.average((gain - mean) ** 2, weights=count) / rows.n_rows)
        if mean > max(highest, LEAST_GAIN, error):
            best, highest = name, mean
    return best


def _density_under(
    name: str,
    rows: Rows,
    density: Callable[[Rows], Floats],
    parts: tuple[npt.NDArray[np.bool_], ...],
) -> Floats:
    """Leave-one-out log densities of y, (n,); each part by a transform learned from the others.

    A single part is scored by a transform that is learned from it.
    """
    y = rows.y[:, 0]
    out = np.empty(y.size)
    for part in parts:
        learn = part if len(parts) == 1 else ~part
        one = fit_transform(name, y[learn], None if rows.weight is None else rows.weight[learn])
        assert one is not None
        found = density(replace(rows, y=one.forward(y)[:, None])) + one.log_derivative(y)
        out[part] = found[part]
    return out
