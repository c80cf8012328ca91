"""Sweeps over the trie on the device: one function for each of the contract's methods.

Arrays, including those of links, are on the device, except links.starts and links.stops, which are
on the host. Bucket k of nodes is order[starts[k]:stops[k]], deepest first. The nodes of a bucket
have the same depth, and none is above another. There is no spine. levels, and arrays that are read
once, may be on the host. Only the sums of a likelihood and sums by level are copied to the host. No
atomics on floating-point data: the same input gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda import card, steps, walks
from triegp.engines.cuda.card import to_device, to_host, xp
from triegp.engines.records import Array, Floats, Ids, Links, Sums

CHUNK = 4 if card.SIMULATED else 32  # values that one thread adds up

_inside = walks.upwards(steps.inside, 4)
_outside = walks.downwards(steps.outside, 6)
_sum_up = walks.upwards(steps.sum_up, 1)
_spread_down = walks.downwards(steps.spread_down, 2)
_mean_up = walks.upwards(steps.mean_up, 3)
_solve_down = walks.downwards(steps.solve_down, 3)
_whiten_up = walks.upwards(steps.whiten_up, 4)
_meet_up = walks.upwards(steps.meet_up, 3)
_gain_up = walks.upwards(steps.gain_up, 2)
_gain_down = walks.downwards(steps.gain_down, 3)
_draw_down = walks.downwards(steps.draw_down, 4)
_contract = walks.upwards(steps.contract, 7)


# Messages


def inside(links: Links, levels: Floats, m: Array, s: Array) -> Sums:
    """Merge messages upwards; the leaves of m and s are read, the nodes are overwritten."""
    levels = to_device(levels, np.float64)
    terms = xp.zeros((3, links.n_rows))
    walks.run(_inside, links, 1, levels, m, s, terms)
    root = slice(links.root, links.root + 1)
    with np.errstate(over="ignore"):  # the caller checks for overflow
        found = [terms.sum(axis=1), m[root], _lifted_root(links, levels, s)]
    log_det, square, count, mean, var = to_host(xp.concatenate(found)).tolist()
    if var == math.inf:  # no row carries information
        return Sums(0.0, 0.0, 0)
    return Sums(log_det + math.log(var), square + mean * (mean / var), int(count) + 1)


def outside(links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
    """Outside messages (mo, so) of all ids and the depth at which each is held."""
    mo, so, above = xp.zeros_like(m), xp.zeros_like(s), xp.zeros(m.size, np.int32)
    walks.run(_outside, links, 1, to_device(levels, np.float64), m, s, mo, so, above)
    return mo, so, above


def leave_out(
    links: Links,
    levels: Floats,
    outside: tuple[Array, Array, Ids],
    y: Array,
    stays: Floats,
) -> tuple[Floats, Floats]:
    """Mean and variance of f at each leaf given all other rows, in key order."""
    n = links.n_rows
    mean, var = xp.empty(n), xp.empty(n)
    given = (links.depth, to_device(levels, np.float64), *outside, to_device(y), to_device(stays))
    card.launch(_leave_out, n, *given, mean, var)
    return mean, var


@card.kernel
def _leave_out(depth, levels, mo, so, above, y, stays, mean, var):
    """Mean and variance of f at each leaf: lowered outside message merged with what stays."""
    i = cuda.grid(1)
    if i < mean.size:
        lowered = so[i] + (levels[above[i]] - levels[depth[i]])
        kept = stays[i if stays.size > 1 else 0]
        mean[i], var[i], _r1, _r2 = steps.merge(np.float64(mo[i]), lowered, np.float64(y[i]), kept)


# Operators


def product(links: Links, levels: Floats, x: Floats) -> Floats:
    """K x for x (n, k) in key order."""
    x = _with_nodes(x)
    walks.run(_sum_up, links, x.shape[1], x)
    _spread(links, levels, x)
    return x[: links.n_rows]


def path_sums(links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Sums of x (n,) below each id, and partial sums of K x on the path to it, both (2n,)."""
    sums = _with_nodes(x[:, None])
    walks.run(_sum_up, links, 1, sums)
    below = sums[:, 0].copy()
    _spread(links, levels, sums)
    return below, sums[:, 0]


def solve(links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
    """(K + noise)^-1 x for x (n, k) in key order; s: inside variances, noise at the leaves."""
    levels, x = to_device(levels, np.float64), _with_nodes(x)
    walks.run(_mean_up, links, x.shape[1], levels, s, x)
    x[links.root] /= _lifted_root(links, levels, s)
    walks.run(_solve_down, links, x.shape[1], levels, s, x)
    return x[: links.n_rows]


def whiten(links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
    """T x with T'T = (K + noise)^-1. Row i belongs to node i, row 0 to the root."""
    levels, out = to_device(levels, np.float64), xp.empty(x.shape)
    x = _with_nodes(x)
    walks.run(_whiten_up, links, x.shape[1], levels, s, x, out)
    out[0] = x[links.root] / xp.sqrt(_lifted_root(links, levels, s))
    return out  # type: ignore[no-any-return]


def level_products(links: Links, x: Floats, z: Floats) -> Floats:
    """x' K_l z for l = 0..D, (D + 1, k), on the host.

    K_l is 1 for two rows that share at least l bits, otherwise 0.
    """
    n, k = x.shape
    x, z, met = _with_nodes(x), _with_nodes(z), xp.empty((n, k))
    walks.run(_meet_up, links, k, x, z, met)
    by_level = np.zeros((links.n_levels + 1, k))
    if n > 1:
        starts = to_host(links.starts)
        depths = to_host(links.depth[n + links.order[to_device(starts)]])
        sums = _bucket_sums(met[links.order], starts, to_host(links.stops))
        np.add.at(by_level, depths, to_host(sums))
    by_level[-1] += to_host((x[:n] * z[:n]).sum(axis=0))
    total: Floats = np.cumsum(by_level[::-1], axis=0)[::-1]
    return total


def _bucket_sums(values: Any, starts: Any, stops: Any) -> Any:
    """Sums of values[starts[b]:stops[b]], (n_buckets, k), by repeated sums of CHUNK rows."""
    while True:
        counts = -(-(stops - starts) // CHUNK)
        ends = np.cumsum(counts)
        firsts = ends - counts
        out = xp.empty((int(ends[-1]), values.shape[1]))
        bounds = (to_device(edge, np.int64) for edge in (starts, stops, firsts))
        card.launch(_sum_chunks, out.size, values, *bounds, out)
        if counts.max() == 1:
            return out
        values, starts, stops = out, firsts, ends


@card.kernel
def _sum_chunks(values, starts, stops, firsts, out):
    """Sums of up to CHUNK rows of a bucket; firsts: first row of out of each bucket."""
    item = cuda.grid(1)
    if item < out.size:
        chunk, column = item // out.shape[1], item % out.shape[1]
        low, high = 0, firsts.size  # the bucket is in low..high-1
        while high - low > 1:
            middle = (low + high) // 2
            if firsts[middle] <= chunk:
                low = middle
            else:
                high = middle
        begin = starts[low] + CHUNK * (chunk - firsts[low])
        end = begin + CHUNK if begin + CHUNK < stops[low] else stops[low]
        total = 0.0
        for i in range(begin, end):
            total += values[i, column]
        out[chunk, column] = total


# The joint distribution of f at chosen leaves


def contract(
    links: Links, levels: Floats, m: Array, s: Array, chosen: Ids, n_chosen: int
) -> Floats:
    """Edges of the tree over the chosen leaves: (gain, shift, var), float64 (2k, 3)."""
    n = links.n_rows
    levels = to_device(levels, np.float64)
    first, stands_for = xp.empty(2 * n, np.int32), xp.empty(2 * n, np.int32)
    first[:n] = stands_for[:n] = to_device(chosen, np.int32)
    path, out = xp.empty((2 * n, 3)), xp.zeros((2 * n_chosen, 3))
    path[:n, 0], path[:n, 1:] = 1.0, 0.0
    walks.run(_contract, links, 1, levels, m, s, first, stands_for, path, out)
    given = (links.root, links.depth, levels, m, s, first, stands_for, path, out)
    card.launch(_contract_root, 1, *given)
    return out  # type: ignore[no-any-return]


@card.kernel
def _contract_root(root, depth, levels, m, s, first, stands_for, path, out):
    """The edge above the root, computed by one thread."""
    if cuda.grid(1) == 0:
        n_chosen = out.shape[0] // 2
        low = steps.name(root, depth, levels.size - 1, first, stands_for, n_chosen)
        edge = levels[0] - levels[depth[root]]
        gain, shift, var = steps.compose(m, s, edge, path, root)
        out[low, 0], out[low, 1], out[low, 2] = gain, shift, var


def covariance_product(links: Links, edges: Floats, x: Floats) -> Floats:
    """Covariance of f at all leaves times x (k, c), in key order; edges from `contract`."""
    x = _with_nodes(x)
    gain, _, var = _columns(edges)
    walks.run(_gain_up, links, x.shape[1], gain, x)
    x[links.root] *= var[links.root]
    walks.run(_gain_down, links, x.shape[1], gain, var, x)
    return x[: links.n_rows]


def draw(links: Links, edges: Floats, normals: Floats) -> Floats:
    """Samples of f at all leaves, (k, c); normals (2k, c) is overwritten."""
    gain, shift, var = _columns(edges)
    root = links.root
    normals[root] = shift[root] + xp.sqrt(var[root]) * normals[root]
    walks.run(_draw_down, links, normals.shape[1], gain, shift, var, normals)
    return normals[: links.n_rows]


# Shared functions


def _spread(links: Links, levels: Floats, sums: Any) -> None:
    """Turn sums below every id into partial sums of K x on the path to it, in place."""
    levels = to_device(levels, np.float64)
    sums[links.root] *= _root_edge(links, levels)
    walks.run(_spread_down, links, sums.shape[1], levels, sums)


def _root_edge(links: Links, levels: Any) -> Any:
    """Variance of the edge above the root, float64 (1,) on the device; no copy to the host."""
    return levels[0] - levels[links.depth[links.root : links.root + 1]]


def _lifted_root(links: Links, levels: Any, s: Any) -> Any:
    """Variance of the root's message, lifted to depth 0, float64 (1,)."""
    return s[links.root : links.root + 1] + _root_edge(links, levels)


def _columns(edges: Any) -> list[Any]:
    """Gain, shift and variance of every edge, as contiguous arrays."""
    return [xp.ascontiguousarray(edges[:, j]) for j in range(3)]


def _with_nodes(x: Any) -> Any:
    """Leaf values x (n, k) extended to all ids, (2n, k); the node entries are uninitialised.

    Raises MemoryError if the device has too little free memory.
    """
    n, k = x.shape
    needed = 2 * n * k * 8
    if needed > card.SMALL_BYTES and needed > (there := card.free_bytes()):
        raise MemoryError(
            f"{k} columns of {n} rows need {needed / 1e9:.1f} GB on the device, "
            f"{there / 1e9:.1f} GB are free: use fewer columns at a time or the CPU engine"
        )
    out = xp.empty((2 * n, k))
    out[:n] = to_device(x, np.float64)
    return out
