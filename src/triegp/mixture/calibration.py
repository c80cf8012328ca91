"""Weights of a mixture, and its tempering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.devices import like
from triegp.models.distribution import PredictiveDistribution, average

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """How the members are combined into a mixture.

    Only the weights are learned and stored in files.

    Attributes
    ----------
    weight : float64 (K,)
        Weights of the members, sum 1.
    shrink : float
        Factor of the difference between each member's mean and their weighted average: 1 leaves
        the means as they are, 0 replaces them by the average. 1 by default.
    scale : float
        Factor of the members' variances; 1 by default.
    outlier : float
        Probability that an observation comes from the outlier component, whose mean is the weighted
        average of the members' means; 0 by default.
    outlier_var : float
        Variance of the outlier component, in addition to the weighted average of the members'
        scaled variances; 1 by default.
    """

    weight: Floats
    shrink: float = 1.0
    scale: float = 1.0
    outlier: float = 0.0
    outlier_var: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether there are only weights."""
        return self.shrink == 1.0 and self.scale == 1.0 and self.outlier == 0.0


def temper(
    calibration: Calibration, mean: Floats, var: Floats, *, latent: bool = False
) -> PredictiveDistribution:
    """The calibrated mixture of the members' means and variances, (K, m) each, in their memory.

    The weights of the calibration lie in the same memory.

    The outlier component, if its probability is not 0, is the last one. With `latent` there is
    none.
    """
    centre = average(calibration.weight, mean)
    around = centre + calibration.shrink * (mean - centre)
    scaled = calibration.scale * var
    if latent or calibration.outlier == 0:
        return PredictiveDistribution(calibration.weight, around, scaled)
    outlier = like(np.array([calibration.outlier]), mean)
    wide = average(calibration.weight, scaled) + calibration.outlier_var
    return PredictiveDistribution(
        np.concatenate([(1.0 - calibration.outlier) * calibration.weight, outlier]),
        np.vstack([around, centre[None]]),
        np.vstack([scaled, wide[None]]),
    )
