"""Correlation functions of smooth kernels, by number: Matern-3/2, 5/2, 1/2 and RBF."""

from __future__ import annotations

import math

from triegp.engines.cpu.compiler import jit


@jit
def correlation(code, square):
    """rho(r) for r^2; code: 0 Matern-3/2, 1 Matern-5/2, 2 Matern-1/2, 3 RBF."""
    if code == 3:
        return math.exp(-0.5 * square)
    r = math.sqrt(square)
    if code == 2:
        return math.exp(-r)
    if code == 0:
        r *= math.sqrt(3.0)
        return (1.0 + r) * math.exp(-r)
    r *= math.sqrt(5.0)
    return (1.0 + r + r * r / 3.0) * math.exp(-r)
