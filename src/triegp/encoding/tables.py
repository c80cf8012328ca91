"""Reading tables: columns of any kind become one array of numbers.

A number stays what it is, a boolean is 0 or 1, a date or time is days since 1970, also if it was
written as a string, a duration is days, and a category is its place in the list of the column's
categories. NaN is a missing value. `Columns` says how each column was read in training, so that new
tables are read in the same way. Categories that are not in its list get the next codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from triegp.checks import refuse_masked
from triegp.encoding.arrays import read_array
from triegp.encoding.cells import (
    code_values,
    days_of,
    is_missing,
    kind_of_cells,
    plain_value,
    read_cells,
    sort_key,
)
from triegp.encoding.columns import (
    Columns,
    check_width,
    choose_categories,
    plain_columns,
    recode,
)
from triegp.encoding.dates import FORMATS, find_format, read_date, tell_categories, tell_dates
from triegp.encoding.reading import real_array

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table that has been read. Estimators take it as X, and do not read it again.

    Attributes
    ----------
    data : float (n_rows, n_columns)
        Numbers and codes of categories, NaN for missing values.
    columns : Columns
        How the columns were read.
    """

    data: npt.NDArray[Any]
    columns: Columns

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return int(self.data.shape[0]), int(self.data.shape[1])


def read_table(
    X: Any,
    estimator: Any,
    known: Columns | None = None,
    categorical: Any = "from_dtype",
    *,
    learn_dates: bool = True,
) -> tuple[npt.NDArray[Any], Columns]:
    """Read a table.

    Parameters
    ----------
    X : array-like or data frame (n_rows, n_features)
        A data frame of pandas, polars, pyarrow or another library that narwhals supports, anything
        that numpy reads as an array, or a ReadTable.
    estimator : object
        Error messages name it.
    known : Columns, optional
        How the columns were read in training. Columns of a frame are then found by name, and others
        are ignored.
    categorical : "from_dtype", None or array-like, default="from_dtype"
        Columns that are categories although they are numbers or dates: names, indices, or one bool
        per column. Columns of a categorical dtype always are, and strings, unless all are dates.
        Not used if `known` is given.
    learn_dates : bool, default=True
        Whether strings may be dates; the user is then warned of how they are read. Not used if
        `known` is given.

    Returns
    -------
    data : array (n_rows, n_features)
        Numbers and codes of categories, NaN for missing values. X itself, if it is an array of
        numbers.
    columns : Columns
        How the columns were read. Categories that `known` does not have are appended to its list.

    Notes
    -----
    O(n) per column; a column of strings takes one pass to find its categories and one to code them.
    """
    refuse_masked("X", X)
    if isinstance(X, ReadTable):
        return _read_again(X, known, estimator)
    frame = _as_frame(X)
    if frame is None:
        return read_array(X, estimator, known, categorical, learn_dates=learn_dates)
    names = _check_names(frame.columns)
    if known is not None and known.names is not None and names is not None:
        _refuse_missing(names, known.names)
        frame, names = frame.select(known.names), known.names
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise ValueError(
            f"X must have at least one row and one column, got shape {frame.shape}: found array "
            f"with {frame.shape[0]} sample(s) and {frame.shape[1]} feature(s), while a minimum of "
            "1 is required"
        )
    if known is not None:
        check_width(frame.shape[1], len(known.kinds), estimator)
    chosen = [False] * frame.shape[1]
    if known is None:
        chosen = choose_categories(categorical, frame.columns)
    if all(map(_is_plain, frame.schema.dtypes())) and not any(chosen):
        whole = not any(column.null_count() for column in frame.iter_columns())
        if whole and (known is None or known.plain):
            data = real_array(frame.to_native(), estimator)
            return data, known or plain_columns(data.shape[1], names)
    data = np.empty(frame.shape, order="F")
    kinds, categories, formats = [], [], []
    for j, column in enumerate(frame.iter_columns()):
        name = frame.columns[j]
        where = f"column {name!r}" if names is not None else f"column {j}"
        kind = known.kinds[j] if known is not None else _kind_of(column, chosen[j], where)
        form = known.format_of(j) if known is not None else ""
        strings = learn_dates and known is None and not chosen[j] and _holds_strings(column, kind)
        if strings and (form := _format_of(column, where)):
            kind = "time"
            tell_dates(form, where)
        listed = known.categories[j] if known else ()
        data[:, j], listed = _read_column(column, kind, listed, where, form)
        if strings and kind == "category":
            tell_categories(listed, int((~np.isnan(data[:, j])).sum()), where)
        kinds.append(kind)
        categories.append(listed)
        formats.append(form)
    return data, Columns(
        tuple(kinds), tuple(categories), names, tuple(formats) if any(formats) else ()
    )


def is_named_frame(X: Any) -> bool:
    """Whether X is a data frame whose columns have names, or was read from one."""
    if isinstance(X, ReadTable):
        return X.columns.names is not None
    frame = _as_frame(X)
    return frame is not None and _check_names(frame.columns) is not None


def _read_again(
    table: ReadTable, known: Columns | None, estimator: Any
) -> tuple[npt.NDArray[Any], Columns]:
    """A table that has been read, with its categories coded as in `known`."""
    own = table.columns
    if known is None or known is own:
        return table.data, own
    check_width(len(own.kinds), len(known.kinds), estimator)
    if own.kinds != known.kinds or own.names != known.names:
        raise ValueError("X was read with other columns than those that the model was fitted to")
    lists = []
    for mine, theirs in zip(own.categories, known.categories, strict=True):
        listed = set(theirs)
        lists.append((*theirs, *(value for value in mine if value not in listed)))
    joined = replace(known, categories=tuple(lists))
    return recode(table.data, own, joined), joined


def _as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a data frame, None if it is none; raises for lazy frames and single columns."""
    if isinstance(X, np.ndarray | list | tuple):
        return None
    try:
        frame = nw.from_native(X, pass_through=True, allow_series=True)
    except nw.exceptions.DuplicateError as error:
        listed = str(error).replace("\n", " ")
        raise ValueError(f"X must have distinct column names: {listed}") from None
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"X must be a table in memory, got a lazy {type(X).__name__}: call its collect() first"
        )
    if isinstance(frame, nw.Series):
        raise ValueError(
            f"X must have two dimensions, got a single column ({type(X).__name__}): Expected 2D "
            "array, got 1D array instead. Reshape your data"
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def _check_names(names: Sequence[Any]) -> tuple[str, ...] | None:
    """Column names if all are strings; None if none is."""
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        kinds = ", ".join(sorted({type(name).__name__ for name in names}))
        raise TypeError(
            "Feature names are only supported if all input features have string names, got names "
            f"of types {kinds}. If you want feature names to be stored and validated, you must "
            "convert them all to strings, by using X.columns = X.columns.astype(str) for example"
        )
    return tuple(names) if strings and all(strings) else None


def _refuse_missing(names: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raise ValueError that names missing columns, and additional ones: these may be renamed."""
    missing = [name for name in known if name not in set(names)]
    if missing:
        said = "The feature names should match those that were passed during fit.\n"
        if extra := [name for name in names if name not in set(known)]:
            said += f"Feature names unseen at fit time: {_listed(extra)}\n"
        raise ValueError(
            f"{said}Feature names seen at fit time, yet now missing: {_listed(missing)}"
        )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)


def _is_plain(dtype: nw.dtypes.DType) -> bool:
    return bool(dtype.is_numeric()) or dtype == nw.Boolean


def _kind_of(column: nw.Series[Any], chosen: bool, where: str) -> str:
    """Kind of a column, by its dtype and, if these are Python objects, by its values."""
    dtype = column.dtype
    if chosen:
        return "category"
    if _is_plain(dtype) or dtype == nw.Decimal:
        return "number"
    if dtype == nw.Enum:  # a categorical dtype with an order
        return "ordered"
    if dtype in (nw.Categorical, nw.String):
        return "category"
    if dtype in (nw.Date, nw.Datetime, nw.Time):
        return "time"
    if dtype == nw.Duration:
        return "duration"
    if dtype == nw.Object:
        return kind_of_cells(column.to_list(), where)
    if column.null_count() == len(column) or column.to_numpy().dtype.kind in "fiub":
        return "number"  # no values, or numbers of a dtype that narwhals does not know
    raise TypeError(
        f"X must hold numbers, categories, strings, dates or durations, got {dtype} in {where}"
    )


def _holds_strings(column: nw.Series[Any], kind: str) -> bool:
    """Whether a column is one of strings, not declared as categories."""
    return kind == "category" and column.dtype in (nw.String, nw.Object)


def _format_of(column: nw.Series[Any], where: str) -> str:
    """Format of a column of strings that are dates, otherwise ""."""
    cells = column.drop_nulls()
    if column.dtype == nw.Object:
        return find_format((cell for cell in cells.to_list() if not is_missing(cell)), where)
    first = cells.head(1).to_list()  # most columns of strings are told by their first cell
    if not any(read_date(cell, form) for cell in first for form in FORMATS):
        return ""
    return find_format(cells.unique().to_list(), where)


def _read_column(
    column: nw.Series[Any], kind: str, known: tuple[Any, ...], where: str, form: str
) -> tuple[Floats, tuple[Any, ...]]:
    """Numbers or codes of a column, (n,), and its categories. form: of dates that are strings."""
    dtype = column.dtype
    if column.null_count() == len(column):
        return np.full(len(column), np.nan), known
    if dtype in (nw.Object, nw.Time, nw.Decimal) or (kind == "time" and dtype == nw.String):
        return read_cells(column.to_list(), kind, known, where, form)
    if kind in ("category", "ordered"):
        return _read_categories(column, kind, known, where)
    if kind in ("time", "duration"):
        return _read_times(column, kind, where), ()
    if _is_plain(dtype):
        return column.cast(nw.Float64).to_numpy().astype(np.float64), ()
    if dtype == nw.Unknown and (values := column.to_numpy()).dtype.kind in "fiub":
        return np.asarray(values, np.float64), ()
    raise ValueError(f"X must hold numbers in {where}, got {dtype}")


def _read_times(column: nw.Series[Any], kind: str, where: str) -> Floats:
    """Days since 1970, or days of durations."""
    dtype = column.dtype
    if kind == "time" and dtype in (nw.Date, nw.Datetime):
        column = column.cast(nw.Datetime("us", getattr(dtype, "time_zone", None)))
        if getattr(dtype, "time_zone", None) is not None:  # local time is what repeats
            column = column.dt.replace_time_zone(None)
        values = column.to_numpy().astype("datetime64[us]")
    elif kind == "duration" and dtype == nw.Duration:
        values = column.to_numpy().astype("timedelta64[us]")
    else:
        raise ValueError(f"X must hold {kind}s in {where}, as in training, got {dtype}")
    return days_of(values)


def _read_categories(
    column: nw.Series[Any], kind: str, known: tuple[Any, ...], where: str
) -> tuple[Floats, tuple[Any, ...]]:
    """Codes of categories, and the list with new ones appended."""
    is_there = ~column.is_null()
    if column.dtype.is_float():
        is_there = is_there & ~column.is_nan().fill_null(True)
    present = column.filter(is_there)
    values = present.unique().to_list()
    declared = getattr(column.dtype, "categories", ()) if kind == "ordered" else ()
    codes = code_values([*declared, *sorted(map(plain_value, values), key=sort_key)], known, where)
    there = is_there.to_numpy().astype(np.bool_)
    out = np.full(there.size, np.nan)
    if values:
        new = [float(codes[plain_value(value)]) for value in values]
        out[there] = present.replace_strict(values, new, return_dtype=nw.Float64).to_numpy()
    return out, tuple(codes)
