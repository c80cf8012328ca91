"""Mean and variance of a mixture of predictions. No sum depends on how the rows are divided."""

from __future__ import annotations

from triegp.engines.cpu.compiler import jit

MIX_ROWS = 512  # rows that are mixed at a time: what is written stays in the cache


@jit
def mix_means(weight, mean, mixed):
    """Weighted means, sum w m. weight: float64 (K,), mean: (K, m). Writes mixed, (m,). O(K m)."""
    n_members, n_rows = mean.shape
    for lo in range(0, n_rows, MIX_ROWS):
        hi = min(lo + MIX_ROWS, n_rows)
        mixed[lo:hi] = 0.0
        for k in range(n_members):
            share = weight[k]
            for i in range(lo, hi):
                mixed[i] += share * mean[k, i]


@jit
def mix_moments(weight, mean, var, noise, mixed, within, spread):
    """Weighted mean, mean variance sum w (v + noise), and spread of the means sum w (m - mean)^2.

    weight: float64 (K,). mean, var: float64 (K, m). noise: float64 (K, 1) or (K, m). Writes mixed,
    within and spread, float64 (m,). The variance of the mixture is within + spread. O(K m), without
    temporary arrays.
    """
    n_members, n_rows = mean.shape
    mix_means(weight, mean, mixed)
    for lo in range(0, n_rows, MIX_ROWS):
        hi = min(lo + MIX_ROWS, n_rows)
        within[lo:hi] = 0.0
        spread[lo:hi] = 0.0
        for k in range(n_members):
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
