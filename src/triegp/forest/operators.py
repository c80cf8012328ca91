"""Products with the kernel matrix of a forest: the sum of its trees' products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator

from triegp.engines import Engine
from triegp.operators import check_levels, product
from triegp.trie import Trie, with_engine
from triegp.validation import finite_columns, non_negative_vector

TREES_AT_A_TIME = 8  # whose products are held at once

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over the same rows, whose kernels add up.

    Make one with `Forest.of`; the constructor checks nothing.

    Attributes
    ----------
    tries : tuple of Trie
        All over the same n rows, in the same order of rows.
    levels : tuple of float64 (D + 1,)
        Of each tree, the prior variance that remains below each depth; never rising.
    """

    tries: tuple[Trie, ...]
    levels: tuple[Floats, ...]

    @classmethod
    def of(cls, tries: Any, levels: Any) -> Forest:
        """Check tries and their levels, and put them together."""
        tries, levels = tuple(tries), tuple(levels)
        if not tries:
            raise ValueError("tries must not be empty")
        if len(tries) != len(levels):
            raise ValueError(f"levels must be one a trie, got {len(levels)} for {len(tries)} tries")
        counts = sorted({trie.n_rows for trie in tries})
        if len(counts) > 1:
            raise ValueError(f"tries must have the same rows, got {counts} of them")
        pairs = zip(tries, levels, strict=True)
        return cls(tries, tuple(check_levels(trie, level) for trie, level in pairs))

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return self.tries[0].n_rows

    @property
    def prior_variance(self) -> float:
        """Variance of f before any data."""
        return float(sum(levels[0] - levels[-1] for levels in self.levels))


def forest_product(forest: Forest, x: Any) -> Floats:
    """K x for x (n,) or (n, k), in the order of the rows. O(n T k).

    Trees run side by side, eight at a time and each on one thread, on the engine of the first; they
    are added in their order, so the result is the same for any number of threads.
    """
    x = finite_columns("x", x, forest.n_rows)
    total: Floats = np.zeros_like(x)
    pairs = list(zip(forest.tries, forest.levels, strict=True))
    engine = forest.tries[0].engine

    def multiply(alone: Engine, pair: tuple[Trie, Floats]) -> Floats:
        return product(with_engine(pair[0], alone), pair[1], x)

    for start in range(0, len(pairs), TREES_AT_A_TIME):
        for part in engine.each(multiply, pairs[start : start + TREES_AT_A_TIME]):
            total += part
    return total


def forest_diagonal(forest: Forest) -> Floats:
    """Diagonal of K, (n,): the prior variance at every row."""
    return np.full(forest.n_rows, forest.prior_variance)


def forest_operator(forest: Forest, noise: Any = 0.0) -> LinearOperator:
    """K + noise as a symmetric scipy LinearOperator (n, n); noise is a number or (n,)."""
    given = np.broadcast_to(np.asarray(noise, np.float64), (forest.n_rows,))
    variance = non_negative_vector("noise", given, forest.n_rows)

    def multiply(x: Floats) -> Floats:
        return forest_product(forest, x) + (variance if x.ndim == 1 else variance[:, None]) * x

    return LinearOperator(
        (forest.n_rows, forest.n_rows),
        matvec=multiply,
        rmatvec=multiply,
        matmat=multiply,
        rmatmat=multiply,
        dtype=float,
    )
