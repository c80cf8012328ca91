"""What methods predict, and how it is scored: mixtures of Gaussians, or quantiles.

Scores are on the standardised target: divided by the training deviation where they have units.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr

COVERAGES = (50, 90, 99)  # per cent
TAILS = tuple(sorted({t for c in COVERAGES for t in ((100 - c) / 200, (100 + c) / 200)}))
LEVELS = tuple(sorted({*TAILS, *np.round(np.arange(0.05, 1.0, 0.05), 3).tolist()}))
BLOCK_ROWS = 20_000
FIFTHS = 5
FIFTHS_COVERAGE = 90  # per cent


@dataclass(frozen=True)
class Gaussians:
    """K Gaussians at each of m rows: weight (K,), mean and sd (K, m); K = 1 is a Gaussian."""

    weight: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True)
class Quantiles:
    """Quantiles at each of m rows: levels (L,) rising, values (m, L), and a mean (m,)."""

    levels: np.ndarray
    values: np.ndarray
    mean: np.ndarray


def gaussian(mean, sd):
    """One Gaussian per row; sd may be one number."""
    mean = np.asarray(mean, np.float64)
    return Gaussians(np.ones(1), mean[None], np.broadcast_to(sd, mean.shape)[None])


def score(predicted, y, unit):
    """Scores of a prediction of y (m,), in units of `unit` (the training deviation)."""
    work = _score_gaussians if isinstance(predicted, Gaussians) else _score_quantiles
    error = np.square(central(predicted) - y).mean()
    return {"rmse": float(np.sqrt(error) / unit), **work(predicted, y, unit)}


def central(predicted):
    """Means, (m,)."""
    if isinstance(predicted, Gaussians):
        return average(predicted.weight, predicted.mean)
    return predicted.mean


def deviation(predicted):
    """Standard deviations of a mixture of Gaussians, (m,)."""
    spread = predicted.sd**2 + (predicted.mean - central(predicted)) ** 2
    return np.sqrt(average(predicted.weight, spread))


def _score_gaussians(predicted, y, unit):
    nll, crps, ends, sd = [], [], [], []
    for start in range(0, y.size, BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        weight = predicted.weight if predicted.weight.ndim == 1 else predicted.weight[:, rows]
        part = Gaussians(weight, predicted.mean[:, rows], predicted.sd[:, rows])
        nll.append(-_log_density(part, y[rows]))
        crps.append(_crps(part, y[rows]))
        ends.append(_tails(part))
        sd.append(deviation(part))
    ends, sd = np.concatenate(ends), np.concatenate(sd)
    return {
        "nll": float(np.concatenate(nll).mean() - np.log(unit)),
        "crps": float(np.concatenate(crps).mean() / unit),
        **_intervals(TAILS, ends, y, unit),
        "fifths": _fifths(_inside(TAILS, ends, y, FIFTHS_COVERAGE), sd),
    }


def _log_density(predicted, y):
    z = (y - predicted.mean) / predicted.sd
    parts = -0.5 * z**2 - np.log(predicted.sd) - 0.5 * np.log(2 * np.pi)
    weight = predicted.weight.reshape(predicted.mean.shape[0], -1)
    return logsumexp(parts + np.log(np.maximum(weight, 1e-300)), axis=0)


def _crps(predicted, y):
    """E|x - y| - E|x - x'| / 2 for a mixture of Gaussians, in closed form."""

    def mean_size(mu, sd):
        z = mu / sd
        return 2 * sd * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) + mu * (2 * ndtr(z) - 1)

    w = predicted.weight
    out = average(w, mean_size(y - predicted.mean, predicted.sd))
    for k in range(w.shape[0]):
        both = np.sqrt(predicted.sd**2 + predicted.sd[k] ** 2)
        out -= 0.5 * w[k] * average(w, mean_size(predicted.mean - predicted.mean[k], both))
    return out


def average(weight, values):
    """Weighted sum over the components, (m,); weight (K,) or (K, m), values (K, m)."""
    return weight @ values if weight.ndim == 1 else np.einsum("km,km->m", weight, values)


def _tails(predicted):
    """Quantiles at TAILS, (m, len(TAILS)), by bisection of the mixture's distribution function."""
    out = np.empty((predicted.mean.shape[1], len(TAILS)))
    reach = 12 * predicted.sd
    for j, level in enumerate(TAILS):
        low, high = (predicted.mean - reach).min(axis=0), (predicted.mean + reach).max(axis=0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = average(predicted.weight, ndtr((middle - predicted.mean) / predicted.sd))
            low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
        out[:, j] = 0.5 * (low + high)
    return out


def _score_quantiles(predicted, y, unit):
    """No density, so no nll; the CRPS is twice the mean pinball loss, over the levels there are."""
    values = np.sort(predicted.values, axis=1)
    above = y[:, None] - values
    pinball = np.maximum(predicted.levels * above, (predicted.levels - 1) * above)
    # The integral over levels by the trapezoid rule; beyond the outermost levels by their values.
    edges = np.concatenate([[0.0], 0.5 * (predicted.levels[1:] + predicted.levels[:-1]), [1.0]])
    crps = 2 * pinball @ np.diff(edges)
    where = np.searchsorted(predicted.levels, np.array(TAILS) - 1e-9)
    return {
        "nll": None,
        "crps": float(crps.mean() / unit),
        **_intervals(TAILS, values[:, where], y, unit),
    }


def _intervals(tails, ends, y, unit):
    """Coverage and mean width of the central intervals."""
    coverage, width = {}, {}
    for c in COVERAGES:
        low, high = _ends(tails, ends, c)
        coverage[str(c)] = float(np.mean(_inside(tails, ends, y, c)))
        width[str(c)] = float((high - low).mean() / unit)
    return {"coverage": coverage, "width": width}


def _ends(tails, ends, c):
    """Lower and upper ends of the c % intervals."""
    return ends[:, tails.index((100 - c) / 200)], ends[:, tails.index((100 + c) / 200)]


def _inside(tails, ends, y, c):
    """Which y lie in the c % interval, bool (m,)."""
    low, high = _ends(tails, ends, c)
    return (low <= y) & (y <= high)


def _fifths(inside, sd):
    """Share inside by fifth of the predicted deviation, from the smallest; None if too few rows."""
    if sd.size < FIFTHS:
        return None
    groups = np.array_split(np.argsort(sd, kind="stable"), FIFTHS)
    return [float(inside[rows].mean()) for rows in groups]
