"""How good predictions are, in numbers, and beside a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp import metrics
from triegp.plots.forecasts import binomial_band
from triegp.report.forecasts import LEVELS, Forecast, gaussian, make_forecast, share_of

Floats = npt.NDArray[np.float64]

MATTERS = 0.01  # difference of a coverage from its nominal value below which none is worth a word


@dataclass(frozen=True)
class Coverage:
    """How often the central interval of a nominal coverage contains the target.

    Attributes
    ----------
    nominal, observed : float
        Coverage that is promised, and share of the rows that are inside.
    low, high : float
        Where that share lies 19 times in 20 if the model is calibrated and rows are independent.
    width : float
        Mean width of the intervals.
    """

    nominal: float
    observed: float
    low: float
    high: float
    width: float

    @property
    def is_off(self) -> bool:
        """Whether chance does not explain the observed share, and the difference matters."""
        return is_off(self.observed, self.nominal, self.low, self.high)


@dataclass(frozen=True)
class Scores:
    """Scores of predictions, in the units of y.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    n_effective : float
        How many rows of equal weight would tell as much, see `count_rows`.
    r2 : float
        1 - mean squared error / variance of y; NaN if y is constant.
    rmse, mae : float
        Root mean squared and mean absolute error of the mean.
    nll : float
        Mean negative log density.
    crps : float
        Mean continuous ranked probability score.
    calibration_error : float
        Mean |observed - nominal| coverage.
    coverages : tuple of Coverage
        At 50, 80, 90 and 95 %.
    """

    n_rows: int
    n_effective: float
    r2: float
    rmse: float
    mae: float
    nll: float
    crps: float
    calibration_error: float
    coverages: tuple[Coverage, ...]


def score_forecast(forecast: Forecast) -> Scores:
    """Scores of a forecast; CRPS and widths are those of its sample."""
    weight, own = forecast.weight, forecast.sampled_weight()
    error = forecast.residual
    mse = share_of(error**2, weight)
    spread = share_of((forecast.y - share_of(forecast.y, weight)) ** 2, weight)
    few = forecast.y[forecast.sample]
    n_effective = count_rows(weight, forecast.n_rows)
    coverages = []
    for level in LEVELS:
        inside = share_of(forecast.inside(level), weight)
        low, high = chance_of(level, n_effective)
        width = share_of(np.diff(forecast.interval(level), axis=1)[:, 0], own)
        coverages.append(Coverage(level, inside, low, high, width))
    return Scores(
        n_rows=forecast.n_rows,
        n_effective=n_effective,
        r2=1.0 - mse / spread if spread > 0 else float("nan"),
        rmse=float(np.sqrt(mse)),
        mae=share_of(np.abs(error), weight),
        nll=-share_of(forecast.log_density, weight),
        crps=float(metrics.crps(few, forecast.few, sample_weight=own)),
        calibration_error=float(metrics.calibration_error(few, forecast.few, sample_weight=own)),
        coverages=tuple(coverages),
    )


def score_baseline(forecast: Forecast, mean: float, std: float) -> Scores:
    """Scores of a Gaussian with this mean and deviation at every row of the forecast."""
    n_rows = forecast.n_rows
    same = make_forecast(forecast.source, forecast.y, gaussian(mean, std, n_rows), forecast.weight)
    return score_forecast(same)


def count_rows(weight: Floats | None, n_rows: int) -> float:
    """Effective number of rows: (sum of weights)^2 / sum of squared weights."""
    if weight is None:
        return float(n_rows)
    scaled = weight / weight.max()
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def chance_of(nominal: float, n_rows: float) -> tuple[float, float]:
    """Where a share of n_rows rows lies 19 times in 20, if each counts with this probability."""
    low, high = binomial_band(max(1, round(n_rows)), nominal)
    return float(low), float(high)


def is_off(observed: float, nominal: float, low: float, high: float) -> bool:
    """Whether a share is outside what chance allows, and by more than a percentage point off."""
    return not low <= observed <= high and abs(observed - nominal) > MATTERS
