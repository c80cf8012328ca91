"""The continuous ranked probability score (CRPS) of predictive distributions.

For a distribution function F and an observation y it is the integral of (F(x) - 1[x >= y])^2 over
x, and also E|x - y| - E|x - x'| / 2 for independent draws x and x'. It has the units of y.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines import CpuEngine, mixture_cdf, mixture_crps
from triegp.models.distribution import PredictiveDistribution, average
from triegp.models.transformed import TransformedDistribution

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_ROWS = 1 << 13  # rows at a time, per thread
PANEL_ROWS = 1 << 11  # the same if there are panels
TOLERANCE = 1e-6  # estimated error of a panel, of the score of its row
BREAKS = (0.0, 0.5, 1.5, 4.0)  # of the first panels, in mean deviations of the components
N_NODES = 16  # of the finer rule, beside one end
MAX_HALVINGS = 40  # of a panel
COARSENESS = 16.0  # times as large may the error of the middle rule be as that of the finer one
LEAST_SD = 1e-150  # point masses are as narrow as this


def _clenshaw_curtis(n: int) -> Floats:
    """Weights of the nodes cos(pi k / n), k = 0..n, for integrals over [-1, 1]; n even."""
    k = np.arange(n + 1)
    moments = np.zeros(n + 1)
    moments[::2] = 2.0 / (1.0 - k[::2] ** 2.0)  # integrals of Chebyshev polynomials
    ends = np.where(k % n == 0, 0.5, 1.0)
    cosines = np.cos(np.pi * np.outer(k, k) / n)
    return np.asarray(2.0 / n * ends * (cosines @ (ends * moments)))


NODES: Floats = np.cos(np.pi * np.arange(N_NODES + 1) / N_NODES)
FINE = _clenshaw_curtis(N_NODES)
MIDDLE, COARSE = np.zeros((2, N_NODES + 1))
MIDDLE[::2] = _clenshaw_curtis(N_NODES // 2)  # coarser rules have every second and fourth node
COARSE[::4] = _clenshaw_curtis(N_NODES // 4)


class _Parts(NamedTuple):
    """Components as kernels take them: weight (K, 1) or (K, m), mean (1, m) or (K, m), var."""

    weight: Floats
    mean: Floats
    var: Floats


def mixture_score(mixture: PredictiveDistribution, y: Floats) -> Floats:
    """CRPS of y (m,) under mixtures of Gaussians, (m,), in closed form. O(K^2 m), on all cores.

    The mixture must lie in the host's memory.
    """
    parts, score = _parts(mixture), np.empty(y.size)
    given = np.ascontiguousarray(y, np.float64)
    CpuEngine().each(
        lambda _, block: mixture_crps(*parts, given, *block, score), _blocks(y.size, BLOCK_ROWS)
    )
    return score


def transformed_score(found: TransformedDistribution, y: Floats) -> Floats:
    """CRPS of y (m,) under a TransformedDistribution, (m,), with z limited as its moments are.

    By adaptive Clenshaw-Curtis quadrature of (F(x) - 1[x >= y])^2 with 17 nodes per panel. Panels
    are halved until the estimated error of each is below 1e-6 of the row's score. The error is then
    below 1e-5 of the score if the transform is smooth, and below 1e-4 if it has kinks. O(K) per
    node; a row takes about 200 nodes, and more with kinks. Infinite if a limit of y exceeds
    float64.
    """
    score = np.empty(y.size)

    def work(_: object, block: tuple[int, int]) -> None:
        some = slice(*block)
        score[some] = _integrate(found.select(some), y[some])

    CpuEngine().each(work, _blocks(y.size, PANEL_ROWS))
    return score


def _parts(mixture: PredictiveDistribution) -> _Parts:
    weight, mean = mixture.weights, mixture.means
    if mixture._one_mean:
        mean = mean[:1]
    given = (weight if weight.ndim == 2 else weight[:, None], mean, mixture.variances)
    return _Parts(*(np.ascontiguousarray(part, np.float64) for part in given))


def _blocks(n: int, size: int) -> list[tuple[int, int]]:
    return [(lo, min(lo + size, n)) for lo in range(0, n, size)]


def _integrate(found: TransformedDistribution, y: Floats) -> Floats:
    """CRPS at the rows of one block.

    A panel is an interval of x at one row. All panels of the block are integrated together; those
    whose two rules differ too much are halved.
    """
    base, transform = found.base, found.transform
    weight, mean, var = _parts(base)
    sd = np.maximum(np.sqrt(var), LEAST_SD)
    edges = _first_edges(found)
    low, high = edges[:, 0], edges[:, -1]
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
        beyond = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    edges = np.sort(np.column_stack([edges, np.clip(y, low, high)]), axis=1)
    lost = np.where(np.isnan(edges).any(axis=1), np.nan, np.inf)
    usable = np.isfinite(width)
    score = np.where(usable, 0.0, lost)
    row, place = np.nonzero((edges[:, 1:] > edges[:, :-1]) & usable[:, None])
    left, right = edges[row, place], edges[row, place + 1]
    above = left >= y[row]  # a panel lies on one side of y
    for turn in range(MAX_HALVINGS + 1):
        if not row.size:
            break
        half = 0.5 * (right - left)
        x = (0.5 * (left + right))[:, None] + half[:, None] * NODES
        below = np.empty(x.shape)
        mixture_cdf(weight, mean, sd, row, transform.forward(x), 0, row.size, below)
        square = np.square(below - above[:, None])
        part, error = half * (square @ FINE), half * np.abs(square @ (FINE - MIDDLE))
        # At a kink two rules may agree by chance; of three that is unlikely.
        error = np.maximum(error, half * np.abs(square @ (MIDDLE - COARSE)) / COARSENESS)
        sums = score + np.bincount(row, part, y.size)
        done = error <= TOLERANCE * (sums + beyond)[row]
        if turn == MAX_HALVINGS:
            done[:] = True
        score += np.bincount(row[done], part[done], y.size)
        go = ~done
        row, above = np.tile(row[go], 2), np.tile(above[go], 2)
        middle = 0.5 * (left[go] + right[go])
        left, right = np.append(left[go], middle), np.append(middle, right[go])
    return np.asarray(score + beyond)


def _first_edges(distribution: TransformedDistribution) -> Floats:
    """Edges of the first panels in units of y, (m, 9), rising from limit to limit."""
    base = distribution.base
    low, high = (end[:, None] for end in distribution.limits())
    middle = base.mean()[:, None]
    steps = average(base.weights, np.sqrt(base.variances))[:, None] * np.array(BREAKS[1:])
    below, above = np.maximum(middle - steps[:, ::-1], low), np.minimum(middle + steps, high)
    z = [low, below, middle, above, high]
    return distribution.transform.inverse(np.concatenate(z, axis=1))
