"""Centres of blocks of rows: the nearest centre of a row, and the rows nearest to a centre.

Centres lie with a line per input, (d, n_blocks), rows as (n, d). Both are inputs divided by their
lengthscales. The nearest centre is exact, however the centres are grouped.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.cells import make_cells
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each, thread_blocks

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

CANDIDATES = 4  # rows compared with a centre, per neighbour
BLOCKS_AT_ONCE = 64  # of a thread
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

    def fill(first: int) -> None:
        part = slice(first, first + BLOCKS_AT_ONCE)
        _nearest_places(U, starts, centres, blocks[part], limits[part], out[part])

    if k:
        run_each(fill, range(0, blocks.size, BLOCKS_AT_ONCE), n_threads)
    return out


def used_places(neighbours: Any) -> Any:
    """The used entries of one line of neighbours, which end at the first -1."""
    return neighbours[: int(np.count_nonzero(neighbours >= 0))]


@jit
def squares(points, lo, hi, centre, j, out):
    """out[c - lo] = |points[:, c] - centre[:, j]|^2 for points lo to hi of (d, m)."""
    size = hi - lo
    for c in range(size):
        out[c] = 0.0
    for k in range(points.shape[0]):
        value, line = centre[k, j], points[k, lo:hi]
        for c in range(size):
            out[c] += (line[c] - value) * (line[c] - value)


@jit
def _nearest_centres(centres, blocks, starts, means, radii, last, U, lo, hi, out):
    """The nearest centre of rows lo to hi: a group is skipped if its ball lies too far away."""
    n_groups, n_last = radii.size, last.shape[1]
    to_mean, to_centre = np.empty(n_groups), np.empty(blocks.size + n_last)
    query = np.empty((U.shape[1], 1))
    for i in range(lo, hi):
        query[:, 0] = U[i]
        squares(means, 0, n_groups, query, 0, to_mean)
        first = np.argmin(to_mean)
        least, nearest = np.inf, 0
        for turn in range(n_groups):
            g = first if turn == 0 else turn - 1 if turn <= first else turn
            reach = (math.sqrt(least) + radii[g]) * (1.0 + ROUNDING)
            if to_mean[g] > reach * reach:
                continue
            squares(centres, starts[g], starts[g + 1], query, 0, to_centre)
            for c in range(starts[g + 1] - starts[g]):
                b = blocks[starts[g] + c]
                if to_centre[c] < least or (to_centre[c] == least and b < nearest):
                    least, nearest = to_centre[c], b
        squares(last, 0, n_last, query, 0, to_centre)
        for c in range(n_last):
            if to_centre[c] < least:
                least, nearest = to_centre[c], blocks.size + c
        out[i] = nearest


@jit
def _nearest_places(U, starts, centres, blocks, limits, out):
    """See `nearest_places`."""
    k, d = out.shape[1], centres.shape[0]
    to_centre = np.empty(centres.shape[1])
    for row in range(blocks.size):
        b, limit = blocks[row], limits[row]
        if limit == 0:
            continue
        squares(centres, 0, limit, centres, b, to_centre)
        count = min(limit, max(8, (CANDIDATES * k * limit) // starts[limit] + 1))
        while True:
            least = np.partition(to_centre[:limit], count - 1)[count - 1]
            n_rows = 0
            for c in range(limit):
                if to_centre[c] <= least:
                    n_rows += starts[c + 1] - starts[c]
            if n_rows >= min(CANDIDATES * k, starts[limit]):
                break
            count = min(2 * count, limit)
        places, to_row = np.empty(n_rows, np.int32), np.zeros(n_rows)
        a = 0
        for c in range(limit):
            if to_centre[c] <= least:
                for place in range(starts[c], starts[c + 1]):
                    for j in range(d):
                        to_row[a] += (U[place, j] - centres[j, b]) ** 2
                    places[a] = place
                    a += 1
        order = np.argsort(to_row, kind="mergesort")
        for a in range(min(k, n_rows)):
            out[row, a] = places[order[a]]
