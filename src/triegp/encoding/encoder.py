"""The encoder: maps each feature onto [0, 1], then cuts it to a number of bits.

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
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp.checks import Floats, finite_vector, float_array, non_negative_vector, one_of
from triegp.encoding.codes import MAX_PRECISION, Codes, check_precision, pack_codes
from triegp.encoding.columns import Columns, plain_columns, sort_categories
from triegp.encoding.layout import (
    N_VARIANTS,
    Layout,
    fit_layout,
    plain_layout,
    read_working,
    refuse_unseen,
    working_precision,
)
from triegp.encoding.precision import (
    FullCodes,
    Precision,
    find_two_valued,
    paper_precision,
    separating_precision,
)
from triegp.encoding.reading import check_finite, place, row_blocks
from triegp.encoding.scaling import (
    N_STEPS,
    SCALINGS,
    FeatureMap,
    cut,
    n_cells,
    positions,
    weighted_percentiles,
)
from triegp.encoding.tables import is_named_frame, read_table

OUTSIDE = ("clip", "unrelated", "error")
PACK_ENTRIES = 2**25

RowIndex = slice | npt.NDArray[np.intp]


class BitEncoder(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Quantise features to bits.

    Parameters
    ----------
    scaling : {"minmax", "ecdf"}, default="minmax"
        How a feature is mapped onto [0, 1]. "minmax" is linear between the smallest and the
        largest training value. "ecdf" is the paper's map: increasing and piecewise linear, with
        the k-th percentile mapped to k/100 for k = 0, 10, ..., 100. If percentiles are tied, the
        map jumps at the tied value, which is mapped to the middle of the jump. The smallest
        value is always mapped to 0 and the largest to 1.
    precision : "auto", "paper", int or array-like (n_features,), default="auto"
        Bits per feature, 1 to 32 each and at most 10**5 in total. "paper" is the paper's rule,
        min(8, floor(150 / n_features) + 1) for all features. "auto" starts from this rule, with
        one bit for constant and two-valued features. It then adds bits to single features until
        distinct rows have distinct bit strings (see `separating_precision`).
    shift : None, "random" or array-like (n_features,), default=None
        Shift of the grid per feature, in [0, 1). A position u in [0, 1] becomes (u + shift) / 2.
        Each feature gets one more bit, so that the cells keep their width. Two-valued features are
        not shifted, since one bit separates their values.
    outside : {"clip", "unrelated", "error"}, default="clip"
        Treatment of values outside the training box, the range of the training values. "clip"
        moves them to the border of the box. "unrelated" gives their rows covariance k = 0 with
        all training rows. "error" raises ValueError.
    margin : float, default=0.0
        Added to the upper end of each feature's range before scaling (the paper's code adds
        1e-6).
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns of X that are categories although they hold numbers: names, indices, or one bool per
        column. Strings and columns of a categorical dtype always are. Tables with categories, dates
        or gaps are coded by *working columns* (`docs/tables.md`). All arrays below are then by
        working column, and so are shift and codes; precision is by column of X.
    random_state : int, RandomState or None, default=None
        Seed of the random shift; not used otherwise.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : object array (n_features,)
        Only defined if the training X has feature names.
    precision_ : int64 array (n_features,)
        Bits per feature, including the bit that a shift adds.
    n_bits_ : int
        Bits per row, the sum of `precision_`.
    low_, high_ : float64 arrays (n_features,)
        The training box: smallest and largest training value per feature.
    knots_ : float64 array (n_features, 11) or None
        Percentiles 0, 10, ..., 100 of each feature if scaling="ecdf", otherwise None.
    shift_ : float64 array (n_features,) or None
        The shift in use, NaN for features that are not shifted; None if there is none.
    two_valued_ : bool array (n_features,) or None
        Features with at most two training values, if there are at least 100 rows; fewer rows say
        little about other values. None if it is not known, as in a model file.
    columns_ : Columns or None
        Kinds and categories of the columns; None if all are numbers without gaps.
    layout_ : Layout or None
        How columns become working columns; None if they are these.

    Notes
    -----
    For n rows and d features, `fit` takes O(n d) time with scaling="minmax" and O(d n log n) with
    scaling="ecdf". precision="auto" adds one sort of the rows, and O(m d) per round for the m rows
    that still share a bit string. `transform` and `encode` take O(n d). Rows are read in blocks,
    so input of any real dtype is never copied as a whole.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp.encoding.encoder import BitEncoder
    >>> X = np.array([[0.0, 10.0], [0.5, 20.0], [1.0, 40.0]])
    >>> encoder = BitEncoder(precision=[2, 4]).fit(X)
    >>> encoder.transform(X)
    array([[ 0,  0],
           [ 2,  5],
           [ 3, 15]], dtype=uint8)
    >>> np.unpackbits(encoder.encode(X).packed, axis=1)[:, :6]
    array([[0, 0, 0, 0, 0, 0],
           [1, 0, 0, 1, 0, 1],
           [1, 1, 1, 1, 1, 1]], dtype=uint8)
    """

    n_features_in_: int
    precision_: Precision
    n_bits_: int
    low_: Floats
    high_: Floats
    knots_: Floats | None
    shift_: Floats | None
    two_valued_: npt.NDArray[np.bool_] | None = None
    columns_: Columns | None = None
    layout_: Layout | None = None

    def __init__(
        self,
        *,
        scaling: str = "minmax",
        precision: Any = "auto",
        shift: Any = None,
        outside: str = "clip",
        margin: float = 0.0,
        categorical_features: Any = "from_dtype",
        random_state: Any = None,
    ) -> None:
        self.scaling = scaling
        self.precision = precision
        self.shift = shift
        self.outside = outside
        self.margin = margin
        self.categorical_features = categorical_features
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Compute the training box, the percentiles and the precision.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features)
            Numbers, categories, strings, dates, durations; NaN and None are missing values.
        y : array-like (n_rows,) or (n_rows, k), optional
            Targets: categories are ranked by their shrunken means; without y by frequency. Not used
            if there are no categories.
        sample_weight : array-like (n_rows,), optional
            Non-negative. An integer weight is equivalent to repeating the row. Rows of weight 0
            are ignored. For fractional weights see `weighted_percentiles`.

        Returns
        -------
        BitEncoder
            self.
        """
        self._fit(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and quantise the training rows; means of rare categories are cross-fitted.

        Parameters
        ----------
        X : array-like (n_rows, n_features)
            Training rows.
        y : array-like (n_rows,), optional
            Targets, as for `fit`.
        sample_weight : array-like (n_rows,), optional
            Weights of the rows.
        """
        data = self._fit(X, y, sample_weight)
        return self._quantise(data, slice(0, data.shape[0]))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> npt.NDArray[Any]:
        """Fit, and return the working columns of the training rows."""
        one_of("scaling", self.scaling, SCALINGS)
        one_of("outside", self.outside, OUTSIDE)
        if not (np.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"margin must be finite and not negative, got {self.margin!r}")
        data, columns = read_table(X, self, categorical=self.categorical_features)
        validate_data(self, X, reset=True, skip_check_array=True)  # names, number of features
        kept, weights = _kept_rows(sample_weight, data.shape[0])
        self.columns_ = self.layout_ = None
        precision = self.precision
        if not columns.plain or (data.dtype.kind == "f" and np.isnan(data).any()):
            check_finite(data, columns.names, missing=True)
            targets = None if y is None else _target_columns(y, data.shape[0])
            used, counted = np.ones(data.shape[0], bool), None
            if kept is not None:
                counted = np.zeros(data.shape[0])
                counted[kept] = weights
                used = counted > 0
            data, self.columns_ = sort_categories(data, columns, used)
            self.layout_, data = fit_layout(data, self.columns_, targets, counted)
            precision = working_precision(self.layout_, precision)
        self.low_, self.high_ = self._box(data, kept)
        self.two_valued_ = find_two_valued(data, self.low_, self.high_, kept)
        self.knots_ = _knots(data, kept, weights) if self.scaling == "ecdf" else None
        self.shift_ = _fit_shift(self.shift, self.two_valued_, self.random_state)
        self.precision_ = self.fit_precision(data, kept, precision)
        self.n_bits_ = int(self.precision_.sum())
        return data

    def transform(self, X: Any) -> Any:
        """Quantise rows to one integer code per feature.

        Parameters
        ----------
        X : array-like (n_rows, n_features)

        Returns
        -------
        unsigned integer array (n_rows, n_features)
            Codes below 2**precision_, in the smallest dtype that holds them all. With
            outside="unrelated", the code of a value outside the box is 2**precision_. So is that of
            a gap or a category that training has not, unless outside="error", which raises.
        """
        data, unseen = self._read_new(X)
        codes = self._quantise(data, slice(0, data.shape[0]))
        if unseen is None:
            return codes
        beyond = (n_cells(self.precision_)[:, 0]).astype(np.int64)
        wide = np.promote_types(codes.dtype, np.min_scalar_type(int(beyond.max())))
        return np.where(unseen, beyond, codes).astype(wide)

    def encode(self, X: Any) -> Codes:
        """Quantise rows and pack their bits: `pack_codes(transform(X), precision_)`.

        Parameters
        ----------
        X : array-like (n_rows, n_features)

        Returns
        -------
        Codes
        """
        data, unseen = self._read_new(X)
        codes = self.encode_array(data)
        if unseen is None:
            return codes
        unrelated = np.asarray(unseen.any(axis=1))
        return replace(
            codes, unrelated=unrelated if codes.unrelated is None else unrelated | codes.unrelated
        )

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the working columns: those of X, some with what they are, as "date_weekday".

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of X, if X had none; otherwise they must be the same.
        """
        names = super().get_feature_names_out(input_features)
        if self.layout_ is None:
            return names
        return np.array(self.layout_.names(names), dtype=object)

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
        check_is_fitted(self)
        other = copy.copy(self)
        other.shift = shift
        other.shift_ = None
        if shift is not None:
            given = float_array("shift", shift)
            still = np.isnan(given)
            if self.two_valued_ is not None and given.shape == self.two_valued_.shape:
                still |= self.two_valued_
            other.shift_ = _fit_shift(np.where(np.isnan(given), 0.0, given), still, None)
        other.precision_ = _add_bits(
            self.precision_ - _shift_bits(self.shift_, self.low_.size),
            _shift_bits(other.shift_, self.low_.size),
        )
        other.n_bits_ = int(other.precision_.sum())
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # the output is integer for any input dtype
        return tags

    def _read_new(self, X: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        """Working columns of new rows, and which of their values are unseen; None if none is."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        known = self.columns_
        if known is None:
            known = plain_columns(self.n_features_in_, names)
        data, _ = read_table(X, self, known)
        if names is None or not is_named_frame(X):
            validate_data(self, X, reset=False, skip_check_array=True)
        check_finite(data, names, missing=True)
        layout = self.layout_
        if layout is None:
            layout = plain_layout(np.repeat(self.low_[:, None], N_VARIANTS, axis=1))
        if self.outside == "error":
            refuse_unseen(layout, data, names)
        working, unseen = read_working(layout, data)
        return working, None if unseen is None else unseen[:, layout.source]

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
                f"got {precision!r}"
            )
        few = (self.low_ == self.high_) | self.two_valued_
        start = np.where(few, 1, paper_precision(n_features))
        feature_map = self.feature_map

        def read(rows: RowIndex) -> FullCodes:
            numbers = rows if kept is None else kept[rows]
            at = positions(_columns(data, numbers), feature_map)
            return cut(at, np.full(n_features, MAX_PRECISION)).astype(np.uint32)

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


def _target_columns(y: Any, n_rows: int) -> Floats:
    """Targets as finite columns (n_rows, k)."""
    columns = float_array("y", y)
    if columns.ndim not in (1, 2) or columns.shape[0] != n_rows:
        raise ValueError(f"y must have {n_rows} rows, got shape {columns.shape}")
    return finite_vector("y", columns.ravel()).reshape(n_rows, -1)


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


def _kept_rows(
    sample_weight: Any, n_rows: int
) -> tuple[npt.NDArray[np.intp] | None, Floats | None]:
    """Return indices and weights of the rows with positive weight.

    Returns (None, None) if there are no weights: all rows count once.
    """
    if sample_weight is None:
        return None, None
    weights = non_negative_vector("sample_weight", sample_weight, n_rows)
    kept = np.flatnonzero(weights)
    if kept.size == 0:
        raise ValueError("sample_weight must have a positive entry, got zeros only")
    with np.errstate(over="ignore"):
        if np.isinf(weights.sum()):
            raise ValueError("sample_weight must have a finite sum, got inf")
    return kept, weights[kept]


def _fit_shift(shift: Any, still: npt.NDArray[np.bool_], random_state: Any) -> Floats | None:
    """Return one shift per feature, in [0, 1), or None if the grid is not shifted.

    still: bool (n_features,), features that are not shifted, whose shift becomes NaN.
    """
    if shift is None:
        return None
    if isinstance(shift, str):
        if shift != "random":
            raise ValueError(
                f"shift must be None, 'random' or one number per feature, got {shift!r}"
            )
        drawn: Floats = check_random_state(random_state).uniform(size=still.size)
        return np.where(still, np.nan, drawn)
    fixed = finite_vector("shift", shift, still.size)
    bad = np.flatnonzero((fixed < 0) | (fixed >= 1))
    if bad.size:
        raise ValueError(f"shift must lie in [0, 1), got {fixed[bad[0]]} for feature {bad[0]}")
    return np.where(still, np.nan, fixed)


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
