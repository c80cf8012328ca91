"""A forest: trees and a smooth part over the same rows, whose kernels are added; products with it.

Numpy's functions work on the arrays of any engine, but not on arrays of two kinds at once. So every
array with one entry per row is held in the memory of the forest's engine (`Engine.hold`). Numbers
that decide what to do next are fetched (`Engine.fetch`). On the CPU both return the array itself.

The public functions (`forest_product`, `solve_forest`) check their arguments, hold them and return
an array of the same kind as the input. Internal functions (`multiply`, `solve_held`) take and
return arrays that are held, and check nothing, because reading values back from a GPU stalls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_columns
from triegp.devices import like
from triegp.encoding.codes import Codes
from triegp.engines import Engine, Tree, computed_once
from triegp.smooth.interface import Smooth
from triegp.tree.operators import check_levels
from triegp.tree.order import BitOrder
from triegp.tree.trie import Trie, check_codes

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over the same rows, and perhaps a smooth part, whose kernels are added.

    Use `Forest.of` to make one; the constructor checks nothing.

    Attributes
    ----------
    tries : tuple of Trie
        One per tree, all over the same n rows in the same order.
    levels : tuple of float64 (D + 1,)
        For each tree, the prior variance that remains below each depth; never increasing.
    smooth : Smooth or None
        The smooth part, in the engine's memory; None if there is none.
    """

    tries: tuple[Trie, ...]
    levels: tuple[Floats, ...]
    smooth: Smooth | None = None

    @classmethod
    def of(cls, tries: Any, levels: Any) -> Forest:
        """Make a forest from tries and their levels; both are checked.

        Parameters
        ----------
        tries : sequence of Trie
            Tries of the same rows.
        levels : sequence of array-like (D + 1,)
            R(0..D) of each tree.
        """
        tries, levels = tuple(tries), tuple(levels)
        if not tries:
            raise ValueError("tries must not be empty")
        if len(tries) != len(levels):
            raise ValueError(f"levels must be one per trie, got {len(levels)} for {len(tries)}")
        counts = sorted({trie.n_rows for trie in tries})
        if len(counts) > 1:
            raise ValueError(f"tries must all have the same number of rows, got {counts}")
        pairs = zip(tries, levels, strict=True)
        return cls(tries, tuple(check_levels(trie, level) for trie, level in pairs))

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return self.tries[0].n_rows

    @computed_once
    def trees(self) -> Sequence[Tree]:
        """The trees in the form that engines take."""
        pairs = zip(self.tries, self.levels, strict=True)
        return self.engine.plant([Tree(trie.row_idx, trie.links, levels) for trie, levels in pairs])

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        return {"tries": self.tries, "levels": self.levels, "smooth": self.smooth}

    @property
    def engine(self) -> Engine:
        """The engine that computes: that of the first trie."""
        return self.tries[0].engine

    @property
    def tree_variance(self) -> float:
        """Prior variance of the sum of the trees."""
        return float(sum(levels[0] - levels[-1] for levels in self.levels))

    @property
    def prior_variance(self) -> float:
        """Prior variance of f."""
        return self.tree_variance + (0.0 if self.smooth is None else self.smooth.kernel.scale)


def build_forest(
    codes: Sequence[Codes],
    orders: Sequence[BitOrder],
    engine: Engine,
    smooth: Smooth | None = None,
) -> Forest:
    """The forest of these orders, in the engine's memory; smooth: the smooth part, if any."""
    for part, order in zip(codes, orders, strict=True):
        check_codes(part, order)
    bits = [order.key_bits for order in orders]
    found = engine.link_many([engine.hold(part.packed) for part in codes], bits)
    tries = tuple(Trie(own, *linked, engine) for own, linked in zip(bits, found, strict=True))
    return Forest(tries, tuple(order.levels for order in orders), smooth)


def forest_product(forest: Forest, x: Any) -> Floats:
    """K x for x (n,) or (n, k), rows in their original order. O(n T k).

    The result is the same kind of array as x. Trees run in parallel on the engine of the first
    trie. They are added in a fixed order, so the result does not depend on the number of threads.

    Parameters
    ----------
    forest : Forest
        The sum of trees.
    x : array (n,) or (n, k)
        Vectors, in the order of the rows.
    """
    held = finite_columns("x", x, forest.n_rows, forest.engine.hold)
    out: Floats = like(multiply(forest, held), x)
    return out


def multiply(forest: Forest, x: Floats, variance: Floats | None = None) -> Floats:
    """(K + diag(variance)) x for x (n,) or (n, k) in the engine's memory; nothing is checked."""
    columns = x.reshape(forest.n_rows, -1)
    found = forest.engine.sum_products(forest.trees, columns, variance)
    if forest.smooth is not None:
        found += forest.smooth.multiply(columns)
    return found.reshape(x.shape)


def forest_level_products(forest: Forest, x: Any, z: Any) -> list[Floats]:
    """Quadratic forms x' K_l z for depths l = 0..D, one array (D + 1,) per tree. O(n T k).

    x and z are (n,) or (n, k); the forms are summed over the k columns. K_l[i, j] is 1 if rows i
    and j share the first l key bits in that tree, else 0. The results are the same kind of array
    as x.

    Parameters
    ----------
    forest : Forest
        The sum of trees.
    x, z : array (n,) or (n, k)
        Vectors, in the order of the rows.
    """
    columns = finite_columns("x", x, forest.n_rows, forest.engine.hold)
    others = finite_columns("z", z, forest.n_rows, forest.engine.hold)
    if others.shape != columns.shape:
        raise ValueError(f"z must have the shape of x, {columns.shape}, got {others.shape}")
    pair = (part.reshape(forest.n_rows, -1) for part in (columns, others))
    return [like(part, x) for part in forest.engine.sum_level_products(forest.trees, *pair)]
