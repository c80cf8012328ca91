"""Grids over the values of a feature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.plots.features import Feature

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ENDS = (0.01, 0.99)  # quantiles of numbers at which a grid ends


def choose_values(feature: Feature, n_grid: int) -> Ints:
    """Rows whose values of a feature are the grid, ascending: quantiles, or frequent categories."""
    values = np.where(np.isnan(feature.values), np.inf, feature.values)  # missing ones last
    distinct, first, count = np.unique(values, return_index=True, return_counts=True)
    if feature.listed:
        kept = np.sort(np.argsort(-count, kind="stable")[:n_grid])
        return np.asarray(first[kept], np.int64)
    there = np.isfinite(distinct)
    distinct, first, count = distinct[there], first[there], count[there]
    if not distinct.size:
        raise ValueError(f"features must have values, got only missing ones in {feature.name!r}")
    if distinct.size <= n_grid:
        return np.asarray(first, np.int64)
    below = (np.cumsum(count) - 0.5 * count) / count.sum()
    levels = np.linspace(max(below[0], ENDS[0]), min(below[-1], ENDS[1]), n_grid)
    nearest = np.searchsorted(below, levels - 1e-12).clip(max=distinct.size - 1)
    return np.asarray(first[np.unique(nearest)], np.int64)


def cell_edges(grid: Floats) -> Floats:
    """Edges of cells around numbers, (g + 1,): midpoints, and the ends, beyond which is no data."""
    if grid.size == 1:
        return np.array([grid[0] - 0.5, grid[0] + 0.5])
    return np.concatenate([grid[:1], 0.5 * (grid[:-1] + grid[1:]), grid[-1:]])


def deciles_of(feature: Feature) -> Floats:
    """Deciles of a feature, (9,); empty for categories."""
    if feature.listed:
        return np.empty(0)
    return np.asarray(np.nanquantile(feature.values, np.arange(1, 10) / 10.0))
