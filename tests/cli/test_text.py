"""CSV files as people write them: how cells are read, in fit and in all other commands alike."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cli_problems as problems
import triegp
from cli_problems import QUICK, run, run_well
from tolerances import ROUNDING
from triegp.cli.cells import Place, drop_words, first_bad, parse_numbers, parse_times
from triegp.cli.failures import CommandError
from triegp.cli.sources import MISSING, Source

PLACE = Place(Source("f", "csv"))


def fit(data, path, *options):
    return json.loads(
        run_well("fit", data, "--target", "y", "-o", path, "--json", *QUICK, *options)
    )


def write_rows(path, header, rows, newline="\n", encoding="utf8"):
    text = newline.join([header, *rows]) + newline
    path.write_bytes(text.encode(encoding))


def numbers(n=60):
    rng = np.random.default_rng(0)
    x = rng.random(n).round(3)
    return x, np.sin(6 * x) + 0.1 * rng.standard_normal(n)


@pytest.fixture
def plain(tmp_path):
    """A file of two columns, and the contents of its model."""
    x, y = numbers()
    write_rows(tmp_path / "plain.csv", "x,y", [f"{a},{b}" for a, b in zip(x, y, strict=True)])
    fit(tmp_path / "plain.csv", tmp_path / "plain.tgp")
    return problems.contents(tmp_path / "plain.tgp")


@pytest.mark.parametrize(
    ("sep", "decimal", "newline", "encoding", "options"),
    [
        (";", ".", "\n", "utf8", ["--delimiter", ";"]),
        (";", ",", "\n", "utf8", ["--delimiter", ";", "--decimal", ","]),
        ("\t", ".", "\n", "utf8", ["--delimiter", "\\t"]),
        (",", ".", "\r\n", "utf8", []),
        (",", ".", "\n", "utf-8-sig", []),
        (",", ".", "\r\n", "utf-16", ["--encoding", "utf-16"]),
        (", ", ".", "\n", "utf8", []),
    ],
)
def test_dialects_are_read_in_all_commands(
    plain, tmp_path, sep, decimal, newline, encoding, options
):
    x, y = (column.astype(str).tolist() for column in numbers())
    rows = [f"{a}{sep}{b}".replace(".", decimal) for a, b in zip(x, y, strict=True)]
    path = tmp_path / "d.csv"
    write_rows(path, f"x{sep.strip(' ')}y", rows, newline, encoding)
    fit(path, tmp_path / "m.tgp", *options)
    assert problems.contents(tmp_path / "m.tgp") == plain
    model = tmp_path / "m.tgp"
    score = ["evaluate", model, "--target", "y", "--json"]
    expected = json.loads(run_well(*score, tmp_path / "plain.csv"))
    assert json.loads(run_well(*score, path, *options)) == expected


def test_tab_separated_and_compressed_files(plain, tmp_path):
    text = (tmp_path / "plain.csv").read_bytes()
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "d.tsv").write_bytes(text.replace(b",", b"\t"))
    for name in ("d.csv.gz", "d.tsv"):
        fit(tmp_path / name, tmp_path / "m.tgp")
        assert problems.contents(tmp_path / "m.tgp") == plain
    run_well("predict", tmp_path / "m.tgp", tmp_path / "d.csv.gz", "-o", tmp_path / "p.tsv")
    assert (tmp_path / "p.tsv").read_text().startswith("mean\tstd\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_only_line_breaks_end_the_header(tmp_path, newline):
    """A name may hold what Python's text has as line breaks beside them."""
    x, y = numbers()
    rows = [f"{a},{b}" for a, b in zip(x, y, strict=True)]
    write_rows(tmp_path / "d.csv", "a\x85b\u2028c,y", rows, newline)
    fit(tmp_path / "d.csv", tmp_path / "m.tgp")
    run_well("evaluate", tmp_path / "m.tgp", tmp_path / "d.csv", "--target", "y")
    assert triegp.load(tmp_path / "m.tgp").feature_names_in_.tolist() == ["a\x85b\u2028c"]


def test_categories_that_look_like_numbers_stay_text(tmp_path):
    rows = [f'{code},"a, ""{code}""",{len(code) + 0.01 * k}' for k in range(20) for code in CODES]
    write_rows(tmp_path / "d.csv", "code,text,y", rows)
    found = fit(tmp_path / "d.csv", tmp_path / "m.tgp", "--categorical", "code")
    assert [one["kind"] for one in found["features"]] == ["category", "category"]
    write_rows(tmp_path / "new.csv", "code,text", [f'{code},"a, ""{code}"""' for code in CODES])
    run_well("predict", tmp_path / "m.tgp", tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    found = problems.read_frame(tmp_path / "p.csv")
    table = pa.table({"code": list(CODES), "text": [f'a, "{code}"' for code in CODES]})
    model = triegp.load(tmp_path / "m.tgp")
    np.testing.assert_array_equal(found["mean"], model.predict(table))
    assert not model.outside_box(table).any()


CODES = ("01", "1", "001", "x")


def test_cells_are_read_by_the_model_and_not_by_their_batch(tmp_path):
    """A batch whose flags are all 1, whose dates are empty, whose text looks like numbers."""
    rng = np.random.default_rng(0)
    rows = [
        f"{'true' if k % 3 else 'False'},2024-01-{k % 28 + 1:02d},"
        f"{['7', 'b', 'NA'][k % 3]},{rng.random():.3f}"
        for k in range(60)
    ]
    write_rows(tmp_path / "d.csv", "flag,day,text,y", rows)
    found = fit(tmp_path / "d.csv", tmp_path / "m.tgp")
    assert [one["kind"] for one in found["features"]] == ["number", "time", "category"]
    new = ["1,2024-01-05,7", "true,,7", "0,2024-01-05 00:00:00,NA", ",2024-01-09T00:00,"]
    write_rows(tmp_path / "new.csv", "flag,day,text", new)
    for size in (1, 4):
        run_well(
            *("predict", tmp_path / "m.tgp", tmp_path / "new.csv"),
            *("-o", tmp_path / f"{size}.csv", "--batch-rows", size),
        )
    days = np.array(["2024-01-05", "NaT", "2024-01-05", "2024-01-09"], "datetime64[D]")
    table = pa.table(
        {
            "flag": pa.array([1.0, 1.0, 0.0, None]),
            "day": pa.array(days),
            "text": pa.array(["7", "7", None, None]),
        }
    )
    expected = triegp.load(tmp_path / "m.tgp").predict(table)
    for size in (1, 4):
        found = problems.read_frame(tmp_path / f"{size}.csv")
        np.testing.assert_array_equal(found["mean"], expected)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", " 2.5 ", "-3e2", None], [1.0, 2.5, -300.0, None]),
        (["0x1f", "2"], [31.0, 2.0]),
        (["true", "FALSE", "1", "0", None], [1.0, 0.0, 1.0, 0.0, None]),
        ([None, None], [None, None]),
        (["9007199254740993", "+1"], [9007199254740992.0, 1.0]),
    ],
)
def test_numbers_in_text(cells, expected):
    column = pa.chunked_array([pa.array(cells, pa.string())])
    assert parse_numbers(column, "x", PLACE).to_pylist() == expected


@pytest.mark.parametrize("bad", ["b", "true", "1,5", "2024-01-01", "--1"])
@pytest.mark.parametrize("row", [0, 1, 6, 12])
def test_a_cell_that_is_no_number_is_named(bad, row):
    cells = [str(k) for k in range(13)]
    cells[row] = bad
    column = pa.chunked_array([cells[:5], cells[5:]])
    where = rf"f, column 'x', row {row + 101}: not a number: '{bad}'"
    with pytest.raises(CommandError, match=where):
        parse_numbers(column, "x", Place(Source("f", "csv"), 100))


def test_slices_of_arrays_are_read_as_their_copies():
    """Some kernels of pyarrow, before version 24, read slices wrongly."""
    cells = pa.array(["longer than others", "true", "", "false", "NA", "1", "0.25", "7"])
    column = pa.chunked_array([cells.slice(1, 2), cells.slice(3, 3)])
    dropped = drop_words(column, MISSING)
    assert dropped.to_pylist() == ["true", None, "false", None, "1"]
    assert parse_numbers(dropped, "x", PLACE).to_pylist() == [1.0, None, 0.0, None, 1.0]
    column = pa.chunked_array([cells.slice(5), cells.slice(6)])
    assert parse_numbers(column, "x", PLACE).to_pylist() == [1.0, 0.25, 7.0, 0.25, 7.0]


def test_decimal_commas():
    column = pa.chunked_array([["1,5", "2"]])
    assert parse_numbers(column, "x", PLACE, ",").to_pylist() == [1.5, 2.0]


@pytest.mark.parametrize(("bad", "row"), [("1.000", 1), ("1.000,5", 3)])
def test_points_are_refused_beside_decimal_commas(bad, row):
    cells = ["1,5", "2", "0,25", "7"]
    cells[row] = bad
    where = rf"f, column 'x', row {row + 1}: not a number: '{bad}'"
    with pytest.raises(CommandError, match=where):
        parse_numbers(pa.chunked_array([cells]), "x", PLACE, ",")


def test_a_column_of_decimal_commas_and_a_point_is_told_about(tmp_path):
    x, y = (column.astype(str).tolist() for column in numbers())
    rows = [f"{a};{b}".replace(".", ",") for a, b in zip(x, y, strict=True)]
    write_rows(tmp_path / "d.csv", "x;y", [*rows, "1.000;1"])
    options = ["--delimiter", ";", "--decimal", ","]
    arguments = ["fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", *QUICK]
    result = run(*arguments, *options)
    assert "column 'x' is read as categories, since it holds '1.000'" in result.stderr


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_words_for_gaps_are_categories_outside_csv_files(tmp_path, kind):
    """The model and its predictions are those of the library; --missing applies to all formats."""
    words = ["NA", "null", "nan", "", "b", None]
    frame = pd.DataFrame({"text": words * 20, "y": np.arange(120.0) % 6})
    frame["y"] += 0.1 * np.random.default_rng(0).standard_normal(120)
    problems.write_frame(frame, tmp_path / f"d.{kind}")
    for options, known in (([], words), (["--missing", "NA"], [None, *words[1:]])):
        fit(tmp_path / f"d.{kind}", tmp_path / "m.tgp", *options)
        table = pa.table({"text": pa.array(known * 20, pa.string())})
        model = problems.quick_model().fit(table, frame["y"])
        arguments = ["predict", tmp_path / "m.tgp", tmp_path / f"d.{kind}"]
        run_well(*arguments, "-o", tmp_path / "p.csv", *options)
        found = problems.read_frame(tmp_path / "p.csv")
        np.testing.assert_allclose(found["mean"], model.predict(table), rtol=ROUNDING)
        assert len(set(found["mean"].round(6))) == len(set(known))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-02", None], "2024-01-02"),
        (["2024-01-02 00:00", "2024-01-02"], "2024-01-02"),
        (["2024-01-02T06:00:00.250"], "2024-01-02T06:00:00.250"),
        (["2024-01-02T06:00:00+02:00"], "2024-01-02T04:00"),
        (["06:30"], "1970-01-01T06:30"),
        (["06:30:01.5", "06:30"], "1970-01-01T06:30:01.5"),
    ],
)
def test_times_in_text(cells, expected):
    column = pa.chunked_array([pa.array(cells, pa.string())])
    found = parse_times(column, "t", PLACE).cast(pa.timestamp("ns"), safe=False)
    assert found[0].cast(pa.int64()).as_py() == np.datetime64(expected, "ns").astype(int)


def test_a_cell_that_is_no_time_is_named():
    column = pa.chunked_array([["2024-01-02", "2024-13-02", "x"]])
    with pytest.raises(CommandError, match=r"column 't', row 2: not a date or time: '2024-13-02'"):
        parse_times(column, "t", PLACE)


def test_dates_are_read_in_the_order_of_the_training_rows(tmp_path):
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(120), "D")
    y = np.where(days.day_of_week > 4, 3.0, 0.0)
    for name, form in (("d", "%d/%m/%Y"), ("iso", "%Y-%m-%d")):
        rows = [f"{when},{value}" for when, value in zip(days.strftime(form), y, strict=True)]
        write_rows(tmp_path / f"{name}.csv", "when,y", rows)
        fitted = fit(tmp_path / f"{name}.csv", tmp_path / f"{name}.tgp")
        told = "column 'when' holds strings that are read as dates, dd/mm/yyyy"
        assert any(told in line for line in fitted["warnings"]) == (name == "d")
        write_rows(tmp_path / "new.csv", "when", days[[32, 62]].strftime(form))  # 2 Feb, 3 March
        arguments = ["predict", tmp_path / f"{name}.tgp", tmp_path / "new.csv"]
        run_well(*arguments, "-o", tmp_path / f"{name}_p.csv")
    means = [problems.read_frame(tmp_path / f"{name}_p.csv")["mean"] for name in ("d", "iso")]
    np.testing.assert_array_equal(*means)
    write_rows(tmp_path / "new.csv", "when", ["02/02/2024", "02/13/2024"])
    result = run("predict", tmp_path / "d.tgp", tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert "column 'when', row 2: not a date as dd/mm/yyyy: '02/13/2024'" in result.stderr


@pytest.mark.parametrize("n", [1, 2, 3, 10, 17])
def test_the_first_bad_cell_is_found(n):
    for bad in range(n):
        column = pa.chunked_array([[k >= bad for k in range(n)]])
        assert first_bad(column, lambda some: not any(some.to_pylist())) == bad


def test_names_of_columns_may_hold_commas(tmp_path):
    x, y = numbers()
    rows = [f"{a},{a},{b}" for a, b in zip(x, y, strict=True)]
    write_rows(tmp_path / "d.csv", '"a, b",c,y', rows)
    found = fit(tmp_path / "d.csv", tmp_path / "m.tgp", "--features", '"a, b"')
    assert [one["name"] for one in found["features"]] == ["a, b"]
    run_well(
        *("predict", tmp_path / "m.tgp", tmp_path / "d.csv", "--keep", '"a, b"'),
        *("-o", tmp_path / "p.csv"),
    )
    assert (tmp_path / "p.csv").read_text().startswith('"a, b",mean,std\n')


def test_kept_cells_are_copied_as_they_are(plain, tmp_path):
    cells = ["007", "NA", "", " x ", '"a, b"', '"say ""c"""', "1.50", "Zoë"]
    write_rows(tmp_path / "d.csv", "k,x", [f"{cell},0.5" for cell in cells])
    run_well(
        *("predict", tmp_path / "plain.tgp", tmp_path / "d.csv", "--keep", "k"),
        *("-o", tmp_path / "p.csv", "--batch-rows", 1),
    )
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [line.rsplit(",", 2)[0] for line in lines] == cells


def test_numbers_as_categories_of_a_parquet_file_are_read_from_text(tmp_path):
    frame = problems.make_frame()[["zip", "y"]].assign(zip=lambda f: f["zip"].astype(int))
    problems.write_frame(frame, tmp_path / "d.parquet")
    problems.write_frame(frame, tmp_path / "d.csv")
    fit(tmp_path / "d.parquet", tmp_path / "m.tgp", "--categorical", "zip")
    for kind in ("csv", "parquet"):
        arguments = [tmp_path / "m.tgp", tmp_path / f"d.{kind}", "-o", tmp_path / f"{kind}.csv"]
        run_well("predict", *arguments)
    assert (tmp_path / "csv.csv").read_bytes() == (tmp_path / "parquet.csv").read_bytes()


def test_text_in_the_place_of_a_category_of_numbers(tmp_path):
    frame = problems.make_frame()[["zip", "y"]].assign(zip=lambda f: f["zip"].astype(int))
    problems.write_frame(frame, tmp_path / "d.parquet")
    fit(tmp_path / "d.parquet", tmp_path / "m.tgp", "--categorical", "zip")
    write_rows(tmp_path / "d.csv", "zip", ["1", "b"])
    result = run("predict", tmp_path / "m.tgp", tmp_path / "d.csv", "-o", "-")
    assert result.exit_code == 2
    assert "column 'zip', row 2: not a number: 'b'" in result.stderr
