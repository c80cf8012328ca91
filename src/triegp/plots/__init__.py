"""Displays of models and their predictions, with matplotlib (`pip install 'triegp[plots]'`).

Each display has constructors that compute its numbers, keeps them as plain arrays, and draws them
by `plot`, on axes that it takes and keeps as `ax_` (`docs/plots.md`).
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError("triegp.plots needs matplotlib: pip install 'triegp[plots]'")

from triegp.plots.calibration import CalibrationDisplay, PitDisplay
from triegp.plots.coverage import CoverageByFeatureDisplay, CoverageByWidthDisplay
from triegp.plots.importance import ImportanceDisplay
from triegp.plots.palette import DARK, LIGHT, Palette, use_palette
from triegp.plots.partial_effect import PartialEffectDisplay
from triegp.plots.predictive_band import PredictiveBandDisplay
from triegp.plots.residuals import ResidualDisplay
from triegp.plots.training_curve import TrainingCurveDisplay
from triegp.plots.tree import TreeDisplay
from triegp.plots.weights import WeightsDisplay

__all__ = [
    "DARK",
    "LIGHT",
    "CalibrationDisplay",
    "CoverageByFeatureDisplay",
    "CoverageByWidthDisplay",
    "ImportanceDisplay",
    "Palette",
    "PartialEffectDisplay",
    "PitDisplay",
    "PredictiveBandDisplay",
    "ResidualDisplay",
    "TrainingCurveDisplay",
    "TreeDisplay",
    "WeightsDisplay",
    "use_palette",
]
