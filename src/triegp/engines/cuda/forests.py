"""Many trees over the same rows: products and quadratic forms, all trees of a batch at once.

The trees are the members of one batch. A block holds a tile of one tree and WIDE columns in shared
memory. It sums them up, and on the way down it adds the contribution of each node to the items
below. The trees' results for a row are written tree by tree and then added in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda, float64, int32

from triegp.engines.cuda.card import (
    THREADS,
    TILE,
    Kernel,
    current_device,
    device,
    kernel,
    launch,
    to_host,
    xp,
)
from triegp.engines.cuda.groves import Grove, groves
from triegp.engines.cuda.lines import add_by_level, add_lines_up, block_sum
from triegp.engines.cuda.plan import Stage, last_turn
from triegp.engines.records import Floats, Tree

WIDE = 4  # columns per block
ROOM = TILE * WIDE


@device
def _sum_tile(lo, count, n_turns, columns, partner, n_levels, rank, sums, left, turns, top, low):
    """Sum over the runs of a tile, in place; node p keeps the two sums that met there.

    sums, left: (WIDE * count,), one column after another. After the merge left[p] is the sum from
    the left and sums[p] the sum from the right. turns: the items' rounds. top: depth of the top of
    each run. low[p]: depth of the top of the left run of node p.
    """
    for turn in range(1, n_turns + 1):
        for p in range(cuda.threadIdx.x, count, THREADS):
            if turns[p] == turn:
                x = partner[lo + p]
                for j in range(WIDE):
                    if j < columns:
                        here = sums[j * count + x]
                        left[j * count + p] = here
                        sums[j * count + x] = here + sums[j * count + p]
                low[p] = top[x]
                top[x] = min(rank[lo + p], n_levels)
        cuda.syncthreads()


@device
def _load_tile(
    lo, count, first_column, columns, row_idx, given, depth, step, n_levels, sums, turns, top
):  # fmt: skip
    """Load the values of a tile's items: rows of `given`, by row_idx if the items are leaves."""
    for p in range(cuda.threadIdx.x, count, THREADS):
        row = row_idx[lo + p] if row_idx.size > 1 else lo + p
        for j in range(WIDE):
            if j < columns:
                sums[j * count + p] = given[row, first_column + j]
        turns[p] = step[lo + p]
        top[p] = n_levels if depth.size == 1 else depth[lo + p]
    cuda.syncthreads()


@device
def _go_up(
    lo, count, group, n_levels, rank, depth, partner, step, row_idx, given, next_sums,
    sums, left, turns, top, low,
):  # fmt: skip
    """Sum up a tile and write the sums of the runs that stay open to next_sums."""
    first_column = group * WIDE
    columns = min(WIDE, given.shape[1] - first_column)
    _load_tile(
        lo, count, first_column, columns, row_idx, given, depth, step, n_levels, sums, turns, top
    )  # fmt: skip
    last = cuda.shared.array(1, int32)
    n_turns = last_turn(turns, count, last)
    _sum_tile(
        lo, count, n_turns, columns, partner, n_levels, rank, sums, left, turns, top, low
    )  # fmt: skip
    for p in range(cuda.threadIdx.x, count, THREADS):
        if turns[p] == 0:
            for j in range(columns):
                next_sums[-1 - partner[lo + p], first_column + j] = sums[j * count + p]


@device
def _go_down(
    lo, count, b, group, n_levels, levels, rank, depth, partner, step, row_idx, given,
    next_values, n_rows, out, sums, left, turns, top, low,
):  # fmt: skip
    """Value of each item: sum of edge variance * sum below, over all edges from the root to it."""
    t = cuda.threadIdx.x
    first_column = group * WIDE
    columns = min(WIDE, given.shape[1] - first_column)
    _load_tile(
        lo, count, first_column, columns, row_idx, given, depth, step, n_levels, sums, turns, top
    )  # fmt: skip
    last = cuda.shared.array(1, int32)
    n_turns = last_turn(turns, count, last)
    _sum_tile(
        lo, count, n_turns, columns, partner, n_levels, rank, sums, left, turns, top, low
    )  # fmt: skip
    for p in range(t, count, THREADS):
        if turns[p] == 0:
            for j in range(columns):
                sums[j * count + p] = next_values[-1 - partner[lo + p], first_column + j]
    cuda.syncthreads()
    for turn in range(n_turns, 0, -1):
        for p in range(t, count, THREADS):
            if turns[p] == turn:
                x = partner[lo + p]
                at = levels[b, min(rank[lo + p], n_levels)]
                to_left, to_right = at - levels[b, low[p]], at - levels[b, top[p]]
                for j in range(WIDE):
                    if j < columns:
                        above = sums[j * count + x]
                        sums[j * count + x] = above + to_left * left[j * count + p]
                        sums[j * count + p] = above + to_right * sums[j * count + p]
        cuda.syncthreads()
    for p in range(t, count, THREADS):
        to = b * n_rows + row_idx[lo + p] if row_idx.size > 1 else lo + p
        for j in range(columns):
            out[to, first_column + j] = sums[j * count + p]


@cache
def _up(long: bool) -> Kernel:
    """The kernel of a stage on the way up: sums of the runs that stay open.

    given: (n, k), read by row_idx, or (n_items, k) if row_idx is of size 1. long: whether tiles may
    exceed TILE items and are summed in global memory, `room` (see `_room`). Otherwise they are
    summed in shared memory and `room` is empty.
    """

    @kernel
    def up(
        n_groups, first, rank, depth, partner, step, n_levels, row_idx, given, next_sums, room
    ):  # fmt: skip
        tile, group = cuda.blockIdx.x // n_groups, cuda.blockIdx.x % n_groups
        lo, hi = first[tile], first[tile + 1]
        if long:
            start, stop = lo * WIDE, hi * WIDE
            sums, left = room[0][group, start:stop], room[1][group, start:stop]
            turns, top, low = room[2][group, lo:hi], room[3][group, lo:hi], room[4][group, lo:hi]
        else:
            sums = cuda.shared.array(ROOM, float64)
            left = cuda.shared.array(ROOM, float64)
            turns = cuda.shared.array(TILE, int32)
            top = cuda.shared.array(TILE, int32)
            low = cuda.shared.array(TILE, int32)
        _go_up(
            lo, hi - lo, group, n_levels, rank, depth, partner, step, row_idx,
            given, next_sums, sums, left, turns, top, low,
        )  # fmt: skip

    return up


@cache
def _down(long: bool) -> Kernel:
    """The kernel of a stage on the way down: values of all items, given those of the open runs."""

    @kernel
    def down(
        n_groups, first, member, rank, depth, partner, step, n_levels, levels, row_idx, given,
        next_values, n_rows, out, room,
    ):  # fmt: skip
        tile, group = cuda.blockIdx.x // n_groups, cuda.blockIdx.x % n_groups
        lo, hi = first[tile], first[tile + 1]
        if long:
            start, stop = lo * WIDE, hi * WIDE
            sums, left = room[0][group, start:stop], room[1][group, start:stop]
            turns, top, low = room[2][group, lo:hi], room[3][group, lo:hi], room[4][group, lo:hi]
        else:
            sums = cuda.shared.array(ROOM, float64)
            left = cuda.shared.array(ROOM, float64)
            turns = cuda.shared.array(TILE, int32)
            top = cuda.shared.array(TILE, int32)
            low = cuda.shared.array(TILE, int32)
        _go_down(
            lo, hi - lo, member[tile], group, n_levels, levels, rank, depth, partner, step,
            row_idx, given, next_values, n_rows, out, sums, left, turns, top, low,
        )  # fmt: skip

    return down


@kernel
def _crown(root_depth, levels, values):
    """Multiply the sums at the roots by the variance of the edge above the root."""
    item = cuda.grid(1)
    if item < values.size:
        b, column = item // values.shape[1], item % values.shape[1]
        values[b, column] *= levels[b, 0] - levels[b, root_depth[b]]


@kernel
def _add_trees(values, n_trees, is_first, variance, x, out):
    """out += the trees' values, in their order, so the result is the same for any batches of trees.

    values: (trees * n, k). out: (n, k), starts from variance * x for the first batch. variance:
    (n,), or of size 0 for none.
    """
    item = cuda.grid(1)
    if item < out.size:
        row, column = item // out.shape[1], item % out.shape[1]
        total = 0.0
        if not is_first:
            total = out[row, column]
        elif variance.size:
            total = variance[row] * x[row, column]
        for tree in range(n_trees):
            total += values[tree * out.shape[0] + row, column]
        out[row, column] = total


@device
def _meet_tile(
    lo, count, group, n_levels, rank, partner, step, row_idx, given_x, given_z,
    next_x, next_z, partial, line, x, z, ranks, turns, met,
):  # fmt: skip
    """Sum up a tile, and sum x1 z2 + x2 z1 of every node over the columns, by level."""
    t = cuda.threadIdx.x
    room = cuda.shared.array(THREADS, float64)
    bounds = cuda.shared.array(2, int32)
    first_column = group * WIDE
    columns = min(WIDE, given_x.shape[1] - first_column)
    for p in range(t, count, THREADS):
        row = row_idx[lo + p] if row_idx.size > 1 else lo + p
        for j in range(columns):
            x[p * WIDE + j] = given_x[row, first_column + j]
            z[p * WIDE + j] = given_z[row, first_column + j]
        ranks[p] = rank[lo + p]
        turns[p] = step[lo + p]
    cuda.syncthreads()
    for turn in range(1, last_turn(turns, count, bounds) + 1):
        for p in range(t, count, THREADS):
            if turns[p] == turn:
                at, from_ = partner[lo + p] * WIDE, p * WIDE
                found = 0.0
                for j in range(columns):
                    x1, x2, z1, z2 = x[at + j], x[from_ + j], z[at + j], z[from_ + j]
                    found += x1 * z2 + x2 * z1
                    x[at + j] = x1 + x2
                    z[at + j] = z1 + z2
                met[p] = found
        cuda.syncthreads()
    full = 0.0
    for p in range(t, count, THREADS):
        if turns[p] == 0:
            for j in range(columns):
                next_x[-1 - partner[lo + p], first_column + j] = x[p * WIDE + j]
                next_z[-1 - partner[lo + p], first_column + j] = z[p * WIDE + j]
        elif ranks[p] >= n_levels:
            full += met[p]
    full = block_sum(full, room)
    if t == 0:
        partial[line, n_levels] = full
    add_by_level(count, n_levels, ranks, turns, met, room, bounds, partial, line)


@cache
def _meet(long: bool) -> Kernel:
    """The kernel of a stage's quadratic forms by level, on the way up.

    It writes one line of partial, (lines, D + 1), per tile and group of columns.
    """

    @kernel
    def meet(
        n_groups, first, rank, partner, step, n_levels, row_idx, given_x, given_z,
        next_x, next_z, partial, line, room,
    ):  # fmt: skip
        tile, group = cuda.blockIdx.x // n_groups, cuda.blockIdx.x % n_groups
        lo, hi = first[tile], first[tile + 1]
        if long:
            start, stop = lo * WIDE, hi * WIDE
            x, z = room[0][group, start:stop], room[1][group, start:stop]
            ranks, turns, met = room[2][group, lo:hi], room[3][group, lo:hi], room[4][group, lo:hi]
        else:
            x = cuda.shared.array(ROOM, float64)
            z = cuda.shared.array(ROOM, float64)
            met = cuda.shared.array(TILE, float64)
            ranks = cuda.shared.array(TILE, int32)
            turns = cuda.shared.array(TILE, int32)
        _meet_tile(
            lo, hi - lo, group, n_levels, rank, partner, step, row_idx, given_x, given_z,
            next_x, next_z, partial, line + cuda.blockIdx.x, x, z, ranks, turns, met,
        )  # fmt: skip

    return meet


def sum_products(trees: Sequence[Tree], x: Any, variance: Any = None) -> Floats:
    """(K + variance) x for x (n, k) in row order; variance: (n,), None means 0."""
    out: Any = xp.empty(x.shape)
    write_products(groves(trees, x.shape[1]), x, variance, out)
    return out  # type: ignore[no-any-return]


def write_products(batches: Sequence[Grove], x: Any, variance: Any, out: Any) -> None:
    """Write (K + variance) x to out, by kernels only, so that a `Recording` can repeat it."""
    n, k = x.shape
    room = xp.empty((n * max(grove.plan.n_members for grove in batches), k))  # reused
    for first, grove in enumerate(batches):
        values = room[: n * grove.plan.n_members]
        _write_grove_product(grove, x, values)
        own = xp.empty(0) if variance is None else variance
        launch(_add_trees, out.size, values, grove.plan.n_members, first == 0, own, x, out)


def sum_level_products(trees: Sequence[Tree], x: Any, z: Any) -> list[Floats]:
    """x' K_l z for l = 0..D, summed over the columns, (D + 1,) per tree; x, z in row order."""
    batches = groves(trees, 2 * x.shape[1])
    return [one for grove in batches for one in _grove_level_products(grove, x, z)]


def _write_grove_product(grove: Grove, x: Any, found: Any) -> None:
    """Write K x of each tree of a batch to found, (trees * n, k)."""
    plan, levels = grove.plan, grove.levels
    n, k = x.shape
    n_groups = -(-k // WIDE)
    given = _sum_up(grove, x)
    values = given[-1]
    launch(_crown, values.size, plan.root_depth, levels, values)
    none = _no_rows(current_device())
    for place in range(len(plan.stages) - 1, -1, -1):
        stage = plan.stages[place]
        out = xp.empty((stage.n_items, k)) if place else found
        rows = grove.row_idx if place == 0 else none
        items = (*stage.items, plan.n_levels, levels, rows)
        head = (n_groups, stage.first, stage.member, *items, given[place], values, n, out)
        _down(stage.long)(stage.n_tiles * n_groups, *head, _room(stage, n_groups, np.int32))
        values = out


def _grove_level_products(grove: Grove, x: Any, z: Any) -> list[Floats]:
    """x' K_l z of each tree of a batch, (D + 1,) per tree, on the host."""
    plan = grove.plan
    k = x.shape[1]
    n_groups = -(-k // WIDE)
    n_lines = n_groups * sum(stage.n_tiles for stage in plan.stages)
    partial = xp.zeros((n_lines, plan.n_levels + 1))
    none = _no_rows(current_device())
    pair, line = (x, z), 0
    sizes = [*(stage.n_items for stage in plan.stages[1:]), plan.n_members]
    for place, (stage, size) in enumerate(zip(plan.stages, sizes, strict=True)):
        above = (xp.empty((size, k)), xp.empty((size, k)))
        rows = grove.row_idx if place == 0 else none
        items = (stage.rank, stage.partner, stage.step, plan.n_levels, rows)
        head = (n_groups, stage.first, *items, *pair, *above, partial, line)
        n_blocks = stage.n_tiles * n_groups
        _meet(stage.long)(n_blocks, *head, _room(stage, n_groups, np.float64))
        pair, line = above, line + n_blocks
    owner = np.concatenate([np.repeat(stage.members, n_groups) for stage in plan.stages])
    by_level = to_host(add_lines_up(owner, plan.n_members, partial))
    by_level[:, -1] += float((x * z).sum())
    return list(np.cumsum(by_level[:, ::-1], axis=1)[:, ::-1])


def _sum_up(grove: Grove, x: Any) -> list[Any]:
    """Values of the items of every stage, starting with the rows, and of the roots."""
    plan, k = grove.plan, x.shape[1]
    n_groups = -(-k // WIDE)
    given = [x]
    none = _no_rows(current_device())
    sizes = [*(stage.n_items for stage in plan.stages[1:]), plan.n_members]
    for place, (stage, size) in enumerate(zip(plan.stages, sizes, strict=True)):
        sums = xp.empty((size, k))
        rows = grove.row_idx if place == 0 else none
        items = (*stage.items, plan.n_levels, rows)
        head = (n_groups, stage.first, *items, given[-1], sums)
        _up(stage.long)(stage.n_tiles * n_groups, *head, _room(stage, n_groups, np.int32))
        given.append(sums)
    return given


@cache
def _no_rows(device: int) -> Any:
    """Stands for row_idx in stages whose items are not leaves; cached per device."""
    return xp.zeros(1, np.int32)


def _room(stage: Stage, n_groups: int, last: npt.DTypeLike) -> tuple[Any, ...]:
    """Arrays of a long stage in place of shared memory: two of columns and three of items.

    last: dtype of the last one.
    """
    if not stage.long:
        return ()
    wide = [xp.empty((n_groups, stage.n_items * WIDE)) for _ in range(2)]
    kinds = (np.int32, np.int32, last)
    return (*wide, *(xp.empty((n_groups, stage.n_items), kind) for kind in kinds))
