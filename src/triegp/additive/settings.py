"""Settings of a sum of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triegp.checks import boolean, one_of, positive_number, whole_number
from triegp.encoding.scaling import SCALINGS
from triegp.smooth.kernel import KERNELS

INITS = ("even", "random", "trained")
VARIANCES = ("nearby", "exact")
MOST_TREES = 10_000  # grids are made for all of them, however short the time budget is


@dataclass(frozen=True)
class Settings:
    """All settings of trees and a smooth part; `TrieGPRegressor` documents those users choose.

    Attributes
    ----------
    goes_on : bool
        Whether the smooth part goes on outside the training box.
    n_nearby : int
        Training rows near a row that its variance is computed from, if there are many.
    rate, tree_rate : float
        Step size of Adam for shared directions, and for the individual phi of each tree.
    """

    n_trees: int = 64
    smooth: Any = "auto"
    kernel: str = "matern32"
    init: str = "even"
    slope: float = 1.5
    scaling: str = "both"
    precision: Any = None
    max_iter: int = 80
    calibrated: bool = True
    goes_on: bool = True
    n_nearby: int = 256
    rate: float = 0.15
    tree_rate: float = 0.03


def check_settings(settings: Settings) -> Settings:
    """Return the settings; raises ValueError if one is invalid."""
    one_of("init", settings.init, INITS)
    one_of("scaling", settings.scaling, (*SCALINGS, "both"))
    if settings.smooth != "auto":
        boolean("smooth", settings.smooth)
    one_of("kernel", settings.kernel, KERNELS)
    boolean("calibrated", settings.calibrated)
    whole_number("n_trees", settings.n_trees, most=MOST_TREES)
    whole_number("max_iter", settings.max_iter, 0)
    positive_number("slope", settings.slope)
    return settings
