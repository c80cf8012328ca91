"""Scores of predictive distributions, quantiles and intervals, and scorers for scikit-learn.

The root mean square error and the mean absolute error are those of scikit-learn.
"""

from triegp.metrics.distributions import calibration_error, crps, nll, pit
from triegp.metrics.intervals import coverage, interval_score, pinball
from triegp.metrics.scorers import (
    CalibrationScorer,
    CrpsScorer,
    IntervalScorer,
    NllScorer,
    PinballScorer,
    calibration_scorer,
    crps_scorer,
    interval_scorer,
    nll_scorer,
    pinball_scorer,
)

__all__ = [
    "CalibrationScorer",
    "CrpsScorer",
    "IntervalScorer",
    "NllScorer",
    "PinballScorer",
    "calibration_error",
    "calibration_scorer",
    "coverage",
    "crps",
    "crps_scorer",
    "interval_score",
    "interval_scorer",
    "nll",
    "nll_scorer",
    "pinball",
    "pinball_scorer",
    "pit",
]
