"""Checks of the contents of a model file, which may be anything; engines do not check them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.checks import one_of
from triegp.encoding.scaling import N_STEPS
from triegp.tree.order import NUGGETS, BitOrder
from triegp.tree.rows import RANGES, Rows, check_weight_range, refuse_zero_weights

if sys.platform != "win32":
    import resource

Arrays = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Item = TypeVar("Item")

CONTAINER_LIMITS = (  # of memory in bytes, versions 2 and 1 of cgroups
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
LARGEST_FACTOR = 1e6  # by which calibration may widen a standard deviation
TEMPERED = (1e-30, 1e30)  # by which a mixture may multiply variances


def check_array(
    arrays: Arrays,
    name: str,
    dtype: npt.DTypeLike,
    shape: tuple[int | None, ...],
    least: int = 1,
    *,
    missing: bool = False,
) -> npt.NDArray[Any]:
    """Return arrays[name]; raises ValueError for a wrong dtype or shape, or if it is not finite.

    None in shape stands for any length of at least `least`. missing: whether NaN is allowed.
    """
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        have == want if want is not None else have >= least
        for have, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype != np.dtype(dtype) or not fits:
        raise ValueError(
            f"{name} must be {np.dtype(dtype)} of shape {shape}, got {array.dtype} {array.shape}"
        )
    if array.dtype.kind == "f":
        bad = np.isinf(array) if missing else ~np.isfinite(array)
        if bad.any():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def check_memory(n_bytes: int) -> None:
    """Raise MemoryError if a model of so many bytes exceeds the memory that this process may have.

    A file is much smaller than its model. Without this, an edited file could ask for any amount.
    Nothing is checked on Windows, which does not tell.
    """
    if sys.platform == "win32":
        return
    largest = min(_memory_limits())
    if n_bytes > largest:
        raise MemoryError(
            f"the model needs about {n_bytes / 1e9:.3g} GB of memory, this machine has "
            f"{largest / 1e9:.3g} GB for this process"
        )


def _memory_limits() -> Iterator[int]:
    """Bytes of memory of the machine, of `ulimit -v`, and of the container, if these are set."""
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # another version of cgroups, or no limit: "max"
            yield int(path.read_text())


def check_index(name: str, index: Any, items: Sequence[Item]) -> Item:
    """Return items[index]; raises ValueError unless index is an int from 0 to len(items) - 1."""
    if type(index) is not int or not 0 <= index < len(items):
        raise ValueError(f"{name} must be an int from 0 to {len(items) - 1}, got {index!r:.40}")
    return items[index]


def check_stored_order(arrays: Arrays, name: str, n_bits: int, nugget: Any) -> BitOrder:
    """Order of a tree: bits must be a permutation, the remaining variance must decrease to 0."""
    bits = check_array(arrays, f"{name}.bits", np.int64, (n_bits,))
    remaining = check_array(arrays, f"{name}.remaining", np.float64, (n_bits + 1,))
    if not _is_permutation(bits):
        raise ValueError(f"{name}.bits must be a permutation of 0..{n_bits - 1}")
    if not (remaining[0] > 0 and remaining[-1] == 0 and (np.diff(remaining) <= 0).all()):
        raise ValueError(f"{name}.remaining must decrease from a positive number to 0")
    return BitOrder(bits, remaining, one_of("nugget", nugget, NUGGETS))


def check_sorted_rows(
    arrays: Arrays, name: str, n_rows: int, n_levels: int
) -> tuple[Ids, Ids, Words]:
    """Row indices in key order, lcp of neighbours and keys of a tree; they must be consistent.

    O(n q / 64).
    """
    row_idx = check_array(arrays, f"{name}.row_idx", np.int32, (n_rows,))
    lcp = check_array(arrays, f"{name}.lcp", np.int32, (n_rows,))
    n_words = max(1, -(-n_levels // 64))
    keys = check_array(arrays, f"{name}.keys", np.uint64, (n_rows, n_words))
    if not _is_permutation(row_idx):
        raise ValueError(f"{name}.row_idx must be a permutation of 0..{n_rows - 1}")
    _check_unused(keys, name, n_levels)
    shared, rises = _neighbours(keys, n_levels)
    if not rises.all():
        raise ValueError(f"{name}.keys must be sorted")
    if lcp[0] != -1 or not np.array_equal(lcp[1:], shared):
        raise ValueError(f"{name}.lcp must be the common prefix lengths of neighbouring keys")
    if (np.diff(row_idx)[shared == n_levels] < 0).any():
        raise ValueError(f"{name}.row_idx must increase among rows with the same key")
    return row_idx, lcp, keys


def check_cells(arrays: Arrays, name: str, n_levels: int) -> tuple[Words, Ids]:
    """Distinct sorted keys of a tree's cells, and the lcp of neighbours. O(c q / 64)."""
    n_words = -(-n_levels // 64)
    keys = check_array(arrays, f"{name}.keys", np.uint64, (None, n_words))
    _check_unused(keys, name, n_levels)
    shared, rises = _neighbours(keys, n_levels)
    if not (rises.all() and (shared < n_levels).all()):
        raise ValueError(f"{name}.keys must be sorted and distinct")
    return keys, np.append(np.int32(-1), shared).astype(np.int32)


class Counts(NamedTuple):
    """Weights, copies and scatter of the rows of one target, as in `Rows`."""

    weight: Floats | None
    copies: Floats | None
    scatter: Floats | None


def check_counts(arrays: Arrays, prefix: str, shape: tuple[int, ...]) -> list[Counts]:
    """Weights, copies and scatter of each target; raises ValueError for negative ones.

    shape: number of targets, number of rows. Scatter differs between targets, the others do not.
    """
    found: dict[str, Floats | None] = {}
    for name, own in (("row_weight", shape[1:]), ("copies", shape[1:]), ("scatter", shape)):
        found[name] = None
        if f"{prefix}.{name}" in arrays:
            values = check_array(arrays, f"{prefix}.{name}", np.float64, own)
            if values.min() < 0 or values.max() > 1e300:
                raise ValueError(f"{prefix}.{name} must not be negative, and at most 1e300")
            found[name] = values + 0.0  # noise over a weight of -0 would be minus infinity
    if found["row_weight"] is None and (
        found["copies"] is not None or found["scatter"] is not None
    ):
        raise ValueError(f"{prefix}.copies and {prefix}.scatter require {prefix}.row_weight")
    scatter = found["scatter"]
    return [
        Counts(found["row_weight"], found["copies"], None if scatter is None else scatter[t])
        for t in range(shape[0])
    ]


def check_noisy_rows(
    y: Floats, arrays: Arrays, name: str, counts: Counts, dtype: np.dtype[Any]
) -> Rows:
    """Rows of targets, noise and counts; raises ValueError outside the range of `dtype`.

    y and counts must be known to be finite.
    """
    smallest, largest, furthest = RANGES[dtype]
    noise = check_array(arrays, name, np.float64, (None,))
    if noise.size not in (1, y.size):
        raise ValueError(f"{name} must have 1 or {y.size} entries, got {noise.size}")
    if np.abs(y).max() > furthest or noise.min() < smallest or noise.max() > largest:
        raise ValueError(f"{name} and the targets must lie in the range of messages in {dtype}")
    rows = Rows(y, noise=noise, **counts._asdict())
    refuse_zero_weights(rows)
    if rows.weight is not None:
        check_weight_range(noise, rows.weight, smallest, largest)
    return rows


def check_knots(arrays: Arrays, name: str, low: Floats, high: Floats) -> Floats:
    """Percentiles of features with this box, (d, 11); they must rise and contain the box."""
    knots = check_array(arrays, name, np.float64, (low.size, N_STEPS + 1))
    if (np.diff(knots) < 0).any() or (knots[:, 0] > low).any() or (knots[:, -1] < high).any():
        raise ValueError(f"{name} must not decrease, and contain the box")
    return knots


def check_mixing(weight: Floats, tempering: Floats) -> None:
    """Raise ValueError for invalid weights (n_targets, K) or tempering (n_targets, 4).

    tempering: shrink, scale, outlier and outlier_var of `Calibration`.
    """
    if (
        weight.min() < 0
        or weight.max() > 2.0  # so that the sum does not overflow
        or np.abs(weight.sum(axis=1) - 1.0).max() > 1e-6
    ):
        raise ValueError("weight of the members must be non-negative and sum to 1")
    shrink, scale, outlier, outlier_var = tempering.T
    if not ((shrink >= 0) & (shrink <= 1) & (outlier >= 0) & (outlier < 1)).all():
        raise ValueError("tempering must have 0 <= shrink <= 1 and 0 <= outlier < 1")
    least, most = TEMPERED
    for factor in (scale, outlier_var):
        if not ((factor >= least) & (factor <= most)).all():
            raise ValueError(
                f"tempering must have scale and outlier_var in [{least:g}, {most:g}], "
                f"got {factor.min()} to {factor.max()}"
            )


def check_training_rows(arrays: Arrays, n_rows: int, n_features: int, n_targets: int) -> None:
    """Raise ValueError for invalid training rows, which `refresh` uses."""
    kind = np.float32 if arrays["rows.X"].dtype == np.float32 else np.float64
    check_array(arrays, "rows.X", kind, (n_rows, n_features), missing=True)
    check_array(arrays, "rows.targets", np.float64, (n_rows, n_targets))
    for name in ("rows.weight", "rows.known_noise"):
        if name in arrays and check_array(arrays, name, np.float64, (n_rows,)).min() < 0:
            raise ValueError(f"{name} must not be negative")


def _check_unused(keys: Words, name: str, n_levels: int) -> None:
    unused = 64 * keys.shape[1] - n_levels
    if unused and (keys[:, -1] & np.uint64((1 << unused) - 1)).any():
        raise ValueError(f"{name}.keys must be 0 after the first {n_levels} bits")


def _is_permutation(numbers: npt.NDArray[Any]) -> bool:
    if numbers.min() < 0 or numbers.max() >= numbers.size:
        return False
    return bool((np.bincount(numbers, minlength=numbers.size) == 1).all())


def _neighbours(keys: Words, n_levels: int) -> tuple[Ids, npt.NDArray[np.bool_]]:
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
