"""All scores of a target at once, of rows that need not be in memory together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.metrics.distributions import LEVELS, crps
from triegp.metrics.forecasts import Forecast, binomial_band

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
        How many rows of equal weight would tell as much.
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
        Of the coverages of the forecasts.
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

    def coverage(self, nominal: float) -> Coverage:
        """The coverage of one nominal value."""
        return next(part for part in self.coverages if part.nominal == nominal)


class Tally:
    """Sums over the rows of one forecast or of several; means are weighted by sample weights."""

    def __init__(self) -> None:
        self._n_rows = 0
        self._weight, self._squared_weight, self._sampled_weight = 0.0, 0.0, 0.0
        self._coverages: tuple[float, ...] = ()
        self._sums: dict[str, Any] = {}
        self._mean, self._spread = 0.0, 0.0  # of y, and squared differences from it

    def add(self, forecast: Forecast) -> Tally:
        """Add rows; CRPS and widths are those of the sampled ones."""
        y, weight, sampled = forecast.y, forecast.weight, forecast.sampled_weight
        weight = np.ones(y.size) if weight is None else weight
        sampled = np.ones(forecast.sample.size) if sampled is None else sampled
        self._coverages = forecast.coverages
        intervals = np.stack([forecast.interval(nominal) for nominal in forecast.coverages], axis=1)
        sums = {
            "square": weight @ np.square(forecast.residual),
            "absolute": weight @ np.abs(forecast.residual),
            "nll": -weight @ forecast.log_density,
            "inside": forecast.weight_inside([*LEVELS, *forecast.coverages]),
            "crps": sampled @ crps(y[forecast.sample], forecast.sampled, by_row=True),
            "width": sampled @ (intervals[:, :, 1] - intervals[:, :, 0]),
        }
        self._sums = {name: self._sums.get(name, 0.0) + part for name, part in sums.items()}
        self._add_targets(y, weight)
        self._squared_weight += float(weight @ weight)
        self._sampled_weight += float(sampled.sum())
        return self

    def _add_targets(self, y: Floats, weight: Floats) -> None:
        """Mean and squared differences of all targets (Chan, Golub and LeVeque 1979)."""
        before, new, mean = self._weight, float(weight.sum()), float(np.average(y, weights=weight))
        self._spread += float(weight @ np.square(y - mean))
        self._spread += (mean - self._mean) ** 2 * before * new / (before + new)
        self._mean += (mean - self._mean) * new / (before + new)
        self._n_rows, self._weight = self._n_rows + y.size, before + new

    def scores(self) -> Scores:
        """Scores of all rows added so far."""
        sums, total = self._sums, self._weight
        n_effective = total**2 / self._squared_weight
        inside, coverages = sums["inside"] / total, []
        low, high = binomial_band(max(1, round(n_effective)), self._coverages)
        numbers = (inside[len(LEVELS) :], low, high, sums["width"] / self._sampled_weight)
        for nominal, *facts in zip(self._coverages, *map(np.ndarray.tolist, numbers), strict=True):
            coverages.append(Coverage(nominal, *facts))
        return Scores(
            n_rows=self._n_rows,
            n_effective=n_effective,
            r2=1.0 - float(sums["square"]) / self._spread if self._spread > 0 else float("nan"),
            rmse=float(np.sqrt(sums["square"] / total)),
            mae=float(sums["absolute"] / total),
            nll=float(sums["nll"] / total),
            crps=float(sums["crps"] / self._sampled_weight),
            calibration_error=float(np.mean(np.abs(inside[: len(LEVELS)] - LEVELS))),
            coverages=tuple(coverages),
        )


def is_off(observed: float, nominal: float, low: float, high: float) -> bool:
    """Whether a share is outside what chance allows, and by more than a percentage point off."""
    return not low <= observed <= high and abs(observed - nominal) > MATTERS
