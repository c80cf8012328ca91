"""Cross-fitting for few rows: predictions of rows that the parameters have not seen.

Parameters that saw a row predict it too well, even if the row itself is left out. With many rows
per parameter that is negligible. With few rows, some small models are trained on a part of the rows
each and asked about the rest. Calibration then learns from these predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.calibration.trend import Trend, add_trend, choose_share, fit_line
from triegp.models.folds import FEW_ROWS, find_folds
from triegp.models.interface import Residuals, Trained
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Variant = TypeVar("Variant")

TIME_SHARE = 0.4  # of a time budget
TREND_ROWS = 5_000  # from this many rows on, there is no trend
FEWEST_ROWS = 6  # with fewer, a fold is too small to train on
LARGEST_SQUARE = 25.0  # of a standardised residual: one outlier must not decide


class CrossFit(NamedTuple):
    """The variant that predicts held-out rows best, and its predictions of them.

    residuals: one per target; None if nothing was cross-fitted. trends: one per target, which the
    means of the residuals include.
    """

    best: int
    residuals: tuple[Residuals, ...] | None
    trends: tuple[Trend | None, ...] = ()


def cross_fit(
    train: Callable[[Variant, Rows, Run], Trained],
    variants: Sequence[Variant],
    rows: Rows,
    run: Run,
    *,
    trend: bool = True,
) -> CrossFit:
    """Train every variant on three quarters of the rows, four times, and predict the rest.

    Parameters
    ----------
    train : callable (variant, rows, run) -> Trained
        Trains a model.
    variants : sequence
        Settings to choose from.
    rows : Rows
        Standardised targets, y (n, k), with their features.
    run : Run
        Random numbers, threads and clock. If a time budget is set, two fifths of it are for this.
        If that does not suffice, the first variant is chosen and there are no residuals.
    trend : bool, default=True
        Whether there may be a trend. Where measurements repeat, it would be of no use: they say
        what the mean is at their input.
    """
    nothing = CrossFit(0, None)
    if not FEWEST_ROWS <= rows.n_rows < FEW_ROWS:
        return nothing
    run = replace(run, rng=run.rng.spawn(1)[0])  # what follows does not depend on the variants
    parts = find_folds(rows.n_rows)
    watch = run.watch.within(TIME_SHARE * run.watch.left()) if run.watch.limited else run.watch
    found = []
    done, total = 0, len(variants) * len(parts)
    for variant in variants:
        mean, var = np.empty((2, rows.n_targets, rows.n_rows))
        for part in parts:
            rest = np.setdiff1d(np.arange(rows.n_rows), part)
            quiet = replace(run, watch=watch, progress=silent, engine="cpu", left_out=[])
            trained = train(variant, rows.select(rest), quiet)
            if trained.stopped or quiet.left_out or watch.stop:
                run.leave_out("cross-fitting")
                return nothing
            fitted = trained.fitted
            done += 1
            run.progress("cross-fitting", done, total)
            points = fitted.read(rows.features[part], var=True)
            for j in range(rows.n_targets):
                told = fitted.predict(points, j, var=True, latent=False)
                mean[j, part], var[j, part] = told.mean(), told.var()
                known = rows.target(j).known_noise
                if known is not None:
                    var[j, part] += known[part]
        found.append((mean, var))
    best = int(np.argmin([_loss(rows.y.T - mean, var) for mean, var in found]))
    every, fresh = np.arange(rows.n_rows), np.ones(rows.n_rows, bool)
    trends, residuals = [], []
    for y, mean, var in zip(rows.y.T, *found[best], strict=True):
        line = _learn_trend(rows, y, mean, var, parts, every) if trend else None
        both = add_trend(line, mean, None if line is None else line.left)
        residuals.append(Residuals(every, both, var, y, rows.weight, fresh))
        trends.append(line)
    return CrossFit(best, tuple(residuals), tuple(trends))


def learn_trends(rows: Rows, residuals: Sequence[Residuals]) -> tuple[Trend | None, ...]:
    """The trend of each target, its share learned from rows held out of training; None without.

    For 1,000 to 5,000 rows, of which some are held out. With fewer, `cross_fit` learns it.
    """
    if not FEW_ROWS <= rows.n_rows < TREND_ROWS:
        return (None,) * len(residuals)
    parts, found = find_folds(rows.n_rows), []
    for y, part in zip(rows.y.T, residuals, strict=True):
        use = part.fresh
        given = (part.mean[use], part.var[use], parts, part.rows[use])
        found.append(_learn_trend(rows, y, *given) if use.any() else None)
    return tuple(found)


def _learn_trend(
    rows: Rows, y: Floats, mean: Floats, var: Floats, parts: Sequence[Ints], some: Ints
) -> Trend | None:
    """The trend of one target; None if it does not help. mean, var: of the held-out rows `some`."""
    X, weight = np.ascontiguousarray(rows.features, np.float64), rows.weight
    left = np.empty(y.size)
    for part in parts:
        rest = np.setdiff1d(np.arange(y.size), part)
        slope, level = fit_line(X[rest], y[rest], None if weight is None else weight[rest])
        left[part] = X[part] @ slope + level
    share = choose_share(y[some], mean, left[some], var)
    if share == 0.0:
        return None
    slope, level = fit_line(X, y, weight)
    return Trend(share, X.min(axis=0), X.max(axis=0), slope, level, left)


def _loss(error: Floats, var: Floats) -> float:
    """Twice the nll of Gaussians, each target at its best scale, up to a constant; (k, n) each."""
    square = np.minimum(np.square(error) / var, LARGEST_SQUARE).mean(axis=1)
    return float((np.log(var).mean(axis=1) + np.log(np.maximum(square, 1e-12))).sum())
