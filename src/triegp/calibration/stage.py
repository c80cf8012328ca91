"""What calibration learns for one target, and how it is learned from residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.calibration.local import FEWEST_ROWS, LocalNoise, learn_local
from triegp.calibration.tails import GAUSSIAN, Tails, learn_tails, log_densities
from triegp.calibration.trend import Trend
from triegp.models.interface import Residuals
from triegp.models.run import Run

Floats = npt.NDArray[np.float64]

SLOPES = np.arange(0.0, 3.01, 0.25)  # of the local logarithms, which regress to the mean
SLOPE_ROWS = 5_000  # rows from which the slope is chosen
CONSTANT = 1e-6  # standardised targets that are all smaller are constant
FEWEST_REPEATS = 30  # repeated observations, for a calibration of their own
LEAST_GAIN = 3.0  # nats in all, for local noise to be used


@dataclass(frozen=True, eq=False)
class Repeats:
    """Calibration of observations at inputs that were observed before, without local noise.

    Learned only if observations at the same input differ. Whoever repeats an input may repeat its
    target more often, or more closely, than the noise elsewhere says.

    Attributes
    ----------
    scale : float
        Factor of variances, as in `Stage`.
    tails : Tails
        Distribution of standardised residuals.
    """

    scale: float
    tails: Tails


@dataclass(frozen=True, eq=False)
class Stage:
    """Calibration of one target.

    An observation at x has the predicted mean and variance v(x) scale exp(slope g(x)), with g the
    local logarithm, and tails around that.

    Attributes
    ----------
    scale : float
        Factor of all variances.
    tails : Tails
        Distribution of standardised residuals.
    local : LocalNoise or None
        The mixture that predicts g; None if noise is the same everywhere.
    slope : float
        Factor of g; 0 without `local`.
    logs : float64 (n,)
        g at each row of the model, without the row itself; zeros without `local`.
    repeats : Repeats or None
        Other scale and tails for new observations at training inputs; None if they are as anywhere.
    trend : Trend or None
        A line that is averaged with the mean of the model; None if there are many rows.
    """

    scale: float
    tails: Tails
    local: LocalNoise | None
    slope: float
    logs: Floats
    repeats: Repeats | None = None
    trend: Trend | None = None


def learn_repeats(stage: Stage, residuals: Residuals) -> tuple[Stage, float]:
    """The stage with a calibration of repeated observations, and their log density under it.

    residuals: each predicted from all other observations, those at its own input included. Nothing
    is learned from fewer than 30; the log density is then 0.
    """
    if residuals.rows.size < FEWEST_REPEATS:
        return stage, 0.0
    shift = np.log(residuals.var)
    spread = (residuals.y - residuals.mean) * np.exp(-0.5 * shift)
    scale = _scale(spread, residuals.weight)
    tails = learn_tails(spread / np.sqrt(scale), residuals.weight)
    density = log_densities(tails, spread / np.sqrt(scale)) - 0.5 * (shift + np.log(scale))
    found = replace(stage, repeats=Repeats(scale, tails))
    return found, float(np.average(density, weights=residuals.weight))


def learn_stage(
    X: npt.NDArray[np.floating],
    residuals: Residuals,
    run: Run,
    *,
    local: bool = True,
    by_var: bool,
) -> Stage:
    """Learn scale, tails and, if wanted, local noise from residuals.

    Parameters
    ----------
    X : float (n, d)
        Features of the model's rows.
    residuals : Residuals
        Predictions of some of the rows without themselves.
    run : Run
        Random numbers and threads for the local noise.
    local : bool, default=True
        Whether local noise is learned.
    by_var : bool
        Whether the local noise may depend on the predicted variance.
    """
    logs = np.zeros(X.shape[0])
    found, slope = None, 0.0
    rows, y, mean, var = residuals.rows, residuals.y, residuals.mean, residuals.var
    if not np.any(np.abs(y) > CONSTANT):  # the deviation of y is all that is known
        return Stage(1.0 / float(var.mean()), GAUSSIAN, None, 0.0, logs)
    score = (y - mean) / np.sqrt(var)
    use = residuals.fresh if residuals.fresh.any() else np.ones(rows.size, bool)
    weight = None if residuals.weight is None else residuals.weight[use]
    if local and rows.size >= FEWEST_ROWS and run.watch.stop:
        run.leave_out("local noise")
    elif local and rows.size >= FEWEST_ROWS:
        found, own = learn_local(X[rows], mean, var, y, run, by_var=by_var)
        slope = _choose_slope(score[use], own[use], weight)
        if slope == 0.0:
            found = None
        else:
            logs = np.bincount(rows, own, logs.size) / np.maximum(
                np.bincount(rows, minlength=logs.size), 1
            )
    spread = score[use] * np.exp(-0.5 * slope * logs[rows][use])
    scale = _scale(spread, weight)
    tails = learn_tails(spread / np.sqrt(scale), weight) if spread.size > 1 else GAUSSIAN
    return Stage(scale, tails, found, slope, logs)


def learn_again(stage: Stage, residuals: Residuals) -> Stage:
    """The stage with scale and tails learned from the fresh residuals; local noise stays.

    Fresh rows were not used to train the parameters, so there is no optimism to correct.
    """
    use, rows = residuals.fresh, residuals.rows
    score = (residuals.y - residuals.mean)[use] / np.sqrt(residuals.var[use])
    weight = None if residuals.weight is None else residuals.weight[use]
    spread = score * np.exp(-0.5 * stage.slope * stage.logs[rows[use]])
    scale = _scale(spread, weight)
    return replace(stage, scale=scale, tails=learn_tails(spread / np.sqrt(scale), weight))


def _choose_slope(score: Floats, logs: Floats, weight: Floats | None) -> float:
    """The slope of highest density, with its own scale and tails; 0 unless it gains 3 nats."""
    some = np.linspace(0, score.size - 1, min(score.size, SLOPE_ROWS)).astype(np.int64)
    count = None if weight is None else weight[some]
    found = []
    for slope in SLOPES.tolist():
        shift = slope * logs[some]
        spread = score[some] * np.exp(-0.5 * shift)
        scale = _scale(spread, count)
        density = log_densities(
            learn_tails(spread / np.sqrt(scale), count), spread / np.sqrt(scale)
        )
        density -= 0.5 * (shift + np.log(scale))
        found.append((float(np.average(density, weights=count)) * some.size, slope))
    best, slope = max(found)
    return slope if best > found[0][0] + LEAST_GAIN else 0.0


def _scale(score: Floats, weight: Floats | None) -> float:
    """Squared scale of residuals, by their median size: that of a Gaussian with this median."""
    size = np.abs(score)
    order = np.argsort(size)
    count = np.ones(size.size) if weight is None else weight
    total = np.cumsum(count[order])
    half = (0.5 - 1e-9) * total[-1]  # a tie does not hang on rounding errors of fractional weights
    median = float(size[order[np.searchsorted(total, half)]])
    square = (median / 0.6744897501960817) ** 2
    return square if square > 1e-12 else 1.0
