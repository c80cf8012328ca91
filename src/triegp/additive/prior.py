"""Prior of the parameters: what few rows do not tell apart stays together.

The logarithms of the lengthscales are normal around their mean. The phi of a feature are normal
around their start, which treats all features alike; together, all trees and bits of a feature count
as one number. The logarithm of the scale of the smooth part is normal around that of the variance
of y, 1: a large scale with long lengthscales would go on in a straight line where there are no
rows. With more rows the likelihood outweighs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from triegp.additive.gradient import Gradient
from triegp.additive.start import Parameters

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LENGTH_DEVIATION = 0.5  # of log lengthscales
PHI_DEVIATION = 0.5  # of phi
SCALE_DEVIATION = 0.5  # of the log scale of the smooth part


class Prior:
    """Prior of all parameters of a forest.

    Parameters
    ----------
    start : Parameters
        The phi that features have if nothing is known of them.
    features : sequence of int64 (q,)
        For each tree, the feature of each bit.
    """

    def __init__(self, start: Parameters, features: Sequence[Ints]) -> None:
        self._start, every = np.concatenate(start.phi), np.concatenate(features)
        self._weight = 1.0 / (PHI_DEVIATION**2 * np.bincount(every)[every])
        self._sizes = [part.size for part in features]
        self._cuts = np.cumsum(self._sizes)[:-1]

    def nll(self, parameters: Parameters) -> float:
        """Nll up to a constant."""
        square = float((self._weight * np.square(self._apart(parameters))).sum())
        if parameters.smooth is not None:
            square += float(np.square(_spread(parameters)).sum()) / LENGTH_DEVIATION**2
            square += _log_scale(parameters) ** 2 / SCALE_DEVIATION**2
        return 0.5 * square

    def add(self, gradient: Gradient, parameters: Parameters, share: float) -> Gradient:
        """The gradient of the likelihood of a share of the rows, plus that share of the prior's."""
        by_phi = np.concatenate(gradient.phi) + share * self._weight * self._apart(parameters)
        found = replace(gradient, phi=tuple(np.split(by_phi, self._cuts)))
        if parameters.smooth is None or found.log_lengthscale is None:
            return found
        more = share * _spread(parameters) / LENGTH_DEVIATION**2
        larger = share * _log_scale(parameters) / SCALE_DEVIATION**2
        length = found.log_lengthscale + more
        return replace(found, log_lengthscale=length, log_smooth=found.log_smooth + larger)

    def _apart(self, parameters: Parameters) -> Floats:
        """Difference of phi from the start, up to a constant per tree, which has no effect."""
        apart = np.concatenate(parameters.phi) - self._start
        mean = np.add.reduceat(apart, np.append(0, self._cuts)) / self._sizes
        return np.asarray(apart - np.repeat(mean, self._sizes))


def _spread(parameters: Parameters) -> Floats:
    """Log lengthscales minus their mean, (p,)."""
    assert parameters.smooth is not None
    logs = np.log(parameters.smooth.lengthscale)
    return np.asarray(logs - logs.mean())


def _log_scale(parameters: Parameters) -> float:
    """Logarithm of the scale of the smooth part."""
    assert parameters.smooth is not None
    return float(np.log(parameters.smooth.scale))
