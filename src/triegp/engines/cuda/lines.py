"""Reproducible sums: each tile writes one line of `partial`, and lines are added in order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from triegp.engines.cuda.card import SIMULATED, THREADS, current_device, device, kernel, xp
from triegp.engines.cuda.plan import cut_up, upload

GROUP = 64  # lines that one block adds up
LINES = 4 if SIMULATED else 128  # maximum blocks that share the rows; each writes one line


@device
def block_sum(value, room):
    """Sum over the threads of a block, in a fixed order; room: shared float64 (THREADS,)."""
    t = cuda.threadIdx.x
    room[t] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            room[t] += room[t + half]
        cuda.syncthreads()
        half //= 2
    total = room[0]
    cuda.syncthreads()
    return total


@device
def share_of(n_rows):
    """Range (lo, hi) of the rows that this block processes."""
    size = (n_rows + cuda.gridDim.x - 1) // cuda.gridDim.x
    lo = min(cuda.blockIdx.x * size, n_rows)
    return lo, min(lo + size, n_rows)


@device
def add_by_level(count, n_levels, ranks, turns, given, room, bounds, partial, line):
    """Sums of given[p] over the merged separators of each depth, written to partial[line].

    If a tile has few depths, several threads share a depth, each with a part of the tile. room:
    shared float64 (THREADS,); bounds: shared int32 (2,).
    """
    t = cuda.threadIdx.x
    if t == 0:
        bounds[0], bounds[1] = 0, n_levels
    cuda.syncthreads()
    for p in range(t, count, THREADS):
        if turns[p] > 0 and ranks[p] < n_levels:
            cuda.atomic.max(bounds, 0, ranks[p] + 1)
            cuda.atomic.min(bounds, 1, ranks[p])
    cuda.syncthreads()
    stop, first = bounds[0], bounds[1]
    while first < stop:
        width = min(stop - first, THREADS)
        parts = THREADS // width
        level, part = first + t % width, t // width
        found = 0.0
        if part < parts:
            share = (count + parts - 1) // parts
            for p in range(part * share, min((part + 1) * share, count)):
                if ranks[p] == level and turns[p] > 0:
                    found += given[p]
        room[t] = found
        cuda.syncthreads()
        if t < width:
            found = 0.0
            for k in range(parts):
                found += room[t + k * width]
            partial[line, level] = found
        cuda.syncthreads()
        first += width


@kernel
def _add_lines(partial, lines, first, out):
    """out[g] = sum of partial[lines[first[g]:first[g + 1]]], column by column.

    lines: int32, or of size 0 if the lines are summed in storage order.
    """
    g = cuda.blockIdx.x
    for column in range(cuda.threadIdx.x, partial.shape[1], THREADS):
        total = 0.0
        for k in range(first[g], first[g + 1]):
            total += partial[lines[k] if lines.size else k, column]
        out[g, column] = total


def add_lines_up(owner: npt.NDArray[Any], n_members: int, partial: Any) -> Any:
    """Sum the lines of every member in their order, GROUP at a time: (n_members, columns).

    owner: the member of each line.
    """
    owners = owner.astype(np.int32).tobytes()
    in_turn, *firsts = _addition_tables(owners, n_members, current_device())
    for first in firsts:
        out = xp.empty((first.size - 1, partial.shape[1]))
        _add_lines(first.size - 1, partial, in_turn, first, out)
        partial, in_turn = out, in_turn[:0]
    return partial


@lru_cache(maxsize=64)
def _addition_tables(owners: bytes, n_members: int, device: int) -> tuple[Any, ...]:
    """Lines sorted by member, and the starts of the groups in each round of additions.

    Cached per device.
    """
    owner = np.frombuffer(owners, np.int32)
    lines = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=n_members)
    cuts: list[Any] = []
    while not cuts or cuts[-1].size > n_members + 1:
        first, owner = cut_up(counts, GROUP)
        counts = np.bincount(owner, minlength=n_members)
        cuts.append(first)
    return tuple(upload(lines, *cuts))
