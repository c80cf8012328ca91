"""Quantiles of mixtures of Gaussians on the device, one row and one probability per thread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda
from scipy.special import ndtri

from triegp.engines.cuda.card import device, kernel, launch, to_device, xp
from triegp.engines.records import Floats

LEVEL_TOLERANCE = 1e-14  # relative, of the probability of a quantile
MAX_STEPS = 3_000  # the float64 range can be halved 2,100 times
ROOT_HALF = math.sqrt(0.5)
ROOT_2PI = math.sqrt(2.0 * math.pi)


@device
def _standard(distance, sd):
    """Distance in deviations; a point mass at distance 0 is below."""
    if sd > 0.0:
        return distance / sd
    return -math.inf if distance < 0.0 else math.inf


@device
def _below(weights, means, variances, row, sign, x):
    """Probability of at most x, and the density there, of the mixture or its mirror image."""
    total, density = 0.0, 0.0
    for k in range(means.shape[0]):
        weight = weights[k, row if weights.shape[1] > 1 else 0]
        if weight > 0.0:
            sd = math.sqrt(variances[k, row])
            z = _standard(x - sign * means[k, row], sd)
            total += weight * (0.5 * math.erfc(-z * ROOT_HALF))
            if sd > 0.0:
                density += weight * math.exp(-0.5 * z * z) / sd
    return total, density / ROOT_2PI


@kernel
def _quantiles(weights, means, variances, levels, scores, out):
    """out[row, j]: the quantile of probability levels[j], (m, k).

    levels at most 0.5; scores: their standard normal quantiles, negative if they are those of the
    mirror image, which is the case if the sign of levels is.
    """
    item = cuda.grid(1)
    if item < out.size:
        row, j = item // out.shape[1], item % out.shape[1]
        sign = 1.0 if levels[j] > 0.0 else -1.0
        level = abs(levels[j])
        low, high, x = math.inf, -math.inf, 0.0
        for k in range(means.shape[0]):
            weight = weights[k, row if weights.shape[1] > 1 else 0]
            if weight > 0.0:
                own = sign * means[k, row] + scores[j] * math.sqrt(variances[k, row])
                low, high = min(low, own), max(high, own)
                x += weight * own
        x = min(max(x, low), high)
        move = high - low
        for _ in range(MAX_STEPS):
            below, density = _below(weights, means, variances, row, sign, x)
            if below > level:
                high = x
            else:
                low = x
            new = 0.5 * low + 0.5 * high
            if below > 0.0 and density > 0.0:
                step = x - math.log(below / level) * below / density
                if low <= step <= high and abs(step - x) <= 0.5 * move:
                    new = step
            if abs(below - level) <= LEVEL_TOLERANCE * level or new == x:
                break
            move = abs(new - x)
            x = new
        out[row, j] = sign * x


def quantiles(weights: Any, means: Any, variances: Any, q: Floats) -> Any:
    """Quantiles of m mixtures, (m, len(q)), by the steps of `models.distribution.quantiles`.

    weights: (K,) or (K, m); means, variances: (K, m); all on the device. q: on the host, in (0, 1).
    """
    out = xp.empty((means.shape[1], q.size))
    lower = np.minimum(q, 1.0 - q)  # by the lower tail, for accuracy
    given = (to_device(np.where(q <= 0.5, q, -lower)), to_device(ndtri(lower)))
    weights = to_device(weights.reshape(weights.shape[0], -1), np.float64)
    launch(_quantiles, out.size, weights, to_device(means), to_device(variances), *given, out)
    return out
