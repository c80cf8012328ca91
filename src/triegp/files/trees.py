"""Rules and checks of trees in a model file: orders, sorted keys, rows with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.files.codec import RULES, Rule, a_permutation
from triegp.tree.order import NUGGETS, BitOrder
from triegp.tree.rows import RANGES, Rows, check_weight_range, refuse_zero_weights
from triegp.tree.trie import SortedKeys

Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


def check_order(order: BitOrder) -> None:
    """Raise ValueError unless the remaining variance decreases to 0."""
    bits, remaining = order.bits, order.remaining
    if remaining.size != bits.size + 1:
        raise ValueError(f"remaining must have {bits.size + 1} entries, got {remaining.size}")
    if not (remaining[0] > 0 and remaining[-1] == 0 and (np.diff(remaining) <= 0).all()):
        raise ValueError("remaining must decrease from a positive number to 0")


def check_leaves(leaves: SortedKeys, n_rows: int, n_levels: int) -> None:
    """Raise ValueError unless keys of so many bits are sorted and all fits. O(n q / 64)."""
    row_idx, lcp, keys = leaves
    n_words = max(1, -(-n_levels // 64))
    if keys.shape != (n_rows, n_words):
        raise ValueError(f"keys must have shape {(n_rows, n_words)}, got {keys.shape}")
    unused = 64 * n_words - n_levels
    if unused and (keys[:, -1] & np.uint64((1 << unused) - 1)).any():
        raise ValueError(f"keys must be 0 after the first {n_levels} bits")
    shared, rises = neighbours(keys, n_levels)
    if not rises.all():
        raise ValueError("keys must be sorted")
    if lcp[0] != -1 or not np.array_equal(lcp[1:], shared):
        raise ValueError("lcp must be the common prefix lengths of neighbouring keys")
    if (np.diff(row_idx)[shared == n_levels] < 0).any():
        raise ValueError("row_idx must increase among rows with the same key")


def check_noisy_rows(rows: Rows, dtype: np.dtype[Any]) -> None:
    """Raise ValueError unless targets, noise and weights of one target are in range of `dtype`."""
    smallest, largest, furthest = RANGES[dtype]
    y, noise = rows.y, rows.noise
    if noise is None or y.ndim != 1 or rows.known_noise is not None:
        raise ValueError("rows must have one target, and noise that includes the known one")
    if np.abs(y).max() > furthest or noise.min() < smallest or noise.max() > largest:
        raise ValueError(f"noise and targets must lie in the range of messages in {dtype}")
    refuse_zero_weights(rows)
    if rows.weight is not None:
        check_weight_range(noise, rows.weight, smallest, largest)


def neighbours(keys: Words, n_levels: int) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Bits that each key shares with the one before, and whether it is not less, (n - 1,) each.

    keys: uint64 (n, w), the first bit is the most significant bit of the first word.
    """
    shared = np.full(max(keys.shape[0] - 1, 0), n_levels, dtype=np.int32)
    rises = np.ones(shared.size, dtype=np.bool_)
    for w in reversed(range(keys.shape[1])):
        before, after = keys[:-1, w], keys[1:, w]
        differ = before ^ after
        upper = (differ >> np.uint64(32)).astype(np.float64)  # exact, as 64 bits would not be
        lower = (differ & np.uint64(0xFFFFFFFF)).astype(np.float64)
        length = np.where(upper > 0, np.frexp(upper)[1] + 32, np.frexp(lower)[1])
        here = differ != 0
        shared[here] = 64 * w + 64 - length[here]
        rises[here] = (after > before)[here]
    return shared, rises


RULES[BitOrder] = Rule(
    "bits:q remaining:r", {"bits": a_permutation, "nugget": NUGGETS}, check=check_order
)
RULES[SortedKeys] = Rule("row_idx:n lcp:n keys:n,w", {"row_idx": a_permutation})
