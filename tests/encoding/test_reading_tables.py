"""Tables of any kind read as numbers: frames of three libraries, arrays of objects, lists."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from triegp.encoding.columns import Columns
from triegp.encoding.tables import is_named_frame, read_table

TIMES = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2, 12), None]
COLUMNS = {
    "number": [1.5, 2.5, None],
    "whole": [1, 2, None],
    "flag": [True, None, False],
    "text": ["b", "a", None],
    "time": TIMES,
    "day": [dt.date(2024, 1, 1), None, dt.date(2024, 1, 3)],
    "span": [dt.timedelta(days=1), dt.timedelta(hours=12), None],
}
READ = np.array(
    [
        [1.5, 1.0, 1.0, 1.0, 19723.0, 19723.0, 1.0],
        [2.5, 2.0, np.nan, 0.0, 19724.5, np.nan, 0.5],
        [np.nan, np.nan, 0.0, np.nan, np.nan, 19725.0, np.nan],
    ]
)
KINDS = ("number", "number", "number", "category", "time", "time", "duration")


def nullable(columns):
    return pd.DataFrame(columns).convert_dtypes()


@pytest.mark.parametrize(
    "make",
    [pd.DataFrame, nullable, pl.DataFrame, pa.table],
    ids=["pandas", "nullable", "polars", "pyarrow"],
)
def test_a_frame_of_any_library_gives_the_same_numbers(make):
    data, columns = read_table(make(COLUMNS), None)
    np.testing.assert_array_equal(data, READ)
    assert columns.kinds == KINDS
    assert columns.categories == ((), (), (), ("a", "b"), (), (), ())
    assert columns.names == tuple(COLUMNS)


def test_objects_without_names_give_the_same_numbers():
    cells = np.array(list(COLUMNS.values()), dtype=object).T
    for table in (cells, cells.tolist()):
        data, columns = read_table(table, None)
        np.testing.assert_array_equal(data, READ)
        assert columns.kinds == KINDS
        assert columns.names is None


def test_numbers_stay_the_array_they_are():
    for dtype in (np.float64, np.float32, np.int8, np.bool_):
        X = np.eye(3).astype(dtype)
        data, columns = read_table(X, None)
        assert data is X
        assert columns.plain
    X = np.array([[1.0, np.nan]])
    assert read_table(X, None)[0] is X


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_new_rows_are_read_as_in_training(make):
    frame = make(COLUMNS)
    _, known = read_table(frame, None)
    turned = dict(reversed(list(COLUMNS.items())))
    data, _ = read_table(make(turned), None, known)
    np.testing.assert_array_equal(data, READ)
    other = COLUMNS | {"text": ["c", "a", "0"]}
    data, more = read_table(make(other), None, known)
    assert more.categories[3] == ("a", "b", "0", "c")  # codes of known ones stay
    np.testing.assert_array_equal(data[:, 3], [3.0, 0.0, 2.0])


def test_orders_of_categories_are_kept():
    levels = ["low", "mid", "high"]
    values = ["high", "low", None]
    for frame in (
        pd.DataFrame({"x": pd.Categorical(values, levels, ordered=True)}),
        pl.DataFrame({"x": pl.Series(values, dtype=pl.Enum(levels))}),
    ):
        data, columns = read_table(frame, None)
        assert columns == Columns(("ordered",), (tuple(levels),), ("x",))
        np.testing.assert_array_equal(data[:, 0], [2.0, 0.0, np.nan])
    data, columns = read_table(pd.DataFrame({"x": pd.Categorical(values)}), None)
    assert columns.kinds == ("category",)


@pytest.mark.parametrize("chosen", [["b"], ["b", 1], [1], [False, True], np.array([False, True])])
def test_numbers_can_be_categories(chosen):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [7, 5, 7]})
    data, columns = read_table(frame, None, categorical=chosen)
    assert columns.kinds == ("number", "category")
    assert columns.categories == ((), (5.0, 7.0))
    np.testing.assert_array_equal(data[:, 1], [1.0, 0.0, 1.0])
    # the same categories in another dtype, with a gap
    again, _ = read_table(frame.assign(b=[5.0, np.nan, 7.0]), None, columns)
    np.testing.assert_array_equal(again[:, 1], [0.0, np.nan, 1.0])
    if "b" not in list(chosen):
        data, columns = read_table(frame.to_numpy(), None, categorical=chosen)
        assert columns.categories == ((), (5.0, 7.0))


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("b", "from_dtype"),
        (["c"], "names 'c'"),
        ([2], "between 0 and 1"),
        ([-1], "between 0 and 1, got -1"),
        ([True], "2 entries"),
        ([0.5], "0.5"),
        ([[0]], "categorical_features"),
    ],
)
def test_a_bad_choice_of_categories_is_named(chosen, said):
    with pytest.raises(ValueError, match=said):
        read_table(pd.DataFrame({"a": [1.0], "b": [2.0]}), None, categorical=chosen)


def test_no_numbers_are_categories_by_none():
    _, columns = read_table(pd.DataFrame({"a": [1, 2], "b": ["u", "v"]}), None, categorical=None)
    assert columns.kinds == ("number", "category")


def test_times_with_a_zone_are_local_times():
    stamps = pd.to_datetime(["2024-01-01 23:00", "2024-07-01 23:00"]).tz_localize("Europe/Berlin")
    data, _ = read_table(pd.DataFrame({"t": stamps}), None)
    np.testing.assert_allclose(24 * (data[:, 0] % 1), 23.0)
    cells = np.array([[dt.time(6)], [dt.time(18)]], dtype=object)
    np.testing.assert_array_equal(read_table(cells, None)[0][:, 0], [0.25, 0.75])


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        (pl.LazyFrame({"a": [1]}), TypeError, "collect"),
        (pl.Series([1.0]), ValueError, "two dimensions"),
        (pd.Series([1.0]), ValueError, "two dimensions"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "distinct column names.*'a'"),
        (pd.DataFrame({"a": [1, "x"]}), TypeError, "1 and then 'x' in column 'a' at row 1"),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), TypeError, "string names"),
        (pl.DataFrame({"a": [[1, 2]]}), TypeError, r"List.* in column 'a'"),
        (pl.DataFrame({"a": []}), ValueError, "0 sample"),
        (pd.DataFrame(index=[0, 1]), ValueError, "0 feature"),
        ([[1, {}]], TypeError, "{} in column 1 at row 0"),
        (np.ma.masked_array([[1.0]], [[True]]), ValueError, "masked"),
    ],
)
def test_what_is_not_a_table_is_refused(table, error, said):
    with pytest.raises(error, match=said):
        read_table(table, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": ["a", "b", "c"]}, "numbers in column 'number'"),
        ({"time": [1, 2, 3]}, "times in column 'time'"),
        ({"span": ["a", "b", "c"]}, "durations in column 'span'"),
        ({"text": [1, 2, 3]}, "strings and numbers"),
    ],
)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_another_kind_than_in_training_is_refused(make, change, said):
    _, known = read_table(make(COLUMNS), None)
    with pytest.raises(ValueError, match=said):
        read_table(make(COLUMNS | change), None, known)


def test_columns_are_found_by_name_and_missing_ones_named():
    _, known = read_table(pd.DataFrame({"a": [1.0], "b": ["x"]}), None)
    with pytest.raises(ValueError, match="missing: 'b'"):
        read_table(pd.DataFrame({"a": [1.0]}), None, known)
    with pytest.raises(ValueError, match=r"unseen at fit time: 'B'\n.*now missing: 'b'"):
        read_table(pd.DataFrame({"a": [1.0], "B": ["x"]}), None, known)
    data, columns = read_table(pd.DataFrame({"c": [0], "b": ["x"], "a": [1.0]}), None, known)
    assert data.tolist() == [[1.0, 0.0]]
    assert columns == known
    with pytest.raises(ValueError, match=r"1 features, but .* expecting 2"):
        read_table([[1.0]], None, known)
    assert is_named_frame(pd.DataFrame({"a": [1.0]}))
    assert not is_named_frame(pd.DataFrame([[1.0]]))
    assert not is_named_frame(np.eye(2))


def test_names_that_are_no_strings_are_not_names():
    data, columns = read_table(pd.DataFrame([["x", 1.0], ["y", None]]), None)
    assert columns.names is None
    assert columns.kinds == ("category", "number")
    np.testing.assert_array_equal(data, [[0.0, 1.0], [1.0, np.nan]])


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_arrays_of_dates_of_any_unit(unit):
    dates = np.array([["2024-01-01"], ["2024-01-03"]], f"M8[{unit}]")
    data, columns = read_table(dates, None)
    assert columns.kinds == ("time",)
    np.testing.assert_array_equal(data[:, 0], [19723.0, 19725.0])
    data, columns = read_table(dates - dates[0], None)
    assert columns.kinds == ("duration",)
    np.testing.assert_array_equal(data[:, 0], [0.0, 2.0])


def test_columns_without_values():
    frame = pl.DataFrame({"a": [None, None], "b": [1.0, 2.0]})
    data, columns = read_table(frame, None)
    assert columns.kinds == ("number", "number")
    assert np.isnan(data[:, 0]).all()
    _, known = read_table(pd.DataFrame(COLUMNS), None)
    data, _ = read_table(pd.DataFrame({name: [np.nan] for name in COLUMNS}), None, known)
    assert np.isnan(data).all()


def test_categories_are_not_merged():
    _, columns = read_table(pd.DataFrame({"a": [2**53, 2**53 + 1, 1]}), None, categorical=["a"])
    assert len(columns.categories[0]) == 3
    _, columns = read_table(np.array([[b"\xff"], [b"\xfe"]], dtype=object), None)
    assert len(columns.categories[0]) == 2
    with pytest.raises(ValueError, match="finite"):
        read_table(np.array([[np.inf], [1.0]]), None, categorical=[0])
