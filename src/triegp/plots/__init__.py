"""Displays of models and their predictions, with matplotlib (`pip install 'triegp[plots]'`).

Each display has constructors that compute its numbers, keeps them as plain arrays, and draws them
by `plot`, on axes that it takes and keeps as `ax_` (`docs/plots.md`).
"""

from triegp.plots.calibration import CalibrationDisplay
from triegp.plots.palette import DARK, LIGHT, Palette, use_palette
from triegp.plots.pit import PitDisplay

__all__ = [
    "DARK",
    "LIGHT",
    "CalibrationDisplay",
    "Palette",
    "PitDisplay",
    "use_palette",
]
