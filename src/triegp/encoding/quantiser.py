"""The fitted part of an encoder: maps features onto [0, 1], and cuts them to a number of bits.

The map of a feature onto [0, 1] is non-decreasing, so a larger value never has a smaller code.
Blocks of m rows are stored transposed, with shape (n_features, m), so that every operation runs
over contiguous values of one feature.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import Floats, finite_vector, float_array, one_of
from triegp.encoding.codes import MAX_PRECISION, Codes, check_precision, pack_codes
from triegp.encoding.precision import (
    ALL_BITS,
    ALL_BUT_LAST,
    FullCodes,
    Precision,
    find_two_valued,
    paper_precision,
    separating_precision,
)
from triegp.encoding.reading import check_finite, place, row_blocks
from triegp.encoding.scaling import (
    N_STEPS,
    FeatureMap,
    cut,
    n_cells,
    positions,
    weighted_percentiles,
)

OUTSIDE = ("clip", "unrelated", "error")
PACK_ENTRIES = 2**25

RowIndex = slice | npt.NDArray[np.intp]


class Quantiser:
    """Box, percentiles, precision and shift of a grid, and the codes of rows on it.

    All that models need of a `BitEncoder`. Reads arrays of working columns, not tables.

    Parameters
    ----------
    scaling, outside, margin : str, str, float
        As for `BitEncoder`.

    Attributes
    ----------
    precision_, n_bits_, low_, high_, knots_, shift_, two_valued_
        As for `BitEncoder`.
    feature_names_in_ : object array (n_features,)
        Names of the working columns, for error messages; not defined if they have none.
    """

    scaling: str
    outside: str
    margin: float
    feature_names_in_: npt.NDArray[Any]
    precision_: Precision
    n_bits_: int
    low_: Floats
    high_: Floats
    knots_: Floats | None
    shift_: Floats | None
    two_valued_: npt.NDArray[np.bool_] | None = None

    def __init__(
        self, *, scaling: str = "minmax", outside: str = "clip", margin: float = 0.0
    ) -> None:
        self.scaling = scaling
        self.outside = outside
        self.margin = margin

    @property
    def n_working(self) -> int:
        """Number of working columns, n_features."""
        return self.low_.size

    def learn(
        self,
        data: npt.NDArray[Any],
        precision: Any,
        kept: npt.NDArray[np.intp] | None = None,
        weights: Floats | None = None,
        shift: Floats | None = None,
    ) -> None:
        """Compute the training box, the percentiles and the precision.

        Parameters
        ----------
        data : float array (n_rows, n_features)
            Working columns of the training rows.
        precision : "auto", "paper", int or array-like (n_features,)
            As for `BitEncoder`.
        kept : int array (k,), optional
            Rows to count; all by default.
        weights : float64 (k,), optional
            Their weights.
        shift : float64 (n_features,), optional
            Shift of the grid; two-valued features are not shifted.
        """
        self.low_, self.high_ = self._box(data, kept)
        self.two_valued_ = find_two_valued(data, self.low_, self.high_, kept)
        self.knots_ = _knots(data, kept, weights) if self.scaling == "ecdf" else None
        self.shift_ = None if shift is None else np.where(self.two_valued_, np.nan, shift)
        self.precision_ = self.fit_precision(data, kept, precision)
        self.n_bits_ = int(self.precision_.sum())

    def encode_array(self, data: npt.NDArray[Any]) -> Codes:
        """Encode an array returned by `real_array`, without checking names and shape again.

        Parameters
        ----------
        data : float array (n_rows, n_features)
            Working columns.
        """
        n_rows = data.shape[0]
        packed = np.empty((n_rows, -(-self.n_bits_ // 8)), dtype=np.uint8)
        unrelated = np.zeros(n_rows, dtype=np.bool_)
        for rows in row_blocks(n_rows, data.shape[1], PACK_ENTRIES):
            part = pack_codes(self._quantise(data, rows), self.precision_)
            packed[rows] = part.packed
            if part.unrelated is not None:
                unrelated[rows] = part.unrelated
        return Codes(packed, self.precision_.copy(), unrelated if unrelated.any() else None)

    def with_shift(self, shift: Any) -> Self:
        """Return a fitted copy with the same box and percentiles, and another shift.

        Parameters
        ----------
        shift : array-like (n_features,) or None
            Shift of the grid per feature, in [0, 1), or NaN for features that are not shifted.
            Two-valued features never are. None for no shift.
        """
        other = copy.copy(self)
        other.shift_ = None
        if shift is not None:
            given = float_array("shift", shift)
            still = np.isnan(given)
            fixed = check_shift(np.where(still, 0.0, given), self.n_working)
            if self.two_valued_ is not None:
                still |= self.two_valued_
            other.shift_ = np.where(still, np.nan, fixed)
        other.precision_ = _add_bits(
            self.precision_ - _shift_bits(self.shift_, self.low_.size),
            _shift_bits(other.shift_, self.low_.size),
        )
        other.n_bits_ = int(other.precision_.sum())
        return other

    def _box(self, data: npt.NDArray[Any], kept: npt.NDArray[np.intp] | None) -> tuple[Floats, ...]:
        """Return the smallest and largest value per feature over the kept rows.

        Raises ValueError if any value is not finite, in rows that are not kept too.
        """
        n_rows, n_features = data.shape
        low, high = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        is_kept = np.zeros(n_rows, dtype=np.bool_)
        is_kept[slice(None) if kept is None else kept] = True
        for rows in row_blocks(n_rows, n_features):
            columns = _columns(data, rows)
            self._refuse_nonfinite(columns, rows.start)
            counted = is_kept[rows]
            np.minimum(low, columns.min(axis=1, initial=np.inf, where=counted), out=low)
            np.maximum(high, columns.max(axis=1, initial=-np.inf, where=counted), out=high)
        return low, high

    def fit_precision(
        self, data: npt.NDArray[Any], kept: npt.NDArray[np.intp] | None, precision: Any
    ) -> Precision:
        """Return the bits per feature, including the bit that a shift adds.

        Parameters
        ----------
        data : float array (n_rows, n_features)
            Working columns of the training rows.
        kept : int array or None
            Rows to count; all if None.
        precision : "auto", "paper", int or array-like (n_features,)
            As the parameter of the encoder.
        """
        n_features = data.shape[1]
        extra = _shift_bits(self.shift_, n_features)
        if not isinstance(precision, str):
            return _add_bits(check_precision(precision, n_features), extra)
        if precision == "paper":
            return _add_bits(check_precision(paper_precision(n_features), n_features), extra)
        if precision != "auto":
            raise ValueError(
                "precision must be 'auto', 'paper', an integer or one integer per feature, "
                f"got {precision!r:.80}"
            )
        few = (self.low_ == self.high_) | self.two_valued_
        start = np.where(few, 1, paper_precision(n_features))
        feature_map = self.feature_map
        usable = np.where(extra, ALL_BITS, ALL_BUT_LAST)[:, None]

        def read(rows: RowIndex) -> FullCodes:
            numbers = rows if kept is None else kept[rows]
            at = positions(_columns(data, numbers), feature_map)
            return cut(at, np.full(n_features, MAX_PRECISION)).astype(np.uint32) & usable

        n_kept = data.shape[0] if kept is None else kept.size
        blocks = list(row_blocks(n_kept, n_features))
        return separating_precision(read, blocks, _add_bits(start, extra))

    def _quantise(self, data: npt.NDArray[Any], rows: slice) -> npt.NDArray[Any]:
        """Return the codes of the given rows, (m, n_features)."""
        largest = (1 << int(self.precision_.max())) - (0 if self.outside == "unrelated" else 1)
        codes = np.empty((rows.stop - rows.start, data.shape[1]), np.min_scalar_type(largest))
        for block in row_blocks(codes.shape[0], data.shape[1]):
            some = slice(rows.start + block.start, rows.start + block.stop)
            at, beyond = self.read_positions(data, some, self.shift_)
            at = cut(at, self.precision_)
            codes[block] = (np.where(beyond, n_cells(self.precision_), at) if beyond.size else at).T
        return codes

    def read_positions(
        self, data: npt.NDArray[Any], rows: slice, shift: Floats | None
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Map some rows onto [0, 1].

        Returns the positions (n_features, m), and a bool array (n_features, m) that marks values
        outside the box. The latter has shape (0, 0) if outside="clip", which does not need it.

        Parameters
        ----------
        data : float array (n_rows, n_features)
            Working columns.
        rows : slice
            Rows to read, m of them.
        shift : float64 (n_features,) or None
            Shift of the grid.
        """
        columns, beyond = self._read_columns(data, rows)
        return positions(columns, replace(self.feature_map, shift=shift)), beyond

    def find_outside(self, data: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Mark the rows outside the box, bool (n_rows,); none if outside="clip".

        Raises ValueError for values that are not finite, and for rows outside if outside="error".

        Parameters
        ----------
        data : float array (n_rows, n_features)
            Working columns.
        """
        found = np.zeros(data.shape[0], np.bool_)
        for rows in row_blocks(*data.shape):
            _, beyond = self._read_columns(data, rows)
            if beyond.size:
                found[rows] = beyond.any(axis=0)
        return found

    def _read_columns(
        self, data: npt.NDArray[Any], rows: slice
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Columns of some rows (n_features, m), checked; and what is outside, as read_positions."""
        outside = one_of("outside", self.outside, OUTSIDE)
        columns = _columns(data, rows)
        self._refuse_nonfinite(columns, rows.start)
        beyond = np.zeros((0, 0), np.bool_)
        if outside != "clip":
            beyond = (columns < self.low_[:, None]) | (columns > self.high_[:, None])
            if outside == "error" and beyond.any():
                self._refuse_outside(columns, beyond, rows.start)
        return columns, beyond

    @property
    def box(self) -> tuple[bytes | str, ...]:
        """Hashable value that is equal for encoders that differ only in shift and precision."""
        knots = b"" if self.knots_ is None else self.knots_.tobytes()
        top = self.high_ + self.margin
        return self.low_.tobytes(), self.high_.tobytes(), top.tobytes(), knots, self.outside

    @property
    def feature_map(self) -> FeatureMap:
        """The map of each feature onto [0, 1]."""
        return FeatureMap(self.low_, self.high_ + self.margin, self.knots_, self.shift_)

    def _refuse_nonfinite(self, columns: Floats, first_row: int) -> None:
        check_finite(columns.T, getattr(self, "feature_names_in_", None), first_row)

    def _refuse_outside(
        self, columns: Floats, is_outside: npt.NDArray[np.bool_], first_row: int
    ) -> None:
        j, i = np.argwhere(is_outside)[0].tolist()
        where = place(j, first_row + i, getattr(self, "feature_names_in_", None))
        raise ValueError(
            f"X must lie in the training box, got {columns[j, i]} {where}, "
            f"expected {self.low_[j]} to {self.high_[j]}"
        )


def _columns(data: npt.NDArray[Any], rows: RowIndex) -> Floats:
    """Copy rows into a float64 block (n_features, m)."""
    with np.errstate(over="ignore"):  # a long double may become inf, which raises an error later
        return np.array(data[rows].T, dtype=np.float64, order="C")


def _knots(
    data: npt.NDArray[Any], kept: npt.NDArray[np.intp] | None, weights: Floats | None
) -> Floats:
    """Return the percentiles of each feature over the kept rows, (n_features, 11)."""
    knots = np.empty((data.shape[1], N_STEPS + 1))
    for j in range(data.shape[1]):
        values = data[:, j].astype(np.float64)
        knots[j] = weighted_percentiles(values if kept is None else values[kept], weights)
    return knots


def check_shift(shift: Any, n_features: int) -> Floats:
    """The shift of each feature, (n_features,); raises ValueError unless all lie in [0, 1)."""
    fixed = finite_vector("shift", shift, n_features)
    bad = np.flatnonzero((fixed < 0) | (fixed >= 1))
    if bad.size:
        raise ValueError(f"shift must lie in [0, 1), got {fixed[bad[0]]} for feature {bad[0]}")
    return fixed


def _shift_bits(shift: Floats | None, n_features: int) -> Precision:
    """Bits that a shift adds to each feature, (n_features,): 1 if it is shifted, else 0."""
    return np.zeros(n_features, np.int64) if shift is None else (~np.isnan(shift)).astype(np.int64)


def _add_bits(precision: Precision, extra: Precision) -> Precision:
    """Add the bits of a shift; the sum must still satisfy the limits of `check_precision`."""
    full = np.flatnonzero((extra > 0) & (precision >= MAX_PRECISION))
    if full.size:
        j = int(full[0])
        raise ValueError(
            f"precision must be at most {MAX_PRECISION - 1} with a shift, which adds a bit, "
            f"got {precision[j]} for feature {j}"
        )
    return check_precision(precision + extra, precision.size)
