"""Tables that cannot be used, and the answer that each must get: the argument, what came, where.

An entry is what to pass and the error to raise: ValueError unless said otherwise, with a message
that matches. Rows are 30 rows of two columns, `a` and `b`, with targets; entries replace X, y,
sample_weight or known_noise.
"""

import datetime as dt
import decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse

N = 30
RNG = np.random.default_rng(0)
X = RNG.random((N, 2))
Y = np.sin(5 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
FRAME = pd.DataFrame(X, columns=["a", "b"])


class Bad(NamedTuple):
    """Arguments of `fit` that replace good ones, and the error they must raise."""

    given: dict[str, Any]
    message: str
    error: type[Exception] = ValueError


def with_cell(value, row=3, column=1, dtype=object):
    data = X.astype(dtype)
    data[row, column] = value
    return data


def with_value(values, value, row=3):
    out = np.array(values, dtype=object if not isinstance(value, float) else float)
    out[row] = value
    return out


def with_column(values, name="b"):
    return FRAME.assign(**{name: values})


FINITE = r"X must be finite, got {} in column {} at row 3"
SHAPE = r"(Expected 2D array|Found array with dim 3)"
RAGGED = r"{} must have rows of equal length, got {} values in row 0 and {} in row 29"
FEATURES = {
    "inf": (with_cell(np.inf, dtype=float), FINITE.format("inf", "1")),
    "minus inf": (with_cell(-np.inf, dtype=float), FINITE.format("-inf", "1")),
    "inf among objects": (with_cell(np.inf), FINITE.format("inf", "1")),
    "inf in float32": (with_cell(np.inf, dtype=np.float32), FINITE.format("inf", "1")),
    "inf in float16": (with_cell(np.inf, dtype=np.float16), FINITE.format("inf", "1")),
    "inf in a frame": (with_column([1.0, np.inf] * (N // 2)), r"'b' \(1\) at row 1"),
    "inf in polars": (pl.DataFrame({"a": X[:, 0], "b": [np.inf] * N}), r"'b' \(1\) at row 0"),
    "inf in pyarrow": (pa.table({"a": X[:, 0], "b": [np.inf] * N}), r"'b' \(1\) at row 0"),
    "complex": (X + 1j, r"[Cc]omplex data not supported"),
    "vector": (X[:, 0], SHAPE),
    "three axes": (X[:, :, None], SHAPE),
    "number": (1.0, SHAPE),
    "no rows": (X[:0], r"0 sample"),
    "no columns": (X[:, :0], r"0 feature"),
    "empty list": ([], SHAPE),
    "list of empty lists": ([[]] * N, r"0 feature"),
    "ragged": (
        [[1.0, 2.0]] * (N - 1) + [[1.0]],
        RAGGED.format("X", 2, 1),
    ),
    "one list": (X[:, 0].tolist(), SHAPE),
    "None": (None, r"Expected 2D array, got scalar array instead:\narray=None"),
    "string": ("rows", r"Expected 2D array, got scalar array instead:\narray=rows"),
    "bytes": (b"rows", r"Expected 2D array, got scalar array instead:\narray=b'rows'"),
    "dictionary": ({"a": X[:, 0]}, r"Expected 2D array, got scalar array instead:\narray={'a'"),
    "set": ({1, 2}, r"Expected 2D array, got scalar array instead:\narray={1, 2}"),
    "generator": ((row for row in X), r"Expected 2D array, got scalar array instead"),
    "masked": (np.ma.array(X, mask=X > 0.9), r"X must not have masked entries"),
    "structured": (np.zeros(N, dtype=[("a", float), ("b", float)]), SHAPE),
    "void": (
        np.zeros((N, 2), dtype="V8"),
        r"X must hold real numbers, got b.* in column 0 at row 0",
    ),
    "series": (FRAME["a"], r"X must have two dimensions, got a single column"),
    "polars series": (pl.Series(X[:, 0]), r"X must have two dimensions, got a single column"),
    "frame without rows": (FRAME[:0], r"at least one row and one column"),
    "frame without columns": (FRAME[[]], r"at least one row and one column"),
    "names twice": (
        FRAME.set_axis(["a", "a"], axis=1),
        r"X must have distinct column names",
    ),
    "huge integers": (
        with_column([10**400] * N),
        r"got 1000.* in column 'b' at row 0",
    ),
    "infinite decimals": (
        with_column([decimal.Decimal("Infinity")] * N),
        r"X must be finite, got inf in column 'b'",
    ),
    "struct in polars": (
        pl.DataFrame({"a": X[:, 0], "b": [{"k": 1}] * N}),
        r"column 'b'",
    ),
    "one row fewer": (X[1:], r"X and y must have the same number of rows, got 29 and 30"),
    "one row more": (np.vstack([X, X[:1]]), r"same number of rows, got 31 and 30"),
}
TYPES = {  # of which the error is a TypeError
    "sparse": (scipy.sparse.csr_matrix(X), r"[Ss]parse"),
    "sparse array": (scipy.sparse.coo_array(X), r"[Ss]parse"),
    "list in a cell": (with_column([[1]] * N), r"column 'b'"),
    "dictionary in a cell": (with_column([{"k": 1}] * N), r"column 'b'"),
    "object in a cell": (with_column([object()] * N), r"column 'b'"),
    "numbers and words": (with_column([1.0, "two"] * (N // 2)), r"column 'b'"),
    "numbers and dates": (with_column([1.0, dt.date(2024, 1, 1)] * (N // 2)), r"column 'b'"),
    "words and dates": (with_column(["x", dt.date(2024, 1, 1)] * (N // 2)), r"column 'b'"),
    "complex in a cell": (with_column([1 + 2j] * N), r"column 'b'"),
    "bytes in a cell": (with_column([b"x", 1.0] * (N // 2)), r"column 'b'"),
    "list in polars": (pl.DataFrame({"a": X[:, 0], "b": [[1.0]] * N}), r"column 'b'"),
    "binary in polars": (pl.DataFrame({"a": X[:, 0], "b": [b"x"] * N}), r"column 'b'"),
    "list in pyarrow": (pa.table({"a": X[:, 0], "b": [[1.0]] * N}), r"column 'b'"),
    "lazy frame": (pl.LazyFrame({"a": X[:, 0]}), r"got a lazy LazyFrame: call its collect\(\)"),
    "names of two types": (FRAME.set_axis(["a", 1], axis=1), r"names of types int, str"),
}
TARGETS = {
    "None": (None, r"y"),
    "NaN": (with_value(Y, np.nan), r"y must be finite, got NaN"),
    "inf": (with_value(Y, np.inf), r"y must be finite, got inf"),
    "minus inf": (with_value(Y, -np.inf), r"y must be finite, got -inf"),
    "missing": (with_value(Y, None), r"y must"),
    "word": (with_value(Y, "high"), r"y must"),
    "words": (np.array(["high"] * N), r"y must"),
    "digits": (Y.astype(str), r"y must"),
    "dates": (np.full(N, np.datetime64("2024-01-01")), r"y must"),
    "durations": (np.full(N, np.timedelta64(3, "h")), r"y must"),
    "complex": (Y + 1j, r"y must"),
    "complex object": (with_value(Y, 1j), r"y must"),
    "sparse": (scipy.sparse.csr_matrix(Y[:, None]), r"y must be a dense array"),
    "masked": (np.ma.array(Y, mask=Y > 0.5), r"y must not have masked entries"),
    "number": (1.0, r"y must have shape"),
    "no targets": (Y[:0], r"y must have shape"),
    "no columns": (np.empty((N, 0)), r"y must have shape"),
    "three axes": (Y[:, None, None], r"y must have shape"),
    "too few": (Y[:-1], r"same number of rows, got 30 and 29"),
    "too many": (np.append(Y, 0.0), r"same number of rows, got 30 and 31"),
    "transposed": (np.column_stack([Y, Y]).T, r"same number of rows, got 30 and 2"),
    "ragged": (
        [[1.0]] * (N - 1) + [[1.0, 2.0]],
        RAGGED.format("y", 1, 2),
    ),
    "string": ("y", r"y must"),
    "dictionary": ({"y": Y}, r"y must"),
    "too large": (np.full(N, np.longdouble("1e4000")), r"y must"),
    "too large as integers": ([10**400] * N, r"y must"),
    "gap in a second target": (np.column_stack([Y, with_value(Y, np.nan)]), r"y must be finite"),
    "series with a gap": (pd.Series(with_value(Y, np.nan)), r"y must be finite"),
    "nullable with a gap": (pd.Series([None, 1.0] * (N // 2), dtype="Float64"), r"y must"),
    "categories": (pd.Series(["u", "v"] * (N // 2), dtype="category"), r"y must"),
    "frame of words": (pd.DataFrame({"y": ["u"] * N}), r"y must"),
}
ONES = np.ones(N)
NUMBERS = {
    "negative": (with_value(ONES, -1.0), r"{} must not be negative, got -1.0 at position 3"),
    "NaN": (with_value(ONES, np.nan), r"{} must be finite, got nan at position 3"),
    "inf": (with_value(ONES, np.inf), r"{} must"),
    "too few": (ONES[1:], r"{} must have 30 entries, got 29"),
    "too many": (np.ones(N + 1), r"{} must have 30 entries, got 31"),
    "column": (ONES[:, None], r"{} must be one-dimensional, got shape \(30, 1\)"),
    "words": (np.array(["1"] * N), r"{} must"),
    "object": (with_value(ONES, "x"), r"{} must"),
    "missing": (with_value(ONES, None), r"{} must"),
    "complex": (ONES + 1j, r"{} must"),
    "string": ("a", r"{} must"),
    "masked": (np.ma.array(ONES, mask=np.arange(N) == 3), r"{} must not have masked entries"),
    "sparse": (scipy.sparse.csr_matrix(ONES[:, None]), r"{} must"),
    "dates": (np.full(N, np.datetime64("2024-01-01")), r"{} must"),
}
WEIGHTS = {
    "all zero": (np.zeros(N), r"sample_weight must"),
    "too small": (with_value(ONES, 1e-300), r"sample_weight must be 0 or in"),
    "too large": (with_value(ONES, 1e200), r"sample_weight must be 0 or in"),
}

CORPUS = {
    **{f"X, {name}": Bad({"X": x}, said) for name, (x, said) in FEATURES.items()},
    **{f"X, {name}": Bad({"X": x}, said, TypeError) for name, (x, said) in TYPES.items()},
    **{f"y, {name}": Bad({"y": y}, said) for name, (y, said) in TARGETS.items()},
    **{
        f"{argument}, {name}": Bad({argument: values}, said.format(argument, argument))
        for argument in ("sample_weight", "known_noise")
        for name, (values, said) in NUMBERS.items()
    },
    **{f"sample_weight, {name}": Bad({"sample_weight": w}, s) for name, (w, s) in WEIGHTS.items()},
}

NEW_FRAME = FRAME.assign(kind=["u", "v"] * (N // 2), when=pd.Timestamp("2024-01-01"))
NEW = {  # rows to predict by a model of NEW_FRAME
    "a column fewer": (NEW_FRAME.drop(columns="b"), r"yet now missing: 'b'", ValueError),
    "another name": (NEW_FRAME.rename(columns={"a": "A"}), r"'A'.*\n.*'a'", ValueError),
    "words for numbers": (NEW_FRAME.assign(b="x"), r"column 'b'", ValueError),
    "numbers for times": (NEW_FRAME.assign(when=1.0), r"column 'when'", ValueError),
    "words for times": (NEW_FRAME.assign(when="soon"), r"column 'when'", ValueError),
    "durations": (NEW_FRAME.assign(when=pd.Timedelta("1h")), r"column 'when'", ValueError),
    "complex": (NEW_FRAME.assign(b=1 + 2j), r"X must hold numbers in column 'b'", ValueError),
    "lists": (NEW_FRAME.assign(b=[[1]] * N), r"column 'b'", (TypeError, ValueError)),
    "inf": (NEW_FRAME.assign(b=np.inf), r"got inf in column 'b' \(1\) at row 0", ValueError),
    "no rows": (NEW_FRAME[:0], r"at least one row and one column", ValueError),
    "two columns of an array": (X, r"2 features, but .* is expecting 4", ValueError),
    "vector": (X[:, 0], SHAPE, ValueError),
    "None": (None, SHAPE, ValueError),
    "series": (NEW_FRAME["a"], r"X must have two dimensions, got a single column", ValueError),
    "lazy frame": (pl.LazyFrame({"a": [1.0]}), r"got a lazy LazyFrame", TypeError),
    "names twice": (
        NEW_FRAME.set_axis(["a", "a", "b", "kind"], axis=1),
        r"X must have distinct column names",
        ValueError,
    ),
}
