"""Mean and variance of a mixture of predictions. No sum depends on how the rows are divided."""

from __future__ import annotations

from triegp.engines.cpu.compiler import jit

MIX_ROWS = 512  # rows that are mixed at a time: what is written stays in the cache


@jit
def mix_means(weight, mean, mixed, first, last):
    """Weighted means of rows first..last, sum w m. weight: float64 (K,), mean: (K, m).

    Writes mixed, (m,), at these rows. O(K) per row.
    """
    for lo in range(first, last, MIX_ROWS):
        hi = min(lo + MIX_ROWS, last)
        for i in range(lo, hi):
            mixed[i] = 0.0
        for k in range(mean.shape[0]):
            share = weight[k]
            for i in range(lo, hi):
                mixed[i] += share * mean[k, i]


@jit
def mix_moments(weight, mean, var, noise, mixed, within, spread, first, last):
    """Weighted mean, mean variance sum w (v + noise), and spread of the means sum w (m - mean)^2.

    weight: float64 (K,). mean, var: float64 (K, m). noise: float64 (K, 1) or (K, m). Writes mixed,
    within and spread, float64 (m,), at rows first..last. The variance of the mixture is within +
    spread. O(K) per row, without temporary arrays.
    """
    mix_means(weight, mean, mixed, first, last)
    for lo in range(first, last, MIX_ROWS):
        hi = min(lo + MIX_ROWS, last)
        for i in range(lo, hi):
            within[i] = 0.0
            spread[i] = 0.0
        for k in range(mean.shape[0]):
            share = weight[k]
            for i in range(lo, hi):
                gap = mean[k, i] - mixed[i]
                spread[i] += share * (gap * gap)
            if noise.shape[1] == 1:
                same = noise[k, 0]
                for i in range(lo, hi):
                    within[i] += share * (var[k, i] + same)
            else:
                for i in range(lo, hi):
                    within[i] += share * (var[k, i] + noise[k, i])
