"""Training a model with its calibration: cross-fitting, the model, then what residuals teach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from triegp.calibration.folds import CrossFit, cross_fit, learn_trends
from triegp.calibration.model import CalibratedModel, calibrate_repeats
from triegp.calibration.stage import learn_stage
from triegp.calibration.trend import Trend, add_trend
from triegp.models.folds import FEW_ROWS
from triegp.models.interface import Residuals, Trained, expand_residuals
from triegp.models.repeats import Observations
from triegp.models.run import Run
from triegp.tree.rows import Rows

TIME_SHARE = 0.1  # of a time budget, for what follows the training


def train_calibrated(
    train: Callable[[Any, Rows, Run], Trained],
    settings: Any,
    variants: Sequence[tuple[Any, Any]],
    rows: Rows,
    observations: Observations | None,
    run: Run,
    *,
    local: bool,
    by_var: bool,
    by_folds: bool,
    divided: bool,
) -> Trained:
    """Train one model for all targets of the rows, and calibrate it if it has residuals.

    Parameters
    ----------
    train : callable (settings, rows, run) -> Trained
        Trains a model.
    settings : record
        How to train.
    variants : sequence of pairs of records
        Settings to choose from if there are few rows, each with those of a smaller model. Empty if
        the model is not to be calibrated.
    rows : Rows
        Standardised targets, y (n, k), with their features.
    observations : Observations or None
        The rows as they were passed; None if they are the rows of the model.
    run : Run
        Random numbers, threads, clock.
    local : bool
        Whether noise by region is learned.
    by_var : bool
        Whether local noise may depend on the predicted variance.
    by_folds : bool
        Whether variances of few rows come from the models of the folds, as their means do.
        Otherwise they are the left-out variances of the model itself.
    divided : bool
        Whether weights divide the noise variance of an observation.
    """
    if observations is not None:  # None if they are the rows of the model, in another order
        observations = None if observations.plain else observations.sorted()
    repeats = observations is not None and not observations.copies and observations.repeat
    crossed = CrossFit(0, None)
    if variants and rows.n_rows < FEW_ROWS:
        crossed = cross_fit(train, [few for _, few in variants], rows, run, trend=not repeats)
        settings = variants[crossed.best][0]
    before = run
    if run.watch.limited:  # the rest of the time is for the calibration
        before = replace(run, watch=run.watch.before(TIME_SHARE * run.watch.left()))
    trained = train(settings, rows, before)
    if trained.residuals is None:
        return trained
    residuals, seen = trained.residuals, None
    if crossed.residuals is not None:
        # The best of several variants was chosen by these residuals, as Akaike's criterion counts.
        paid = 1.0 + 2.0 * len(variants) / rows.n_rows
        own = crossed.residuals if by_folds else trained.residuals
        pairs = zip(crossed.residuals, own, strict=True)
        residuals, seen = tuple(_join_residuals(*pair, paid) for pair in pairs), residuals
    trends = crossed.trends
    if not trends and variants and not repeats:
        trends = learn_trends(rows, residuals)
        residuals = tuple(map(_average_trend, residuals, trends))
    if seen is not None and trends:
        seen = tuple(map(_average_trend, seen, trends))

    def expand(part: Residuals, j: int) -> Residuals:
        if observations is None or observations.copies:
            return part
        noise = trained.fitted.noise(j) if divided else None
        return expand_residuals(part, observations, j, noise)

    stages = []
    there = replace(run, engine="cpu" if trained.fitted.on_host else "cuda")  # with the model
    for column in range(rows.n_targets):
        run.progress("calibration", column, rows.n_targets)
        stage = learn_stage(
            rows.features,
            expand(residuals[column], column),
            there,
            local=local,
            by_var=by_var,
            seen=None if seen is None else expand(seen[column], column),
        )
        stages.append(replace(stage, trend=trends[column] if trends else None))
    run.progress("calibration", rows.n_targets, rows.n_targets)
    found = CalibratedModel(trained.fitted, tuple(stages))
    if observations is not None and repeats:
        if run.watch.stop:
            run.leave_out("the calibration of repeated measurements")
        else:
            found = calibrate_repeats(found, rows.features, observations)
    return trained._replace(fitted=found)


def _join_residuals(crossed: Residuals, left_out: Residuals, paid: float) -> Residuals:
    """Cross-fitted means, with the variances of `left_out` over `paid`."""
    rows = left_out.rows
    at = np.searchsorted(crossed.rows, rows)
    weight = None if crossed.weight is None else crossed.weight[at]
    mean, y, fresh = crossed.mean[at], crossed.y[at], np.ones(rows.size, bool)
    return Residuals(rows, mean, left_out.var / paid, y, weight, fresh)


def _average_trend(residuals: Residuals, trend: Trend | None) -> Residuals:
    """Residuals of the model's mean averaged with the trend."""
    if trend is None:
        return residuals
    return replace(residuals, mean=add_trend(trend, residuals.mean, trend.left[residuals.rows]))
