"""Training a model with its calibration: cross-fitting, the model, then what residuals teach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from triegp.calibration.folds import MOST_ROWS, CrossFit, cross_fit
from triegp.calibration.model import CalibratedModel, calibrate_repeats
from triegp.calibration.stage import learn_stage
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
    by_var: bool,
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
    by_var : bool
        Whether local noise may depend on the predicted variance.
    divided : bool
        Whether weights divide the noise variance of an observation.
    """
    repeats = observations is not None and not observations.copies and observations.repeat
    crossed = CrossFit(0, None)
    if variants and rows.n_rows < MOST_ROWS:
        crossed = cross_fit(train, [few for _, few in variants], rows, run, trend=not repeats)
        settings = variants[crossed.best][0]
    before = run
    if run.watch.limited:  # the rest of the time is for the calibration
        before = replace(run, watch=run.watch.before(TIME_SHARE * run.watch.left()))
    trained = train(settings, rows, before)
    if trained.residuals is None:
        return trained
    residuals: tuple[Residuals, ...] = crossed.residuals or trained.residuals
    if observations is not None and not observations.copies:
        residuals = tuple(
            expand_residuals(part, observations, j, trained.fitted.noise(j) if divided else None)
            for j, part in enumerate(residuals)
        )
    stages = []
    for column in range(rows.n_targets):
        run.progress("calibration", column, rows.n_targets)
        stage = learn_stage(rows.features, residuals[column], run, by_var=by_var)
        stages.append(replace(stage, trend=crossed.trends[column] if crossed.trends else None))
    run.progress("calibration", rows.n_targets, rows.n_targets)
    found = CalibratedModel(trained.fitted, tuple(stages))
    if observations is not None and repeats and not run.watch.stop:
        found = calibrate_repeats(found, rows.features, observations)
    return trained._replace(fitted=found)
