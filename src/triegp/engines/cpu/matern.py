"""Correlation functions of smooth kernels, by number: Matern-3/2, 5/2, 1/2 and RBF."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]

ROWS_PER_BLOCK = 32
MIRRORED = 8  # rows mirrored at a time: of 512 numbers each, more would evict each other from L1


def kernel_pairs(code: int, scale: float, U: Floats, n_threads: int) -> tuple[Floats, Floats]:
    """K and scale times the slopes of the correlation, both (n, n), of scaled inputs U (n, d).

    O(n^2 d) for half of the entries.
    """
    n = U.shape[0]
    values, slopes = np.empty((n, n)), np.empty((n, n))
    columns = np.ascontiguousarray(U.T)

    def fill(first: int) -> None:
        fill_pairs(code, scale, columns, first, min(first + MIRRORED, n), values, slopes)

    run_each(fill, range(0, n, MIRRORED), n_threads)
    return values, slopes


def kernel_cross(code: int, scale: float, U: Floats, V: Floats, n_threads: int) -> Floats:
    """K between scaled inputs U (n, d) and V (m, d), (n, m). O(n m d)."""
    out = np.empty((U.shape[0], V.shape[0]))
    U, lines = np.ascontiguousarray(U), np.ascontiguousarray(V.T)

    def fill(first: int) -> None:
        fill_cross(code, scale, U, lines, first, min(first + ROWS_PER_BLOCK, len(U)), len(V), out)

    run_each(fill, range(0, len(U), ROWS_PER_BLOCK), n_threads)
    return out


def kernel_triangle(code: int, scale: float, U: Floats) -> Floats:
    """K of scaled inputs U (n, d): the lower triangle, 0 above it. O(n^2 d)."""
    n = U.shape[0]
    out, U = np.zeros((n, n)), np.ascontiguousarray(U)
    fill_cross(code, scale, U, np.ascontiguousarray(U.T), 0, n, 1, out)
    return out


def kernel_means(
    code: int, scale: float, U: Floats, V: Floats, weights: Floats, n_threads: int
) -> Floats:
    """K(U, V) weights for weights (m, k), (n, k), in a fixed order. O(n m (d + k)).

    A row of the result depends on its own row of U alone, to the last bit.
    """
    out = np.empty((U.shape[0], weights.shape[1]))
    U, lines = np.ascontiguousarray(U), np.ascontiguousarray(V.T)
    columns = np.ascontiguousarray(weights.T)

    def fill(first: int) -> None:
        rows = U[first : first + ROWS_PER_BLOCK]
        values = np.empty((len(rows), len(V)))
        fill_cross(code, scale, rows, lines, 0, len(rows), len(V), values)
        for c, column in enumerate(columns):
            out[first : first + len(rows), c] = (values * column).sum(axis=1)

    run_each(fill, range(0, len(U), ROWS_PER_BLOCK), n_threads)
    return out


@inline
def value_and_slope(code, square):
    """rho(r) and -rho'(r) / r for r^2; code: 0 Matern-3/2, 1 Matern-5/2, 2 Matern-1/2, 3 RBF.

    Matern-1/2 has no slope at 0, where it is taken as 0.
    """
    r = math.sqrt(square)
    if code == 3:
        value = math.exp(-0.5 * square)
        return value, value
    if code == 2:
        value = math.exp(-r)
        return value, value / r if r > 0 else 0.0
    if code == 0:
        r *= math.sqrt(3.0)
        falling = math.exp(-r)
        return (1.0 + r) * falling, 3.0 * falling
    r *= math.sqrt(5.0)
    falling = math.exp(-r)
    return (1.0 + r + r * r / 3.0) * falling, 5.0 / 3.0 * (1.0 + r) * falling


@inline
def correlation(code, square):
    """rho(r) for r^2."""
    return value_and_slope(code, square)[0]


@jit
def fill_pairs(code, scale, columns, first, last, values, slopes):
    """Rows first to last of the lower triangles, and their mirror images.

    columns: float64 (d, n), inputs, so that distances to many rows are one loop.
    """
    square = np.empty(last)
    for i in range(first, last):
        for j in range(i + 1):
            square[j] = 0.0
        for k in range(columns.shape[0]):
            column, here = columns[k], columns[k, i]
            for j in range(i + 1):
                square[j] += (column[j] - here) * (column[j] - here)
        for j in range(i + 1):
            value, steep = value_and_slope(code, square[j])
            values[i, j], slopes[i, j] = scale * value, scale * steep
    for j in range(last):
        for i in range(max(first, j), last):
            values[j, i], slopes[j, i] = values[i, j], slopes[i, j]


@jit
def fill_cross(code, scale, U, lines, first, last, reach, out):
    """Rows first to last of K between U and V; row i of U with rows j < i + reach of V.

    lines: float64 (d, m), V with a line per input, so that distances to many rows are one loop.
    """
    for i in range(first, last):
        row = out[i, : min(i + reach, lines.shape[1])]
        for j in range(row.size):
            row[j] = 0.0
        for k in range(lines.shape[0]):
            line, here = lines[k], U[i, k]
            for j in range(row.size):
                row[j] += (line[j] - here) * (line[j] - here)
        for j in range(row.size):
            row[j] = scale * correlation(code, row[j])
