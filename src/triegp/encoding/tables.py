"""Reading tables: columns of any kind become one array of numbers.

A number stays what it is, a boolean is 0 or 1, a date or time is days since 1970, a duration is
days, and a category is its place in the list of the column's categories. NaN is a missing value.
`Columns` says how each column was read in training, so that new tables are read in the same way.
Categories that are not in its list get the next codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from triegp.checks import refuse_masked
from triegp.encoding.cells import (
    days_of,
    is_missing,
    kind_of_cells,
    plain_value,
    read_cells,
    times_of_cells,
)
from triegp.encoding.reading import place, real_array

Floats = npt.NDArray[np.float64]

KINDS = ("number", "category", "ordered", "time", "duration")


@dataclass(frozen=True)
class Columns:
    """How the columns of a table are read.

    Attributes
    ----------
    kinds : tuple of str
        Kind of each column: "number" (booleans too), "category", "ordered" (categories in an order
        of their own), "time" or "duration".
    categories : tuple of tuple
        Categories of each column by value, strings or numbers; empty for other kinds.
    names : tuple of str or None
        Names of the columns; None if the table had none.
    """

    kinds: tuple[str, ...]
    categories: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...] | None = None

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers."""
        return all(kind == "number" for kind in self.kinds)


def read_table(
    X: Any, estimator: Any, known: Columns | None = None, categorical: Any = "from_dtype"
) -> tuple[npt.NDArray[Any], Columns]:
    """Read a table.

    Parameters
    ----------
    X : array-like or data frame (n_rows, n_features)
        A data frame of pandas, polars, pyarrow or another library that narwhals supports, or
        anything that numpy reads as an array.
    estimator : object
        Error messages name it.
    known : Columns, optional
        How the columns were read in training. Columns of a frame are then found by name.
    categorical : "from_dtype" or array-like, default="from_dtype"
        Columns that are categories although they are numbers: names, indices, or one bool per
        column. Strings and columns of a categorical dtype always are. Not used if `known` is given.

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
    frame = _as_frame(X)
    if frame is None:
        return _read_array(X, estimator, known, categorical)
    names = _check_names(frame.columns)
    if known is not None and known.names is not None and names is not None:
        frame, names = frame.select(_match(names, known.names)), known.names
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise ValueError(
            f"X must have at least one row and one column, got shape {frame.shape}: found array "
            f"with {frame.shape[0]} sample(s) and {frame.shape[1]} feature(s), while a minimum of "
            "1 is required"
        )
    if known is not None:
        _check_width(frame.shape[1], len(known.kinds), estimator)
    chosen = _chosen(categorical, frame.columns, known)
    if all(map(_is_plain, frame.schema.dtypes())) and not any(chosen):
        whole = not any(column.null_count() for column in frame.iter_columns())
        if whole and (known is None or known.plain):
            data = real_array(frame.to_native(), estimator)
            return data, known or plain_columns(data.shape[1], names)
    data = np.empty(frame.shape, order="F")
    kinds, categories = [], []
    for j, column in enumerate(frame.iter_columns()):
        name = frame.columns[j]
        where = f"column {name!r}" if names is not None else f"column {j}"
        kind = known.kinds[j] if known is not None else _kind_of(column, chosen[j], where)
        data[:, j], found = _read_column(column, kind, known.categories[j] if known else (), where)
        kinds.append(kind)
        categories.append(found)
    return data, Columns(tuple(kinds), tuple(categories), names)


def sort_categories(
    data: npt.NDArray[Any], columns: Columns, used: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], Columns]:
    """Codes in the order of the values: categories of used rows first, then all others.

    So codes do not depend on the order in which categories came. data: (n, n_columns), not changed.
    """
    listed = list(columns.categories)
    out = data
    for j, kind in enumerate(columns.kinds):
        if kind != "category":
            continue
        is_used = np.zeros(len(listed[j]), bool)
        codes = data[used, j]
        is_used[codes[~np.isnan(codes)].astype(np.int64)] = True
        order = sorted(range(len(listed[j])), key=lambda k: (not is_used[k], listed[j][k]))
        if order == list(range(len(order))):
            continue
        place_of = np.empty(len(order))
        place_of[order] = np.arange(len(order))
        out = out.copy() if out is data else out
        there = ~np.isnan(data[:, j])
        out[there, j] = place_of[data[there, j].astype(np.int64)]
        listed[j] = tuple(listed[j][k] for k in order)
    return out, replace(columns, categories=tuple(listed))


def is_named_frame(X: Any) -> bool:
    """Whether X is a data frame whose columns have names."""
    frame = _as_frame(X)
    return frame is not None and _check_names(frame.columns) is not None


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


def _match(names: tuple[str, ...], known: tuple[str, ...]) -> list[str]:
    """The known names; raises ValueError that names missing and additional columns."""
    missing = [name for name in known if name not in set(names)]
    extra = [name for name in names if name not in set(known)]
    if missing or extra:
        said = []
        if extra:
            said.append(f"Feature names unseen at fit time: {_listed(extra)}")
        if missing:
            said.append(f"Feature names seen at fit time, yet now missing: {_listed(missing)}")
        raise ValueError(
            "The feature names should match those that were passed during fit.\n" + "\n".join(said)
        )
    return list(known)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)


def _check_width(n_columns: int, expected: int, estimator: Any) -> None:
    if n_columns != expected:
        raise ValueError(
            f"X has {n_columns} features, but {type(estimator).__name__} is expecting {expected} "
            "features as input"
        )


def _chosen(categorical: Any, names: Sequence[Any], known: Columns | None) -> list[bool]:
    """Which columns are categories by choice."""
    n = len(names)
    if known is not None or (isinstance(categorical, str) and categorical == "from_dtype"):
        return [False] * n
    given = np.asarray(categorical if categorical is not None else [])
    if given.ndim != 1 or isinstance(categorical, str):
        raise ValueError(
            "categorical_features must be 'from_dtype', or names, indices or a mask of columns, "
            f"got {categorical!r:.80}"
        )
    if given.dtype.kind == "b":
        if given.size != n:
            raise ValueError(f"categorical_features must have {n} entries, got {given.size}")
        return [bool(flag) for flag in given]
    chosen = [False] * n
    for item in given.tolist():
        if isinstance(item, str):
            if item not in names:
                raise ValueError(f"categorical_features names {item!r}, which X does not have")
            chosen[list(names).index(item)] = True
        elif isinstance(item, int) and -n <= item < n:
            chosen[item] = True
        else:
            raise ValueError(
                f"categorical_features must name columns or be between 0 and {n - 1}, got {item!r}"
            )
    return chosen


def plain_columns(n_columns: int, names: Any = None) -> Columns:
    """Columns of numbers."""
    names = None if names is None else tuple(map(str, names))
    return Columns(("number",) * n_columns, ((),) * n_columns, names)


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


def _read_column(
    column: nw.Series[Any], kind: str, known: tuple[Any, ...], where: str
) -> tuple[Floats, tuple[Any, ...]]:
    """Numbers or codes of a column, (n,), and its categories."""
    if column.null_count() == len(column):
        return np.full(len(column), np.nan), known
    if kind in ("category", "ordered"):
        return _read_categories(column, kind, known, where)
    if kind in ("time", "duration"):
        return _read_times(column, kind, where), ()
    try:
        if column.dtype in (nw.String, nw.Categorical, nw.Enum):
            raise ValueError("it holds strings or categories")
        if column.dtype == nw.Unknown:
            return np.asarray(column.to_numpy(), np.float64), ()
        if _is_plain(column.dtype):
            return column.cast(nw.Float64).to_numpy().astype(np.float64), ()
        if column.dtype in (nw.Date, nw.Datetime, nw.Duration):
            raise ValueError(f"it holds {column.dtype}")
        cells = [np.nan if is_missing(cell) else float(cell) for cell in column.to_list()]
        return np.array(cells, np.float64), ()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"X must hold numbers in {where}, as in training: {error}") from None


def _read_times(column: nw.Series[Any], kind: str, where: str) -> Floats:
    """Days since 1970, of the day for times of day, or days of durations."""
    dtype = column.dtype
    if kind == "time" and dtype in (nw.Date, nw.Datetime):
        column = column.cast(nw.Datetime("us", getattr(dtype, "time_zone", None)))
        if getattr(dtype, "time_zone", None) is not None:  # local time is what repeats
            column = column.dt.replace_time_zone(None)
        values = column.to_numpy().astype("datetime64[us]")
    elif kind == "duration" and dtype == nw.Duration:
        values = column.to_numpy().astype("timedelta64[us]")
    elif dtype in (nw.Object, nw.Time):
        values = times_of_cells(column.to_list(), kind, where)
    else:
        raise ValueError(f"X must hold {kind}s in {where}, as in training, got {dtype}")
    return days_of(values)


def _read_categories(
    column: nw.Series[Any], kind: str, known: tuple[Any, ...], where: str
) -> tuple[Floats, tuple[Any, ...]]:
    """Codes of categories, and the list with new ones appended."""
    if column.dtype == nw.Object:
        column = _strings_or_numbers(column, where)
    is_there = ~column.is_null()
    if column.dtype.is_float():
        is_there = is_there & ~column.is_nan().fill_null(True)
    present = column.filter(is_there)
    missing = ~is_there.to_numpy().astype(np.bool_)
    declared = getattr(column.dtype, "categories", ()) if kind == "ordered" else ()
    found = [plain_value(value) for value in present.unique().to_list()]
    of_known = {type(value) is str for value in (*known, *found)}
    if len(of_known) > 1:
        raise ValueError(f"X must hold one kind of category in {where}, got strings and numbers")
    codes = {value: code for code, value in enumerate(known)}
    for value in (*map(plain_value, declared), *sorted(found)):
        codes.setdefault(value, len(codes))
    out = np.full(missing.size, np.nan)
    if found:
        old = present.unique().to_list()
        new = [float(codes[plain_value(value)]) for value in old]
        read = present.replace_strict(old, new, return_dtype=nw.Float64)
        out[~missing] = read.to_numpy()
    return out, tuple(codes)


def _strings_or_numbers(column: nw.Series[Any], where: str) -> nw.Series[Any]:
    """A column of Python objects as one of strings or of numbers."""
    cells = [None if is_missing(cell) else plain_value(cell) for cell in column.to_list()]
    kinds = {type(cell) is str for cell in cells if cell is not None}
    if len(kinds) > 1:
        raise ValueError(f"X must hold one kind of category in {where}, got strings and numbers")
    dtype = nw.String if True in kinds else nw.Float64
    return nw.new_series("", cells, dtype, backend=column.implementation)


def _read_array(
    X: Any, estimator: Any, known: Columns | None, categorical: Any
) -> tuple[npt.NDArray[Any], Columns]:
    """Read an array or lists: as numbers if that is what they hold, otherwise column by column."""
    cells = X
    if not (isinstance(X, np.ndarray) and X.dtype.kind in "fiub"):
        cells = _as_cells(X)
    if cells is None or cells.ndim != 2 or cells.dtype.kind in "fiub":
        data = real_array(X, estimator)
        if known is None:
            chosen = _chosen(categorical, range(data.shape[1]), None)
            if not any(chosen):
                return data, plain_columns(data.shape[1], None)
            kinds = tuple("category" if flag else "number" for flag in chosen)
            known = Columns(kinds, ((),) * data.shape[1])
        elif known.plain:
            return data, known
        _check_width(data.shape[1], len(known.kinds), estimator)
        return _code_numbers(data, known)
    n_columns = cells.shape[1]
    if cells.shape[0] == 0 or n_columns == 0:
        real_array(X, estimator)  # raises
    if known is not None:
        _check_width(n_columns, len(known.kinds), estimator)
    chosen = _chosen(categorical, range(n_columns), known)
    data = np.empty(cells.shape, order="F")
    kinds_found, categories = [], []
    for j in range(n_columns):
        where = f"column {j}"
        column = cells[:, j].tolist()
        kind = known.kinds[j] if known is not None else "category"
        if known is None and not chosen[j]:
            kind = kind_of_cells(column, where)
        data[:, j], found = read_cells(column, kind, known.categories[j] if known else (), j)
        kinds_found.append(kind)
        categories.append(found)
    return data, Columns(tuple(kinds_found), tuple(categories), known.names if known else None)


def _as_cells(X: Any) -> npt.NDArray[Any] | None:
    """An array of Python objects or strings; None if X is not a plain two-dimensional list."""
    if isinstance(X, np.ndarray):
        if X.dtype.kind in "Mm":
            X = X.astype(f"{X.dtype.kind}8[us]")  # Python has no nanoseconds
        return X.astype(object) if X.dtype.kind in "OUSMm" else None
    if isinstance(X, list | tuple):
        try:
            array = np.asarray(X)
        except ValueError:  # ragged
            return None
        if array.dtype.kind in "fiub":
            return array
        try:
            return np.asarray(X, dtype=object)
        except ValueError:
            return None
    return None


def _code_numbers(data: npt.NDArray[Any], known: Columns) -> tuple[Floats, Columns]:
    """Numbers read by the kinds of their columns: numbers of a category column become codes."""
    out = np.array(data, np.float64, order="F")
    categories = []
    for j, (kind, listed) in enumerate(zip(known.kinds, known.categories, strict=True)):
        if kind in ("category", "ordered"):
            out[:, j], listed = read_cells(out[:, j].tolist(), kind, listed, j)
        elif kind != "number":
            raise ValueError(f"X must hold {kind}s {place(j, 0, known.names)}, got numbers")
        categories.append(listed)
    return out, replace(known, categories=tuple(categories))
