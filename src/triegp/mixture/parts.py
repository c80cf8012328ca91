"""Parts of the rows that orders and weights are learned from: each contains the one before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.devices import like
from triegp.tree.rows import Rows

LEAST_ROWS = 10_000  # of the first part
GROWTH = 4  # each part has this many times the rows of the one before
LEAST_GAIN = 3e-3  # of nll per row, for an order to be trained on the next part, too


def part_sizes(n_rows: int) -> list[int]:
    """Rows of each part: all, a quarter of them, a quarter of that, and so on; the smallest first.

    No part has less than LEAST_ROWS, unless there are not more rows.
    """
    sizes = [n_rows]
    while sizes[0] // GROWTH >= LEAST_ROWS:
        sizes.insert(0, sizes[0] // GROWTH)
    return sizes


class Parts:
    """Nested random parts of the rows.

    Parameters
    ----------
    rows : Rows
        All rows, with their features.
    sizes : sequence of int
        Rows of each part, rising; the last is the number of rows.
    rng : Generator
        Source of random numbers, not used if there is one part.
    """

    def __init__(self, rows: Rows, sizes: list[int], rng: np.random.Generator) -> None:
        self._rows, self.sizes = rows, sizes
        self._mixed: npt.NDArray[np.int64] | None = None
        if len(sizes) > 1:
            self._mixed = rng.permutation(rows.n_rows)

    def __len__(self) -> int:
        return len(self.sizes)

    def rows(self, part: int) -> Rows:
        """Rows of a part, in the order of all rows; copied unless these are all rows."""
        if self._mixed is None or self.sizes[part] == self._rows.n_rows:
            return self._rows
        some = np.sort(self._mixed[: self.sizes[part]])
        return self._rows.select(like(some, self._rows.y))
