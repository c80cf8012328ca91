"""Covariances within many small groups of leaves of one tree, without a matrix of all leaves."""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Floats, Ints, Links


def group_covariances(links: Links, edges: Floats, groups: Ints, n_threads: int) -> Floats:
    """Covariance of f within groups of leaves, float64 (g, q, q). O(k + g q^2 depth).

    links: the trie over k leaves; edges: float64 (2k, 3), of `contract`. groups: int64 (g, q),
    leaves in key order; -1 marks a leaf that is independent of all, whose entries are 0.
    """
    n = links.n_rows
    parent, first, last = (np.empty(2 * n, np.int32) for _ in range(3))
    var = np.empty(2 * n)
    shards = [links.order[a:b] for a, b in zip(links.starts, links.stops, strict=True)]
    nodes = np.concatenate([*shards, links.spine])
    fill_ranges(nodes, links.left, links.right, links.root, edges, parent, first, last, var)
    out = np.zeros((*groups.shape, groups.shape[1]))
    given = (parent, first, last, var, edges, np.ascontiguousarray(groups))
    run_each(lambda b: fill_groups(*given, *b, out), thread_blocks(len(groups)), n_threads)
    return out


@jit
def fill_ranges(nodes, left, right, root, edges, parent, first, last, var):
    """Parents, ranges of leaves and variances of all ids; nodes: int32, children before parents."""
    n = left.size
    for i in range(n):
        first[i] = last[i] = i
    for k in range(nodes.size):
        node = nodes[k]
        u = n + node
        parent[left[node]] = parent[right[node]] = u
        first[u], last[u] = first[left[node]], last[right[node]]
    var[root] = edges[root, 2]
    for k in range(nodes.size - 1, -1, -1):
        node = nodes[k]
        above = var[n + node]
        for c in (left[node], right[node]):
            var[c] = edges[c, 0] * edges[c, 0] * above + edges[c, 2]


@jit
def fill_groups(parent, first, last, var, edges, groups, lo, hi, out):
    """out[g] = covariance within groups lo..hi: variance where two paths meet, times the gains."""
    for g in range(lo, hi):
        for i in range(groups.shape[1]):
            a = groups[g, i]
            if a < 0:
                continue
            for j in range(i + 1):
                b = groups[g, j]
                if b < 0:
                    continue
                here, gain = a, 1.0
                while b < first[here] or b > last[here]:
                    gain *= edges[here, 0]
                    here = parent[here]
                low = b
                while low != here:
                    gain *= edges[low, 0]
                    low = parent[low]
                out[g, i, j] = out[g, j, i] = gain * var[here]
