"""Observations that share a row of a model: repeated inputs, and leave-one-out among them.

Rows with equal features are folded into one row of a model. Its target is the weighted mean of the
observations, and its weight is the sum of theirs. The likelihood is that of the observations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.precision import hash_rows
from triegp.encoding.reading import row_blocks

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations as they were passed, and the rows of the model that hold them.

    Attributes
    ----------
    index : int64 (n,)
        For each observation its row in the model, -1 if its weight is 0.
    y : float64 (n, k)
        Targets in standardised units.
    weight : float64 (n,) or None
        Weights in the model; None if all are 1.
    copies : bool
        Whether observations that share a row are copies of one observation. Then they are left out
        together; otherwise an observation is predicted from the others at its row.
    unit : float
        Sample weight, as passed, of an observation of weight 1.
    """

    index: Ints
    y: Floats
    weight: Floats | None
    copies: bool
    unit: float = 1.0

    @property
    def repeat(self) -> bool:
        """Whether two observations share a row."""
        used = self.index[self.index >= 0]
        return bool(np.bincount(used).max() > 1)

    @property
    def plain(self) -> bool:
        """Whether every row holds one observation, of weight 1."""
        ones = self.weight is None or bool((self.weight[self.index >= 0] == 1.0).all())
        return ones and not self.repeat

    @property
    def n_rows(self) -> int:
        """Number of observations, n."""
        return int(self.index.size)

    def sorted(self) -> Observations:
        """Those of a weight other than 0, by row and target: sums do not depend on their order."""
        weight = np.ones(self.index.size) if self.weight is None else self.weight
        order = np.lexsort([weight, *self.y.T, self.index])
        return self.select(order[self.index[order] >= 0])

    def select(self, some: Ints) -> Observations:
        """Some of them."""
        weight = None if self.weight is None else self.weight[some]
        return replace(self, index=self.index[some], y=self.y[some], weight=weight)


def hash_inputs(X: npt.NDArray[Any]) -> Hashes:
    """A 64-bit hash of each row of features, (m,). O(m d)."""
    hashes = np.empty(X.shape[0], np.uint64)
    for some in row_blocks(*X.shape):
        columns = np.ascontiguousarray(X[some].T.astype(np.float64)) + 0.0  # -0 is 0
        hashes[some] = hash_rows(columns.view(np.uint64))
    return hashes


def find_inputs(known: Hashes, X: npt.NDArray[Any]) -> Ints:
    """Place of each row of X among those whose sorted hashes are known, (m,); -1 if not there."""
    hashes = hash_inputs(X)
    at = np.minimum(np.searchsorted(known, hashes), known.size - 1)
    return np.where(known[at] == hashes, at, -1)


@dataclass(frozen=True, eq=False)
class Others:
    """The other observations at an observation's row, float64 (n,) each.

    Attributes
    ----------
    mean : float64 (n,)
        Their weighted mean.
    weight : float64 (n,)
        Their total weight.
    count : float64 (n,)
        Their number.
    spread : float64 (n,)
        Their weighted mean square deviation from `mean`.
    """

    mean: Floats
    weight: Floats
    count: Floats
    spread: Floats

    def select(self, some: npt.NDArray[Any]) -> Others:
        """Those of some of the observations."""
        return Others(self.mean[some], self.weight[some], self.count[some], self.spread[some])

    def squares(self, mean: Floats) -> Floats:
        """Sum of their squared distances from given means, (n,), each counted once."""
        return self.count * (self.spread + np.square(self.mean - mean))


NO_OTHERS = Others(*np.zeros((4, 0)))


def find_others(observations: Observations, column: int) -> Others:
    """Summarise, for each observation, the other observations at its row, (n,) each. O(n).

    All are 0 if there are none, or if observations at one row are copies.
    """
    n = observations.n_rows
    if observations.copies:
        return Others(*np.zeros((4, n)))
    used = observations.index >= 0
    index = np.where(used, observations.index, 0)
    weight = np.ones(n) if observations.weight is None else observations.weight
    weight = np.where(used, weight, 0.0)
    y = observations.y[:, column]
    count = np.bincount(index, used)[index] - used
    total = np.where(count > 0, np.bincount(index, weight)[index] - weight, 0.0)
    # Deviations from the mean of the row keep their accuracy if the targets are large.
    centre = np.bincount(index, weight * y) / np.maximum(np.bincount(index, weight), 1e-300)
    apart = y - centre[index]
    rest = np.bincount(index, weight * apart)[index] - weight * apart
    some = total > 0
    least = np.where(some, np.maximum(total, 1e-300), 1.0)  # without others, rounding is left
    mean = np.where(some, centre[index] + rest / least, 0.0)
    square = weight * np.square(apart)
    square = np.bincount(index, square)[index] - square
    spread = np.where(some, square / least - np.square(rest / least), 0.0)
    return Others(mean, np.maximum(total, 0.0), count.astype(np.float64), np.maximum(spread, 0.0))


def find_observed(observations: Observations, column: int, n_rows: int) -> Others:
    """Summarise all observations at each row of a model: the others of a new one there. O(n)."""
    used = np.flatnonzero(observations.index >= 0)
    weight = np.ones(used.size) if observations.weight is None else observations.weight[used]
    each = Others(observations.y[used, column], weight, np.ones(used.size), np.zeros(used.size))
    return join_others(each, observations.index[used], n_rows)


def join_others(others: Others, group: Ints, n_groups: int) -> Others:
    """Summarise the observations of each group of summaries, (n_groups,) each; 0 for empty ones."""

    def add(values: Floats) -> Floats:
        return np.bincount(group, values, n_groups).astype(np.float64)

    weight = add(others.weight)
    least = np.maximum(weight, 1e-300)
    first = np.zeros(n_groups)
    first[group] = others.mean  # deviations from one of them keep their accuracy
    apart = others.mean - first[group]
    shift = add(others.weight * apart) / least
    square = others.spread + np.square(apart - shift[group])
    spread = add(others.weight * square) / least
    return Others(first + shift, weight, add(others.count), spread)


def append_others(others: Others, more: Others) -> Others:
    """Two sets of summaries, one after the other."""
    names = ("mean", "weight", "count", "spread")
    return Others(*(np.append(getattr(others, name), getattr(more, name)) for name in names))


def sort_inputs(hashes: Hashes, seen: tuple[Others, ...]) -> tuple[Hashes, tuple[Others, ...]]:
    """Distinct hashes in their order, and the observations at each of these inputs per target."""
    distinct, group = np.unique(hashes, return_inverse=True)
    return distinct, tuple(join_others(part, group, distinct.size) for part in seen)


def add_others(
    mean: Floats, var: Floats, run: Floats, noise: Floats, others: Others
) -> tuple[Floats, Floats]:
    """Mean and variance of f at rows, given also the other observations there.

    Parameters
    ----------
    mean, var : float64 (..., n)
        f at the row of each observation, given all other rows.
    run : float64 (..., n)
        Part of `var` that counts as noise if there is one other observation, as in
        `triegp.tree.posterior.run_variance`; 0 to count all of it as function.
    noise : float64 (..., n)
        Noise variance of an observation of weight 1.
    others : Others
        The other observations at each row.
    """
    own = np.where(others.count > 1, 0.0, run)
    shared = np.maximum(var - own, 0.0)
    some = others.weight > 0
    gain = np.where(some, shared / (var + noise / np.where(some, others.weight, 1.0)), 0.0)
    return mean + gain * (others.mean - mean), shared * (1.0 - gain) + own
