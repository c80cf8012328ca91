"""Centres of blocks of rows: the nearest centre of a row, and the rows nearest to a centre.

Centres lie with a line per input, (d, n_blocks), rows as (n, d). Both are inputs divided by their
lengthscales. The nearest centre is exact, however the centres are grouped.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.cells import make_cells, squares_from
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each, thread_blocks

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

CANDIDATES = 4  # rows compared with a centre, per neighbour
GROUP_SIZE = 32  # centres of a group on average
ROUNDING = 1e-9  # of a distance, far more than its rounding error


class Groups(NamedTuple):
    """The first centres, in groups of close ones.

    Attributes
    ----------
    centres : float64 (d, n_grouped)
        Group by group.
    blocks : int32 (n_grouped,)
        Their numbers.
    starts : int64 (n_groups + 1,)
        Where each group starts.
    means : float64 (d, n_groups)
        Of the centres of each group.
    radii : float64 (n_groups,)
        Largest distance of a group's centres from their mean.
    """

    centres: Floats
    blocks: Ids
    starts: Ints
    means: Floats
    radii: Floats


def find_centres(U: Floats, starts: Ints) -> Floats:
    """Mean of the scaled inputs (n, d) of each block, (d, n_blocks)."""
    total = np.add.reduceat(U, starts[:-1], axis=0)
    return np.ascontiguousarray((total / np.diff(starts)[:, None]).T)


def group_centres(centres: Floats, n_threads: int) -> Groups:
    """All centres (d, n_blocks) in groups. O(n_blocks^1.5 d)."""
    by_block = np.ascontiguousarray(centres.T)
    clustered = make_cells(by_block, -(-len(by_block) // GROUP_SIZE), n_threads)
    starts = np.unique(clustered.starts)  # without empty groups
    grouped, sizes = by_block[clustered.rows], np.diff(starts)
    means = np.add.reduceat(grouped, starts[:-1], axis=0) / sizes[:, None]
    reach = np.linalg.norm(grouped - np.repeat(means, sizes, axis=0), axis=1)
    lines = (np.ascontiguousarray(part.T) for part in (grouped, means))
    radii = np.maximum.reduceat(reach, starts[:-1])
    return Groups(next(lines), clustered.rows, starts, next(lines), radii)


def nearest_centres(centres: Floats, groups: Groups, U: Floats, n_threads: int) -> Ids:
    """The nearest of the centres (d, n_blocks) to each row of U (m, d), int32 (m,).

    Of equally near centres the first. The centres that follow those in the groups are compared one
    by one, and so are the centres of groups that may be near enough.
    """
    out = np.empty(U.shape[0], np.int32)
    last = np.ascontiguousarray(centres[:, groups.blocks.size :])
    parts = thread_blocks(out.size)
    run_each(lambda part: _nearest_centres(*groups, last, U, *part, out), parts, n_threads)
    return out


def nearest_places(
    U: Floats, starts: Ints, centres: Floats, blocks: Ints, limits: Ints, k: int, n_threads: int
) -> Ids:
    """The k places nearest to the centre of each of the blocks (m,), nearest first, int32 (m, k).

    limits: int64 (m,), only blocks before these are searched. Missing places are -1. Rows of the
    nearest blocks are compared: of as many as hold four times k rows.
    """
    out = np.full((blocks.size, k), -1, np.int32)

    def fill(row: int) -> None:
        limit = int(limits[row])
        if k and limit:
            before = (starts[: limit + 1], centres[:, :limit])
            places = _nearest(U, *before, centres[:, blocks[row]], k)
            out[row, : places.size] = places

    run_each(fill, range(blocks.size), n_threads)
    return out


def _nearest(U: Floats, starts: Ints, centres: Floats, centre: Floats, k: int) -> Ids:
    """The k places of blocks with these centres that are nearest to one centre (d,)."""
    to_centre, sizes = squares_from(centre, centres), np.diff(starts)
    wanted = CANDIDATES * k
    count = min(sizes.size, max(8, wanted * sizes.size // int(starts[-1]) + 1))
    while True:
        near = np.flatnonzero(to_centre <= np.partition(to_centre, count - 1)[count - 1])
        if sizes[near].sum() >= min(wanted, starts[-1]):
            break
        count = min(2 * count, sizes.size)
    places = np.concatenate([np.arange(starts[c], starts[c + 1], dtype=np.int32) for c in near])
    return places[np.argsort(squares_from(centre, U[places].T), kind="stable")[:k]]


def used_places(neighbours: Any) -> Any:
    """The used entries of one line of neighbours, which end at the first -1."""
    return neighbours[: int(np.count_nonzero(neighbours >= 0))]


@jit
def squares(points, lo, hi, point, out):
    """Squared distances between points lo to hi of (d, m) and a point (d,), to out."""
    size = hi - lo
    for c in range(size):
        out[c] = 0.0
    for k in range(points.shape[0]):
        value, line = point[k], points[k, lo:hi]
        for c in range(size):
            out[c] += (line[c] - value) * (line[c] - value)


@jit
def _nearest_centres(centres, blocks, starts, means, radii, last, U, lo, hi, out):
    """The nearest centre of rows lo to hi: a group is skipped if its ball lies too far away."""
    n_groups, n_last = radii.size, last.shape[1]
    to_mean, to_centre = np.empty(n_groups), np.empty(blocks.size + n_last)
    zero = np.int64(0)  # as a literal it would compile `squares` again
    for i in range(lo, hi):
        squares(means, zero, n_groups, U[i], to_mean)
        first = 0
        for g in range(1, n_groups):
            if to_mean[g] < to_mean[first]:
                first = g
        least, nearest = np.inf, 0
        for turn in range(n_groups):
            g = first if turn == 0 else turn - 1 if turn <= first else turn
            reach = (math.sqrt(least) + radii[g]) * (1.0 + ROUNDING)
            if to_mean[g] > reach * reach:
                continue
            squares(centres, starts[g], starts[g + 1], U[i], to_centre)
            for c in range(starts[g + 1] - starts[g]):
                b = blocks[starts[g] + c]
                if to_centre[c] < least or (to_centre[c] == least and b < nearest):
                    least, nearest = to_centre[c], b
        squares(last, zero, n_last, U[i], to_centre)
        for c in range(n_last):
            if to_centre[c] < least:
                least, nearest = to_centre[c], blocks.size + c
        out[i] = nearest
