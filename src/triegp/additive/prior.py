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
        self._start, total = start.phi, np.bincount(np.concatenate(features))
        self._weight = [1.0 / (PHI_DEVIATION**2 * total[part]) for part in features]

    def nll(self, parameters: Parameters) -> float:
        """Nll up to a constant."""
        pairs = zip(self._apart(parameters), self._weight, strict=True)
        square = sum(float(weight @ np.square(apart)) for apart, weight in pairs)
        if parameters.smooth is not None:
            square += float(np.square(_spread(parameters)).sum()) / LENGTH_DEVIATION**2
            square += _log_scale(parameters) ** 2 / SCALE_DEVIATION**2
        return 0.5 * square

    def add(self, gradient: Gradient, parameters: Parameters, share: float) -> Gradient:
        """The gradient of the likelihood of a share of the rows, plus that share of the prior's."""
        parts = zip(gradient.phi, self._apart(parameters), self._weight, strict=True)
        phi = tuple(own + share * weight * apart for own, apart, weight in parts)
        found = replace(gradient, phi=phi)
        if parameters.smooth is None or found.log_lengthscale is None:
            return found
        more = share * _spread(parameters) / LENGTH_DEVIATION**2
        larger = share * _log_scale(parameters) / SCALE_DEVIATION**2
        length = found.log_lengthscale + more
        return replace(found, log_lengthscale=length, log_smooth=found.log_smooth + larger)

    def _apart(self, parameters: Parameters) -> list[Floats]:
        """Difference of phi from the start, up to a constant per tree, which has no effect."""
        pairs = zip(parameters.phi, self._start, strict=True)
        return [phi - start - float((phi - start).mean()) for phi, start in pairs]


def _spread(parameters: Parameters) -> Floats:
    """Log lengthscales minus their mean, (p,)."""
    assert parameters.smooth is not None
    logs = np.log(parameters.smooth.lengthscale)
    return np.asarray(logs - logs.mean())


def _log_scale(parameters: Parameters) -> float:
    """Logarithm of the scale of the smooth part."""
    assert parameters.smooth is not None
    return float(np.log(parameters.smooth.scale))
