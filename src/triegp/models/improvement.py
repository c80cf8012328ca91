"""Expected improvement: by how much an uncertain value is expected to exceed a known one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr

Floats = npt.NDArray[np.float64]

ROOT_2PI = float(np.sqrt(2.0 * np.pi))
SERIES = 1e4  # deviations below the best value from which 1 / u^2 is exact


def log_improvement(mean: Floats, std: Floats, best: float) -> Floats:
    """Log expected improvement of single rows, (m,): log std + log(phi(u) + u Phi(u))."""
    deviation = np.maximum(std, 1e-300)
    u = (mean - best) / deviation
    near = np.maximum(u, -1.0)
    found = np.log(np.exp(-0.5 * near * near) / ROOT_2PI + near * ndtr(near))
    far = -np.minimum(u, -1.0)  # there phi(u) and u Phi(u) cancel
    left = 1.0 - np.sqrt(0.5 * np.pi) * far * erfcx(far / np.sqrt(2.0))
    left = np.where(far < SERIES, left, far**-2.0)
    below = -0.5 * far * far - np.log(ROOT_2PI) + np.log(np.maximum(left, 1e-300))
    return np.asarray(np.where(u > -1.0, found, below) + np.log(deviation))
