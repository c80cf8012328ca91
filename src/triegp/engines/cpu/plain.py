"""The stages from a model file to its first predictions, without compiled kernels.

Loops in Python over lists, and numpy. For small models and few rows they take less time than to
load numba, and far less than to compile. Structure is exactly that of the kernels, and messages
have the same bits: the rule that merges two of them is the same function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.engines.contract import Engine
from triegp.engines.cpu.engine import CpuEngine
from triegp.engines.cpu.spread import lifted_root
from triegp.engines.messages import merge
from triegp.engines.records import Array, Bytes, Floats, Ids, Ints, Links, Located, Sums, Words

Item = TypeVar("Item")
Result = TypeVar("Result")

FULL = 1 << 30  # more than any position, as in `linking`


@dataclass(frozen=True)
class PlainEngine(CpuEngine):
    """The CPU engine with stages of its own that need no compiler.

    They run on the calling thread. The other stages are those of the CPU engine, whose kernels are
    compiled when they are called. Messages must be float64.
    """

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of work(engine, item), one after another."""
        return [work(self, item) for item in items]

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""
        keys = self.keys(packed, bits, np.arange(packed.shape[0], dtype=np.int32))
        row_idx = np.lexsort(keys.T[::-1])  # by the first word, then by the second, ...
        lcp = np.full(row_idx.size, -1, np.int32)
        lcp[1:] = shared_bits(keys[row_idx[1:]], keys[row_idx[:-1]], bits.size)
        return row_idx.astype(np.int32), lcp

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64))."""
        n_words = max(-(-bits.size // 64), 1)
        chosen = np.zeros((row_idx.size, 64 * n_words), np.uint8)
        chosen[:, : bits.size] = np.unpackbits(packed[row_idx], axis=1)[:, bits]
        return np.packbits(chosen, axis=1).view(">u8").astype(np.uint64)

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> Links:
        """The trie over sorted keys, as one shard."""
        n, depths = lcp.size, lcp.tolist()
        left, right, order = [0] * n, [0] * n, list[int]()
        items, seps, ranks = (
            list[int](),
            list[int](),
            list[int](),
        )  # open subtrees, and the separator behind each
        current = 0
        for i in range(1, n + 1):
            here = -1 if i == n else depths[i]
            if here == n_levels:  # equal keys merge in pairs, then in pairs of pairs
                here += FULL - (i & -i)
            while seps and ranks[-1] >= here:
                node = seps.pop()
                ranks.pop()
                left[node], right[node] = items.pop(), current
                order.append(node)
                current = n + node
            if i < n:
                items.append(current)
                seps.append(i)
                ranks.append(here)
                current = i
        depth = np.concatenate([np.full(n, n_levels, np.int32), lcp])
        order.append(0)  # not used
        children = np.array(left, np.int32), np.array(right, np.int32)
        stop = np.array([n - 1], np.int64)
        start, spine = np.zeros(1, np.int64), np.empty(0, np.int32)
        return Links(depth, *children, np.array(order, np.int32), start, stop, spine, current)

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), both (2n,): leaves filled from the rows, nodes uninitialised."""
        m, s = np.empty(2 * row_idx.size, dtype), np.empty(2 * row_idx.size, dtype)
        m[: row_idx.size] = y[row_idx]
        s[: row_idx.size] = variance[row_idx] if variance.size > 1 else variance
        return m, s

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages upwards; the leaves of m and s are read, the nodes are overwritten."""
        n, at, mean, var, pairs = _lists(links, levels, m, s)
        log_det, square, count = 0.0, 0.0, 0
        for node, c1, c2 in pairs:
            here = at[n + node]
            s1, s2 = var[c1] + (here - at[c1]), var[c2] + (here - at[c2])
            m1, m2 = mean[c1], mean[c2]
            mean[n + node], var[n + node], _, _ = merge(m1, s1, m2, s2)
            v = s1 + s2
            if v < math.inf:
                log_det += math.log(v)
                square += (m1 - m2) * ((m1 - m2) / v)
                count += 1
        m[n:], s[n:] = mean[n:], var[n:]
        total = lifted_root(links, levels, s)
        if total == math.inf:  # no row carries information
            return Sums(0.0, 0.0, 0)
        top = mean[links.root]
        return Sums(log_det + math.log(total), square + top * (top / total), count + 1)

    def outside(self, links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
        """Outside messages (mo, so) of all ids and the depth at which each is held."""
        n, at, mean, var, pairs = _lists(links, levels, m, s)
        mo, so, over = [0.0] * (2 * n), [0.0] * (2 * n), [float(levels[0])] * (2 * n)
        for node, c1, c2 in reversed(pairs):
            here = at[n + node]
            s1, s2 = var[c1] + (here - at[c1]), var[c2] + (here - at[c2])
            m0, s0 = mo[n + node], so[n + node] + (over[n + node] - here)
            mo[c1], so[c1], _, _ = merge(m0, s0, mean[c2], s2)
            mo[c2], so[c2], _, _ = merge(m0, s0, mean[c1], s1)
            over[c1] = over[c2] = here
        above = np.zeros(2 * n, np.int32)
        nodes = links.order[: n - 1]
        above[links.left[nodes]] = above[links.right[nodes]] = links.depth[n + nodes]
        return np.array(mo, m.dtype), np.array(so, s.dtype), above

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where each of the sorted query keys leaves the trie."""
        n, limit = links.n_rows, links.n_levels
        p = np.searchsorted(_as_bytes(keys), _as_bytes(query), side="right")
        with_left = np.where(p > 0, shared_bits(keys[np.maximum(p - 1, 0)], query, limit), -1)
        with_right = np.where(p < n, shared_bits(keys[np.minimum(p, n - 1)], query, limit), -1)
        go_left = with_left < with_right  # then the key follows the leftmost path right of p
        leaves_at = np.maximum(with_left, with_right).astype(np.int32)
        between = (p > 0) & (p < n)
        node = np.where(between, p, 0)
        here = np.where(go_left, links.right[node], links.left[node])
        here = np.where(between, here, links.root).astype(np.int32)
        above = np.where(between, links.depth[n + node], 0).astype(np.int32)
        while (down := links.depth[here] < leaves_at).any():
            above[down] = links.depth[here[down]]
            inner = here[down] - n
            here[down] = np.where(go_left[down], links.left[inner], links.right[inner])
        return Located(row_idx, here, above, leaves_at)

    def predict(
        self,
        links: Links,
        levels: Floats,
        located: Located,
        inside: tuple[Array, Array],
        outside: tuple[Array, Array],
        with_var: bool,
    ) -> tuple[Floats, Floats | None]:
        """Mean and variance of f at located keys, in the order of the new rows."""
        node, at = located.node, levels[located.leaves_at]
        s_in = inside[1][node] + (at - levels[links.depth[node]])
        s_out = outside[1][node] + (levels[located.above] - at)
        given = (outside[0][node], s_out, inside[0][node], s_in)
        merged = [merge(*each)[:2] for each in zip(*(part.tolist() for part in given), strict=True)]
        mean, var = np.empty((2, node.size))
        mean[located.row_idx] = [m for m, _ in merged]
        var[located.row_idx] = [s for _, s in merged] + (at - levels[-1])
        return mean, var if with_var else None


def shared_bits(a: Words, b: Words, limit: int) -> Ints:
    """Number of leading bits that two keys share, at most `limit`; a, b: uint64 (n, words)."""
    bits = np.unpackbits((a ^ b).astype(">u8").view(np.uint8), axis=1)
    return np.where(bits.any(axis=1), np.minimum(bits.argmax(axis=1), limit), limit)


def _lists(
    links: Links, levels: Floats, m: Array, s: Array
) -> tuple[int, list[float], list[float], list[float], list[tuple[int, int, int]]]:
    """n, levels and messages by id, and nodes with their children, children before parents."""
    n = links.n_rows
    nodes = links.order[: n - 1]
    triples = (nodes, links.left[nodes], links.right[nodes])
    pairs = list(zip(*(part.tolist() for part in triples), strict=True))
    at = levels[np.maximum(links.depth, 0)]  # the depth of id n, which is not used, is -1
    return n, at.tolist(), m.tolist(), s.tolist(), pairs


def _as_bytes(keys: Words) -> npt.NDArray[np.bytes_]:
    """Keys (n, words) as strings (n,) of the same order."""
    return keys.astype(">u8").view(f"S{8 * keys.shape[1]}")[:, 0]
