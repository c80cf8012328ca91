"""Scores of mixtures of Gaussians by their definitions, row by row; never optimised."""

from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.stats import norm


def components(distribution, i):
    """Weights, means and deviations of the components at one row."""
    weights = distribution.weights
    weight = weights if weights.ndim == 1 else weights[:, i]
    return weight, distribution.means[:, i], np.sqrt(distribution.variances[:, i])


def naive_nll(y, distribution):
    """Negative log of the weighted densities, (m,)."""
    return np.array(
        [-np.log(np.sum(w * norm.pdf(y[i], m, s))) for i, w, m, s in _rows(distribution)]
    )


def naive_cdf(y, distribution):
    """Weighted distribution functions, (m,)."""
    return np.array([np.sum(w * norm.cdf(y[i], m, s)) for i, w, m, s in _rows(distribution)])


def naive_crps(y, distribution):
    """E|x - y| - E|x - x'| / 2 by all pairs of components, (m,)."""

    def size(mean, sd):
        return mean * (2 * norm.cdf(mean / sd) - 1) + 2 * sd * norm.pdf(mean / sd)

    out = []
    for i, w, m, s in _rows(distribution):
        apart = size(m[:, None] - m, np.sqrt(s[:, None] ** 2 + s**2))
        out.append(w @ size(y[i] - m, s) - 0.5 * w @ apart @ w)
    return np.array(out)


def integrated_crps(y, distribution, low, high, breaks=()):
    """The integral of (F(x) - 1[x >= y])^2 from low to high, one row, by scipy's quad.

    distribution: the distribution function of x. y may lie outside.
    """
    edges = sorted({low, high, *np.clip([y, *breaks], low, high).tolist()})
    total = max(low - y, 0.0) + max(y - high, 0.0)
    for a, b in pairwise(edges):
        above = 1.0 if a >= y else 0.0

        def square(x, above=above):
            return (distribution(x) - above) ** 2

        total += quad(square, a, b, epsrel=1e-11, limit=200)[0]
    return total


def naive_quantile(level, distribution):
    """Quantiles by 100 halvings of an interval that holds them, (m,)."""
    out = []
    for _, w, m, s in _rows(distribution):
        low, high = (m - 40 * s).min(), (m + 40 * s).max()
        for _ in range(100):
            middle = 0.5 * (low + high)
            if np.sum(w * norm.cdf(middle, m, s)) < level:
                low = middle
            else:
                high = middle
        out.append(0.5 * (low + high))
    return np.array(out)


def _rows(distribution):
    return [(i, *components(distribution, i)) for i in range(distribution.n_rows)]
