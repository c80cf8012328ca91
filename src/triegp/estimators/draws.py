"""Functions drawn from the posterior of a fitted estimator."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from triegp.devices import like
from triegp.encoding.columns import Columns
from triegp.encoding.layout import N_VARIANTS, Layout, find_unseen
from triegp.encoding.precision import hash_rows
from triegp.engines import keyed
from triegp.estimators.new_rows import NewRows
from triegp.estimators.units import Target
from triegp.models.draws import Stream, seeds_for
from triegp.models.repeats import hash_inputs

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BLOCK_ROWS = 1 << 17  # rows evaluated at a time
BLOCK_VALUES = 1 << 22  # values of functions that are computed at a time
MISSING = np.uint64(0x7FF8000000000001)  # stands for a missing value, whatever its bits


class FunctionDraws(Sequence["FunctionDraw"]):
    """Functions drawn from the posterior; returned by `sample_functions` of an estimator.

    Each function is one joint draw of the latent function, noise not included. Its value at a row
    depends on that row only: it is the same to the last bit whatever rows are asked together, in
    which order, by how many threads, after pickling and in other processes. Rows that are added to
    the estimator later do not change it. Functions can be shared by threads.

    A pickle holds the model, without its training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> X = np.random.default_rng(0).random((200, 2))
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, X[:, 0])
    >>> draws = model.sample_functions(5, random_state=1)
    >>> values = draws(X)  # all functions at once
    >>> len(draws), values.shape
    (5, (200, 5))
    >>> bool((draws[3](X[::-1][:7]) == values[::-1, 3][:7]).all())
    True
    """

    def __init__(self, model: Any, seeds: Words, parts: Sequence[Any]) -> None:
        self._model, self._seeds, self._parts = model, seeds, tuple(parts)

    def __call__(self, X: Any) -> Any:
        """Values of all functions at m rows.

        Parameters
        ----------
        X : array-like (m, n_features)
            Rows, as for `predict`.

        Returns
        -------
        float64 (m, n_functions) or (m, n_targets, n_functions)
            In the units of y.

        Notes
        -----
        O(m D n_functions) for trees of depth D, and one prediction with variances.
        """
        found = self._model._evaluate_draws(X, self._seeds, self._parts)
        return like(found, X)

    def __len__(self) -> int:
        """Number of functions."""
        return int(self._seeds.size)

    @overload
    def __getitem__(self, index: int) -> FunctionDraw: ...

    @overload
    def __getitem__(self, index: slice) -> FunctionDraws: ...

    def __getitem__(self, index: int | slice) -> FunctionDraw | FunctionDraws:
        """One function, or some of them."""
        if not isinstance(index, slice):
            at = range(len(self))[index]  # raises IndexError
            return FunctionDraw(self[at : at + 1])
        some = np.arange(len(self))[index]
        parts = [part.select(some) for part in self._parts]
        return FunctionDraws(self._model, self._seeds[some], parts)

    def __repr__(self) -> str:
        return f"<{len(self)} functions drawn from a {type(self._model).__name__}>"


@dataclass(frozen=True, eq=False, repr=False)
class FunctionDraw:
    """One function drawn from the posterior: an entry of `FunctionDraws`."""

    _only: FunctionDraws

    def __call__(self, X: Any) -> Any:
        """Values at rows X (m, n_features): float64 (m,) or (m, n_targets), in the units of y."""
        return self._only(X)[..., 0]

    def __repr__(self) -> str:
        return f"<one function drawn from a {type(self._only._model).__name__}>"


def prepare_functions(targets: Sequence[Target], seeds: Words) -> list[Any]:
    """What the functions of each target need, given one seed per function."""
    return [
        target.fitted.prepare_draws(target.column, seeds_for(seeds, Stream.TARGET, t))
        for t, target in enumerate(targets)
    ]


def evaluate_functions(
    targets: Sequence[Target], parts: Sequence[Any], seeds: Words, X: NewRows, unseen: Words
) -> list[Floats]:
    """Functions of each target at all rows, (m, k), in the units of y.

    A function draws one variant per group of unseen values.

    unseen: uint64, names of the rows with unseen values, of `name_unseen`.
    """
    found = [np.empty((X.n_rows, seeds.size)) for _ in targets]
    at, others = X.places(1), X.places(N_VARIANTS)
    for out, part in zip(found, _evaluate(targets, parts, X.seen, seeds.size), strict=True):
        out[at] = part
    if others.size:
        chosen = choose_variants(seeds, unseen)
        place = np.arange(others.size)[:, None] * N_VARIANTS + chosen
        drawn = _evaluate(targets, parts, X.variants, seeds.size)
        for out, part in zip(found, drawn, strict=True):
            out[others] = np.take_along_axis(part, place, axis=0)
    return [target.in_units(part) for target, part in zip(targets, found, strict=True)]


def _evaluate(targets: Sequence[Target], parts: Sequence[Any], X: Array, k: int) -> list[Floats]:
    """Functions of each target at rows of working columns, (m, k), in standardised units."""
    found = [np.empty((X.shape[0], k)) for _ in targets]
    for fitted in {id(target.fitted): target.fitted for target in targets}.values():
        own = [t for t, target in enumerate(targets) if target.fitted is fitted]
        step = fitted.draw_rows or max(1, min(BLOCK_ROWS, BLOCK_VALUES // k))
        for start in range(0, X.shape[0], step):
            some = X[start : start + step]
            n_rows = some.shape[0]
            if fitted.draw_rows and n_rows < step:
                some = np.concatenate([some, np.repeat(some[-1:], step - n_rows, axis=0)])
            names, points = hash_inputs(some), fitted.read(some, var=True)
            for t in own:
                values = fitted.evaluate_draws(points, targets[t].column, parts[t], names)
                found[t][start : start + n_rows] = values[:n_rows]
    return found


def choose_variants(seeds: Words, names: Words) -> Ints:
    """The variant that stands for each name in each function, int64 (m, k)."""
    own = seeds_for(seeds, Stream.VARIANT)
    return (keyed.uniforms(own + names[:, None]) * N_VARIANTS).astype(np.int64)


def name_unseen(layout: Layout, data: Array, columns: Columns) -> Words:
    """Names of the rows with unseen values, uint64 (m_unseen,).

    Rows whose unseen values are the same unknown categories have the same name. A row with an
    unseen gap has a name of its own. Names do not depend on the other rows: categories are named by
    their values, not by the codes that they happen to get.
    """
    unseen = find_unseen(layout, data)
    if unseen is None:
        return np.zeros(0, np.uint64)
    rows = np.asarray(unseen.any(axis=1))
    data, unseen = data[rows], unseen[rows]
    words = (data.astype(np.float64) + 0.0).view(np.uint64)  # -0 is 0
    words[np.isnan(data)] = MISSING
    for j in np.flatnonzero(layout.n_known).tolist():
        for i in np.flatnonzero(data[:, j] >= layout.n_known[j]).tolist():
            words[i, j] = _name(columns.categories[j][int(data[i, j])])
    gaps = np.asarray((unseen & np.isnan(data)).any(axis=1))
    words = np.where(unseen | gaps[:, None], words, np.uint64(0))
    return hash_rows(np.ascontiguousarray(words.T))


def _name(value: Any) -> int:
    digest = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
