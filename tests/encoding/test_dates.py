"""Strings that are dates: read as such if all are, and the format is not a guess."""

import warnings
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import triegp
from model_files import refused, write_parts
from triegp import BinaryTreeGPRegressor
from triegp.encoding.dates import FORMATS, read_date
from triegp.encoding.tables import read_table
from triegp.files.container import read_file

QUICK = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}
WRITTEN = {"yyyy-mm-dd": "%Y-%m-%d", "dd/mm/yyyy": "%d/%m/%Y", "mm/dd/yyyy": "%m/%d/%Y"}
MAKERS = [
    pd.DataFrame,
    pl.DataFrame,
    pa.table,
    lambda columns: np.array([*columns.values()], object).T,
]


def times(n=60):
    return pd.Series(pd.Timestamp("2023-12-20 05:30") + pd.to_timedelta(np.arange(n) * 13, "h"))


@pytest.mark.parametrize("make", MAKERS, ids=["pandas", "polars", "pyarrow", "objects"])
@pytest.mark.parametrize("clock", ["", " %H:%M", "T%H:%M:%S", " %H:%M:%S.%fZ"])
@pytest.mark.parametrize("form", FORMATS)
def test_strings_that_are_dates_are_read_as_dates(form, clock, make):
    moments = times() if clock else times().dt.floor("D")
    cells = [*moments.dt.strftime(WRITTEN[form] + clock), None]
    with pytest.warns(UserWarning, match=f"read as dates, {form}"):
        data, columns = read_table(make({"when": cells}), None)
    assert columns.kinds == ("time",)
    assert columns.formats == (form,)
    days = (moments - pd.Timestamp(0)) / pd.Timedelta("1D")
    np.testing.assert_allclose(data[:, 0], [*days, np.nan], rtol=1e-15)
    again, known = read_table(make({"when": cells[:3]}), None, columns)  # days up to 12 or not
    np.testing.assert_array_equal(again[:, 0], data[:3, 0])
    assert known == columns
    with pytest.raises(
        ValueError, match=rf"X must hold dates as {form} in .*, got '2024/1/1' at row 1"
    ):
        read_table(make({"when": [cells[0], "2024/1/1"]}), None, columns)


def test_fractions_and_separators():
    assert read_date("2024-2-29 3:04:05.25", "yyyy-mm-dd") == datetime(
        2024, 2, 29, 3, 4, 5, 250_000
    )
    assert read_date("29.2.2024", "dd/mm/yyyy") == datetime(2024, 2, 29)
    for text in ("2023-02-29", "2024-02-01 25:00", "2024-02-01x", "2024", "1/2.2024"):
        assert all(read_date(text, form) is None for form in FORMATS)


def test_day_and_month_are_never_guessed():
    frame = pd.DataFrame({"when": ["03/04/2024", "05/06/2024"], "x": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"whether the day or the month is first in column 'when'"):
        read_table(frame, None)
    _, columns = read_table(frame, None, categorical=["when"])
    assert columns.kinds == ("category", "number")
    mixed = frame.assign(when=["13/04/2024", "04/13/2024"])  # both orders
    assert read_table(mixed, None)[1].kinds[0] == "category"
    assert read_table(frame.assign(when=["2024-01-01", "soon"]), None)[1].kinds[0] == "category"
    zones = frame.assign(when=["2024-01-01 05:30", "2024-01-01 05:30+02:00"])
    assert read_table(zones, None)[1].kinds[0] == "category"


@pytest.mark.parametrize("make", MAKERS, ids=["pandas", "polars", "pyarrow", "objects"])
@pytest.mark.parametrize("cell", ["", "unknown", "2024-02-30"])
def test_a_cell_that_keeps_a_column_from_being_dates_is_named(cell, make):
    cells = [*times(40).dt.strftime("%Y-%m-%d"), cell]
    with pytest.warns(UserWarning, match=f"values are dates, yyyy-mm-dd: '{cell}' is none"):
        columns = read_table(make({"when": cells}), None)[1]
    assert columns.kinds == ("category",)


def test_strings_that_all_differ_are_told_about():
    frame = pd.DataFrame({"id": [f"u{k}" for k in range(30)]})
    with pytest.warns(
        UserWarning, match="column 'id' is read as categories, and its 30 values all"
    ):
        read_table(frame, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(frame, None, categorical=["id"])
        read_table(frame.assign(id=frame["id"].replace("u1", "u2")), None)
        read_table(frame[:10], None)


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_dates_are_learned_once_and_kept_in_files(tmp_path):
    moments = times(80)
    y = np.where(moments.dt.day_of_week > 4, 3.0, 0.0) + 0.1 * np.random.default_rng(0).random(80)
    frame = pd.DataFrame({"when": moments.dt.strftime("%d/%m/%Y %H:%M")})
    plain = BinaryTreeGPRegressor(**QUICK).fit(moments.to_frame("when"), y)
    with pytest.warns(UserWarning, match="read as dates, dd/mm/yyyy"):
        model = BinaryTreeGPRegressor(**QUICK).fit(frame, y)
    new = pd.DataFrame({"when": ["03/01/2024 12:00", "05/01/2024"]})
    as_times = pd.DataFrame({"when": pd.to_datetime(["2024-01-03 12:00", "2024-01-05 00:00"])})
    expected = plain.predict(as_times)
    model.save(tmp_path / "m")
    for fitted in (model, triegp.load(tmp_path / "m")):
        np.testing.assert_array_equal(fitted.predict(new), expected)
        np.testing.assert_array_equal(fitted.predict(as_times), expected)
    iso = new.assign(when=["2024-01-03 12:00", "2024-01-05"])
    np.testing.assert_array_equal(plain.predict(iso), expected)
    header, arrays = read_file(tmp_path / "m")
    for formats in (["mm/yyyy"], ["dd/mm/yyyy"] * 2):
        header["model"]["stream"]["columns"]["formats"] = formats
        refused(write_parts(tmp_path / "bad", header, arrays), "formats")
