"""Fitting more rows than a model can hold: from a sample of them, then all of them in pieces.

Three passes over the rows. The first draws a sample by the hashes of the inputs, so that all rows
at one input are in it or none, whatever the pieces. From the sample follow the kinds of columns,
percentiles, units of the targets, bit orders and their weights. The second pass finds the box of
the features and the largest targets. The third sums all rows into the cells of every tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout, read_working
from triegp.encoding.precision import hash_rows
from triegp.encoding.reading import check_finite
from triegp.encoding.tables import read_table
from triegp.estimators.inputs import read_rows, standardise
from triegp.estimators.new_rows import any_unseen
from triegp.estimators.transforms import Transforms, transform_rows
from triegp.mixture.cells import Units
from triegp.models.pieces import Piece, Pieces
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

FEWEST_ROWS = 10_000  # with fewer rows there are no cells
SAMPLE_ROWS = 1 << 21  # that orders are learned from
HELD_ROWS = 1 << 18  # of the sample, that the model holds and calibration learns from


class Sample(NamedTuple):
    """Some of the rows, in their order, with the place of each input in [0, 1)."""

    X: Any
    y: npt.NDArray[Any]
    weight: Floats | None
    place: Floats

    @property
    def n_distinct(self) -> int:
        """Number of distinct inputs."""
        return int(np.unique(self.place).size)


def draw_sample(pieces: Pieces, estimator: Any, salt: int, share: float) -> Sample:
    """Rows of a share of the inputs, 0 < share <= 1.

    estimator: not fitted; it names the kinds of columns and the error messages. salt: another one
    draws other inputs.
    """
    parts = pieces.collect(partial(_take, estimator=estimator, salt=salt, share=share))
    some = [part for part in parts if part.place.size] or parts[:1]
    weight = None
    if any(part.weight is not None for part in some):
        filled = [np.ones(len(p.place)) if p.weight is None else p.weight for p in some]
        weight = np.concatenate(filled)
    return Sample(
        pieces.concat([part.X for part in some]),
        np.concatenate([part.y for part in some]),
        weight,
        np.concatenate([part.place for part in some]),
    )


def _take(piece: Piece, estimator: Any, salt: int, share: float) -> Sample:
    place = input_places(piece, estimator, salt)
    keep = np.flatnonzero(place < share)
    y, weight = np.asarray(piece.y), piece.weight
    if len(y) != place.size:
        raise ValueError(f"X and y must have the same number of rows, got {place.size}, {len(y)}")
    own = None if weight is None else np.broadcast_to(np.asarray(weight), place.shape)[keep]
    return Sample(_select(piece.X, keep), y[keep], own, place[keep])


def input_places(piece: Piece, estimator: Any, salt: int) -> Floats:
    """Place of the input of each row, in [0, 1), by a hash of its values. O(m d)."""
    chosen = estimator.categorical_features
    data, columns = read_table(piece.X, estimator, categorical=chosen, learn_dates=False)
    words = np.empty((data.shape[1], data.shape[0]), np.uint64)
    for j, values in enumerate(columns.categories):
        column = data[:, j].astype(np.float64) + 0.0  # -0 is 0
        words[j] = np.where(np.isnan(column), np.nan, column).view(np.uint64)
        if values:  # codes depend on the piece, values do not
            known = np.isfinite(column)
            hashed = np.array([_hash_value(value) for value in values], np.uint64)
            words[j, known] = hashed[column[known].astype(np.int64)]
    salted = np.stack([hash_rows(words), np.full(words.shape[1], salt, np.uint64)])
    return np.asarray(hash_rows(salted) >> np.uint64(11)) * 2.0**-53


def _hash_value(value: Any) -> int:
    digest = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _select(X: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Some rows of a table, as a table of the same kind."""
    if isinstance(X, np.ndarray):
        return X[rows]
    return nw.from_native(X)[rows.tolist()].to_native()


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads pieces as the model does.

    Attributes
    ----------
    estimator : estimator
        Not fitted; error messages name it.
    columns, layout, transforms
        How columns become working columns, and targets what the model works on.
    mean, scale : float64 (k,)
        How targets are standardised.
    targets : tuple of int
        The targets to read.
    """

    estimator: Any
    columns: Columns
    layout: Layout
    transforms: Transforms
    mean: Floats
    scale: Floats
    targets: tuple[int, ...]

    def __call__(self, piece: Piece) -> Rows:
        """Rows of a piece that the model can read and whose weight is not 0."""
        try:
            data, _ = read_table(piece.X, self.estimator, self.columns)
            check_finite(data, self.columns.names, missing=True)
            rows = read_rows(data, piece.y, piece.weight, None, all_zero=True)
        except ValueError as error:
            raise ValueError(f"{error} (rows are counted from row {piece.first:,})") from error
        working, unseen = read_working(self.layout, data)
        keep = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
        keep &= ~any_unseen(unseen)
        rows = replace(rows, X=working)
        if not keep.all():
            rows = rows.select(np.flatnonzero(keep))
        rows = transform_rows(rows, self.transforms)
        return standardise(rows, self.mean, self.scale).targets(list(self.targets))


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of all rows after one pass.

    Attributes
    ----------
    low, high : float64 (d,)
        Range of each working column.
    target, square : float64 (k,)
        Largest |weight * target| and weight * target^2.
    weight : float
        Largest weight.
    least : float
        Smallest weight.
    n_used : int
        Number of rows that the model reads.
    n_aside : int
        Number of rows that it does not: the sample has not seen their categories or gaps.
    """

    low: Floats
    high: Floats
    target: Floats
    square: Floats
    weight: float
    least: float
    n_used: int
    n_aside: int

    def units(self, group: Sequence[int]) -> Units:
        """Units of the sums of some of the targets."""
        return Units(
            tuple(self.target[group].tolist()),
            tuple(self.square[group].tolist()),
            None if self.least == self.weight == 1.0 else self.weight,
        )


def survey_piece(piece: Piece, reader: Reader) -> Survey:
    """Survey of one piece. O(m d)."""
    rows = reader(piece)
    X, k = rows.features, rows.n_targets
    n_counted = len(piece.y) if piece.weight is None else np.count_nonzero(piece.weight)
    if not rows.n_rows:
        none = np.full(X.shape[1], np.inf)
        return Survey(none, -none, np.zeros(k), np.zeros(k), 0.0, np.inf, 0, int(n_counted))
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    size = np.abs(rows.y)
    if not np.isfinite(size).all():
        row = int(np.argmax(~np.isfinite(size).all(axis=1)))
        raise ValueError(
            "y must lie in the domain of target_transform, which was learned from a sample of the "
            f"rows: a target among those from row {piece.first:,} on does not (number {row:,} of "
            "those used)"
        )
    return Survey(
        X.min(axis=0).astype(np.float64),
        X.max(axis=0).astype(np.float64),
        (weight[:, None] * size).max(axis=0),
        (weight[:, None] * np.square(size)).max(axis=0),
        float(weight.max()),
        float(weight.min()),
        rows.n_rows,
        int(n_counted) - rows.n_rows,
    )


def join_surveys(one: Survey, other: Survey) -> Survey:
    """Survey of the rows of both."""
    return Survey(
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
        np.maximum(one.target, other.target),
        np.maximum(one.square, other.square),
        max(one.weight, other.weight),
        min(one.least, other.least),
        one.n_used + other.n_used,
        one.n_aside + other.n_aside,
    )
