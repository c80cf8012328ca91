"""The encoder: a transformer of scikit-learn that maps the columns of a table to bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from triegp.checks import Floats, finite_vector, float_array, non_negative_vector, one_of
from triegp.encoding.codes import Codes
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
from triegp.encoding.quantiser import OUTSIDE, Quantiser, check_shift
from triegp.encoding.reading import check_finite
from triegp.encoding.scaling import SCALINGS, n_cells
from triegp.encoding.tables import is_named_frame, read_table


class BitEncoder(
    Quantiser,
    OneToOneFeatureMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
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
        distinct rows have distinct bit strings (see `separating_precision`), up to 31 bits each and
        the bit of a shift.
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
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns of X that are categories although they hold numbers or dates: names, indices from 0
        on, or one bool per column; None for none. Columns of a categorical dtype always are, and
        strings, unless all are dates. Tables with categories, dates or gaps are coded by *working
        columns* (`docs/tables.md`). All arrays below are then by working column, and so are shift
        and codes; precision is by column of X.
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
        self.learn(data, precision, kept, weights, self._read_shift(data.shape[1]))
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

    def with_shift(self, shift: Any) -> Self:
        """Return a fitted copy with the same box and percentiles, and another shift.

        Parameters
        ----------
        shift : array-like (n_features,) or None
            Shift of the grid per feature, in [0, 1), or NaN for features that are not shifted.
            Two-valued features never are. None for no shift.
        """
        check_is_fitted(self)
        other = super().with_shift(shift)
        other.shift = shift
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # the output is integer for any input dtype
        return tags

    def _read_shift(self, n_features: int) -> Floats | None:
        """Shift of each feature, drawn if it is to be random; None if the grid is not shifted."""
        if not isinstance(self.shift, str):
            return None if self.shift is None else check_shift(self.shift, n_features)
        if self.shift != "random":
            raise ValueError(
                f"shift must be None, 'random' or one number per feature, got {self.shift!r}"
            )
        drawn: Floats = check_random_state(self.random_state).uniform(size=n_features)
        return drawn

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


def as_encoder(quantiser: Quantiser) -> BitEncoder:
    """The encoder with this fitted part, of tables whose columns are its features."""
    if isinstance(quantiser, BitEncoder):
        return quantiser
    encoder = BitEncoder()
    encoder.__dict__.update(quantiser.__dict__)
    encoder.n_features_in_ = quantiser.n_working
    return encoder


def _target_columns(y: Any, n_rows: int) -> Floats:
    """Targets as finite columns (n_rows, k)."""
    columns = float_array("y", y)
    if columns.ndim not in (1, 2) or columns.shape[0] != n_rows:
        raise ValueError(f"y must have {n_rows} rows, got shape {columns.shape}")
    return finite_vector("y", columns.ravel()).reshape(n_rows, -1)


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
