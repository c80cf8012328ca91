"""Kernels of scores of mixtures of Gaussians. No sum depends on how the rows are divided."""

from __future__ import annotations

from math import erf, erfc, exp, sqrt

import numpy as np

from triegp.engines.cpu.compiler import inline, jit

SCORE_ROWS = 512  # rows at a time: what is written stays in the cache
FAR = 9.0  # deviations from 0 at which the mean size of a Gaussian is that of its mean, to rounding
ROOT_HALF = sqrt(0.5)
MEAN_SIZE = sqrt(2.0 / np.pi)  # of a standard Gaussian


@inline
def _mean_size(mean, var):
    """Mean of |x| for a Gaussian x; var may be 0."""
    size = abs(mean)
    if size * size >= FAR * FAR * var:
        return size
    sd = sqrt(var)
    u = size / sd
    return MEAN_SIZE * sd * exp(-0.5 * u * u) + size * erf(ROOT_HALF * u)


@jit
def mixture_crps(weight, mean, var, y, first, last, score):
    """E|x - y| - E|x - x'| / 2 at the rows first..last-1, for mixtures of Gaussians x, x'.

    weight: float64 (K, 1) or (K, m). mean: float64 (1, m), shared by all components, or (K, m).
    var: float64 (K, m). y: float64 (m,). Writes score, float64 (m,). O(K^2) per row; with a shared
    mean a pair of components takes one square root.
    """
    n_parts = var.shape[0]
    alone, same = weight.shape[1] == 1, mean.shape[0] == 1
    share = np.empty(SCORE_ROWS)
    for lo in range(first, last, SCORE_ROWS):
        hi = min(lo + SCORE_ROWS, last)
        score[lo:hi] = 0.0
        for k in range(n_parts):
            if alone and weight[k, 0] == 0.0:
                continue
            for i in range(lo, hi):
                own = weight[k, 0 if alone else i]
                centre = mean[0 if same else k, i]
                apart = ROOT_HALF * own * MEAN_SIZE * sqrt(var[k, i])  # of x and x' from this one
                score[i] += own * (_mean_size(y[i] - centre, var[k, i]) - apart)
            for j in range(k):
                if alone and weight[j, 0] == 0.0:
                    continue
                for i in range(lo, hi):
                    share[i - lo] = weight[k, 0 if alone else i] * weight[j, 0 if alone else i]
                if same:
                    for i in range(lo, hi):
                        score[i] -= share[i - lo] * MEAN_SIZE * sqrt(var[k, i] + var[j, i])
                else:
                    for i in range(lo, hi):
                        gap = mean[k, i] - mean[j, i]
                        score[i] -= share[i - lo] * _mean_size(gap, var[k, i] + var[j, i])


@jit
def mixture_cdf(weight, mean, sd, row, z, first, last, below):
    """Probability of at most z at some rows; several points may be at one row.

    weight: float64 (K, 1) or (K, m). mean: float64 (1, m) or (K, m). sd: float64 (K, m), > 0. row:
    int64 (p,). z: float64 (p, q). Writes below[first:last], float64 (p, q). O(K) per point.
    """
    n_parts = sd.shape[0]
    alone, same = weight.shape[1] == 1, mean.shape[0] == 1
    for p in range(first, last):
        i = row[p]
        below[p] = 0.0
        for k in range(n_parts):
            own = 0.5 * weight[k, 0 if alone else i]
            if own == 0.0:
                continue
            centre, scale = mean[0 if same else k, i], ROOT_HALF / sd[k, i]
            for q in range(z.shape[1]):
                below[p, q] += own * erfc((centre - z[p, q]) * scale)
