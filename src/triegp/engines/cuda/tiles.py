"""The likelihood and its gradient, tile by tile, for all members of a batch at once.

On the way up, a block merges the messages of its tile in shared memory and writes those of the runs
that stay open. On the way down it merges them again, which costs less than reading them back, and
computes the adjoints. A tile's contribution to the sums is one line of `partial`. Lines are added
in a fixed order, so that the result has the same bits every time.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda, float64, from_dtype, int32

from triegp.engines import messages
from triegp.engines.cuda.card import (
    THREADS,
    TILE,
    Kernel,
    device,
    kernel,
    launch,
    to_host,
    xp,
)
from triegp.engines.cuda.lines import add_by_level, add_lines_up, block_sum
from triegp.engines.cuda.plan import Plan, Stage, last_turn
from triegp.engines.records import Sums

INF = math.inf
FULL_LEFT, FULL_RIGHT, BEGIN = 1 << 29, 1 << 30, (1 << 29) - 1
N_SUMS = 3  # sums of log v and e^2 / v, and the number of terms

merge = device(messages.merge)
merge_adjoint = device(messages.merge_adjoint)


@device
def _merge_up(
    count, n_turns, n_levels, levels, b, ranks, own, turns, top, m, s, keep, left_m, left_s
):  # fmt: skip
    """Merge a tile's messages, round by round; return this thread's part of the sums.

    If keep, node p keeps the two messages that met there, both lifted: (left_m, left_s)[p] and (m,
    s)[p]. Flags in own[p] mark those that came from depth D.
    """
    t = cuda.threadIdx.x
    log_sum, square, n_terms = 0.0, 0.0, 0.0
    for turn in range(1, n_turns + 1):
        for p in range(t, count, THREADS):
            if turns[p] == turn:
                x = own[p]
                here = min(ranks[p], n_levels)
                at = levels[b, here]
                s1 = s[x] + (at - levels[b, top[x]])
                s2 = s[p] + (at - levels[b, top[p]])
                m1, m2 = np.float64(m[x]), np.float64(m[p])
                m0, s0, _, _ = merge(m1, s1, m2, s2)
                v = s1 + s2
                if v < INF:
                    e = m1 - m2
                    log_sum += math.log(v)
                    square += e * (e / v)
                    n_terms += 1.0
                if keep:
                    left_m[p] = m1
                    left_s[p] = s1
                    s[p] = s2
                    if top[x] == n_levels:
                        own[p] |= FULL_LEFT
                    if top[p] == n_levels:
                        own[p] |= FULL_RIGHT
                m[x] = m0
                s[x] = s0
                top[x] = here
        cuda.syncthreads()
    return log_sum, square, n_terms


@device
def _split_down(count, n_turns, n_levels, ranks, own, turns, m, s, left_m, left_s):
    """Replace a tile's messages by their adjoints; left_m[p] is node p's contribution to its level.

    Returns this thread's part of the contribution of ids of depth D to level D.
    """
    t = cuda.threadIdx.x
    full = 0.0
    for turn in range(n_turns, 0, -1):
        for p in range(t, count, THREADS):
            if turns[p] == turn:
                x = own[p] & BEGIN
                gm, gs = np.float64(m[x]), np.float64(s[x])
                m1, s1 = np.float64(left_m[p]), np.float64(left_s[p])
                m2, s2 = np.float64(m[p]), np.float64(s[p])
                _, _, r1, r2 = merge(m1, s1, m2, s2)
                gm1, gs1, gm2, gs2 = merge_adjoint(m1 - m2, s1 + s2, r1, r2, gm, gs)
                m[x] = gm1
                s[x] = gs1
                m[p] = gm2
                s[p] = gs2
                if ranks[p] < n_levels:  # edges of length 0 have no derivative
                    left_m[p] = gs - (gs1 + gs2)
                    if own[p] & FULL_LEFT:
                        full += gs1
                    if own[p] & FULL_RIGHT:
                        full += gs2
        cuda.syncthreads()
    return full


@device
def _load(lo, count, n_levels, rank, depth, partner, step, ranks, own, turns, top):
    """Load a tile's ranks, partners, rounds and depths."""
    for p in range(cuda.threadIdx.x, count, THREADS):
        ranks[p] = rank[lo + p]
        own[p] = partner[lo + p]
        turns[p] = step[lo + p]
        top[p] = n_levels if depth.size == 1 else depth[lo + p]


@device
def _gather(lo, count, b, given, m, s):
    """Load the messages of a tile's leaves; given: (row_idx, y, variance)."""
    row_idx, y, variance = given
    by = b if y.shape[0] > 1 else 0
    bv = b if variance.shape[0] > 1 else 0
    for p in range(cuda.threadIdx.x, count, THREADS):
        row = row_idx[lo + p]
        m[p] = y[by, row]
        s[p] = variance[bv, row if variance.shape[1] > 1 else 0]


@device
def _copy(lo, count, given, m, s):
    """Load the messages of a tile's items; given: (m, s)."""
    given_m, given_s = given
    for p in range(cuda.threadIdx.x, count, THREADS):
        m[p] = given_m[lo + p]
        s[p] = given_s[lo + p]


@device
def _go_up(
    count, n_levels, levels, b, ranks, own, turns, top, m, s, next_m, next_s, partial, line
):  # fmt: skip
    """Merge a tile, write the messages of its open runs, and write the sums."""
    last = cuda.shared.array(1, int32)
    room = cuda.shared.array(THREADS, float64)
    n_turns = last_turn(turns, count, last)
    log_sum, square, n_terms = _merge_up(
        count, n_turns, n_levels, levels, b, ranks, own, turns, top, m, s, False, m, s
    )
    for p in range(cuda.threadIdx.x, count, THREADS):
        if own[p] < 0:
            next_m[-1 - own[p]] = m[p]
            next_s[-1 - own[p]] = s[p]
    log_sum = block_sum(log_sum, room)
    square = block_sum(square, room)
    n_terms = block_sum(n_terms, room)
    if cuda.threadIdx.x == 0:
        column = partial.shape[1] - N_SUMS
        partial[line, column] = log_sum
        partial[line, column + 1] = square
        partial[line, column + 2] = n_terms


@device
def _go_down(
    count, n_levels, levels, b, ranks, own, turns, top, m, s, left_m, left_s,
    next_m, next_s, partial, line,
):  # fmt: skip
    """Merge again, load the adjoints of the open runs, compute the others, write sums by level."""
    t = cuda.threadIdx.x
    bounds = cuda.shared.array(2, int32)
    room = cuda.shared.array(THREADS, float64)
    n_turns = last_turn(turns, count, bounds)
    _merge_up(
        count, n_turns, n_levels, levels, b, ranks, own, turns, top, m, s, True, left_m, left_s
    )
    for p in range(t, count, THREADS):
        if own[p] < 0:
            m[p] = next_m[-1 - own[p]]
            s[p] = next_s[-1 - own[p]]
    cuda.syncthreads()
    full = _split_down(count, n_turns, n_levels, ranks, own, turns, m, s, left_m, left_s)
    full = block_sum(full, room)
    if t == 0:
        partial[line, n_levels] = full
    add_by_level(count, n_levels, ranks, turns, left_m, room, bounds, partial, line)


@cache
def _up(dtype: np.dtype[Any], leaves: bool, long: bool) -> Kernel:
    """The kernel of a stage on the way up: merge the tiles and write the messages of open runs.

    dtype: of messages. leaves: whether this is the first stage; then `given` is (row_idx, y,
    variance), from which messages are gathered. Otherwise `given` is the items' messages, (m, s).
    long: whether tiles may exceed TILE items and are merged in global memory, `room` (see `_room`).
    Otherwise they are merged in shared memory and `room` is empty.
    """
    real = from_dtype(dtype)

    @kernel
    def up(
        first, member, rank, depth, partner, step, n_levels, levels,
        given, next_m, next_s, partial, line, room,
    ):  # fmt: skip
        tile = cuda.blockIdx.x
        lo, hi, b = first[tile], first[tile + 1], member[tile]
        count = hi - lo
        if long:
            ranks, own, turns, top = room[0][lo:hi], room[1][lo:hi], room[2][lo:hi], room[3][lo:hi]
            m, s = room[4][lo:hi], room[5][lo:hi]
        else:
            ranks = cuda.shared.array(TILE, int32)
            own = cuda.shared.array(TILE, int32)
            turns = cuda.shared.array(TILE, int32)
            top = cuda.shared.array(TILE, int32)
            m = cuda.shared.array(TILE, real)
            s = cuda.shared.array(TILE, real)
        _load(lo, count, n_levels, rank, depth, partner, step, ranks, own, turns, top)
        if leaves:
            _gather(lo, count, b, given, m, s)
        else:
            _copy(lo, count, given, m, s)
        _go_up(
            count, n_levels, levels, b, ranks, own, turns, top, m, s,
            next_m, next_s, partial, line + tile,
        )  # fmt: skip

    return up


@cache
def _down(dtype: np.dtype[Any], leaves: bool, long: bool) -> Kernel:
    """The kernel of a stage on the way down: adjoints of all items, given those of open runs.

    Arguments as in `_up`. The items' messages are overwritten by their adjoints. Those of leaves
    are written to found, (by_mean, by_var), both (N,), if rows is True.
    """
    real = from_dtype(dtype)

    @kernel
    def down(
        first, member, rank, depth, partner, step, n_levels, levels,
        given, next_m, next_s, partial, line, room, rows, found,
    ):  # fmt: skip
        tile, t = cuda.blockIdx.x, cuda.threadIdx.x
        lo, hi, b = first[tile], first[tile + 1], member[tile]
        count = hi - lo
        if long:
            ranks, own, turns, top = room[0][lo:hi], room[1][lo:hi], room[2][lo:hi], room[3][lo:hi]
            m, s, left_m, left_s = room[4][lo:hi], room[5][lo:hi], room[6][lo:hi], room[7][lo:hi]
        else:
            ranks = cuda.shared.array(TILE, int32)
            own = cuda.shared.array(TILE, int32)
            turns = cuda.shared.array(TILE, int32)
            top = cuda.shared.array(TILE, int32)
            m = cuda.shared.array(TILE, real)
            s = cuda.shared.array(TILE, real)
            left_m = cuda.shared.array(TILE, real)
            left_s = cuda.shared.array(TILE, real)
        _load(lo, count, n_levels, rank, depth, partner, step, ranks, own, turns, top)
        if leaves:
            _gather(lo, count, b, given, m, s)
        else:
            _copy(lo, count, given, m, s)
        _go_down(
            count, n_levels, levels, b, ranks, own, turns, top, m, s, left_m, left_s,
            next_m, next_s, partial, line + tile,
        )  # fmt: skip
        if leaves:
            by_mean, by_var = found
        else:
            by_mean, by_var = given
        by_noise = 0.0
        for p in range(t, count, THREADS):
            by_noise += s[p]
            if rows:
                by_mean[lo + p] = m[p]
                by_var[lo + p] = s[p]
        if leaves:
            by_noise = block_sum(by_noise, cuda.shared.array(THREADS, float64))
            if t == 0:
                partial[line + tile, n_levels + 1] = by_noise

    return down


@kernel
def _crown(root_depth, n_levels, levels, m, s, partial, gradient):
    """Terms of the roots; their messages are overwritten by their adjoints if gradient."""
    b = cuda.grid(1)
    if b < root_depth.size:
        mean = np.float64(m[b])
        v = np.float64(s[b]) + (levels[b, 0] - levels[b, root_depth[b]])
        last = partial.shape[1] - N_SUMS
        if v < INF:
            partial[b, last] = math.log(v)
            partial[b, last + 1] = mean * (mean / v)
            partial[b, last + 2] = 1.0
        if gradient:
            t = mean / v
            gs = 0.5 * (1.0 / v - t * t)
            m[b] = t
            s[b] = gs
            partial[b, 0] = -gs
            if root_depth[b] == n_levels:
                partial[b, n_levels] += gs


def evaluate_plan(
    plan: Plan,
    row_idx: Any,
    y: Any,
    variance: Any,
    levels: Any,
    dtype: np.dtype[Any],
    gradient: bool,
    rows: bool = False,
) -> tuple[list[Sums], npt.NDArray[np.float64] | None, Any, Any]:
    """Likelihoods of all members and, if gradient, their derivatives.

    y: float64 (members or 1, n); variance: float64 (members or 1, n or 1); levels: float64
    (members, D + 1); row_idx: int32 (N,); all on the device. Returns four values. First, the sums
    per member. Second, derivatives by level and, in the last column, by a noise that all rows
    share, float64 (members, D + 2) on the host, or None. Third and fourth, derivatives by the
    leaves' means and variances, (N,) in key order, on the device; they are valid only if gradient
    and rows.
    """
    n_levels, n_members = plan.n_levels, plan.n_members
    n_columns = N_SUMS + (n_levels + 2 if gradient else 0)
    # Roots first. Once a member is complete, its lines of further stages are zero and come last,
    # so the number of stages, which depends on the other members, does not change its sums.
    lines = np.cumsum([n_members, *(stage.n_tiles for stage in plan.stages)])
    partial = xp.zeros((int(lines[-1]), n_columns))
    sizes = [*(stage.n_items for stage in plan.stages[1:]), n_members]
    pairs = [(xp.empty(size, dtype), xp.empty(size, dtype)) for size in sizes]
    given = [(row_idx, y, variance), *pairs]
    heads = [
        (stage.first, stage.member, *stage.items, n_levels, levels, given[k], *given[k + 1])
        for k, stage in enumerate(plan.stages)
    ]
    for k, stage in enumerate(plan.stages):
        up = _up(dtype, k == 0, stage.long)
        up(stage.n_tiles, *heads[k], partial, int(lines[k]), _room(stage, dtype, 2))
    tail = (plan.root_depth, n_levels, levels, *pairs[-1], partial, gradient)
    launch(_crown, n_members, *tail)
    by_mean = by_var = xp.empty(row_idx.size if rows else 1, dtype)
    if gradient:
        by_mean = xp.empty_like(by_var)
        for k, stage in reversed(list(enumerate(plan.stages))):
            down = _down(dtype, k == 0, stage.long)
            wanted = (rows, (by_mean, by_var)) if k == 0 else (True, ())
            room = _room(stage, dtype, 4)
            down(stage.n_tiles, *heads[k], partial, int(lines[k]), room, *wanted)
    owner = np.concatenate([np.arange(n_members), *(stage.members for stage in plan.stages)])
    total = to_host(add_lines_up(owner, n_members, partial))
    sums = [Sums(float(a), float(b), int(c)) for a, b, c in total[:, n_columns - N_SUMS :]]
    return sums, total[:, : n_columns - N_SUMS] if gradient else None, by_mean, by_var


def _room(stage: Stage, dtype: np.dtype[Any], n_real: int) -> tuple[Any, ...]:
    """Arrays of a long stage in place of shared memory: four of integers and n_real of dtype."""
    kinds = [np.dtype(np.int32)] * 4 + [dtype] * n_real if stage.long else []
    return tuple(xp.empty(stage.n_items, kind) for kind in kinds)
