"""Bad input and output: one line that names the place, exit code 2, and nothing written."""

import errno
import os
import sys

import numpy as np
import pandas as pd
import pytest

import cli_problems as problems
import triegp
import triegp.files.whole
from cli_problems import QUICK, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, a model, and files with one thing wrong each."""
    found = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    frame = problems.make_frame(40)[["x", "when", "y"]].fillna(0.5)
    for kind in problems.FORMATS:
        problems.write_frame(frame, found / f"d.{kind}")
        problems.write_frame(frame[:0], found / f"none.{kind}")
    result = run("fit", found / "d.csv", "--target", "y", "-o", found / "m.tgp", *QUICK)
    assert result.exit_code == 0, result.stderr
    two = np.column_stack([frame["y"], frame["y"]])
    small = triegp.BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=5)
    small.fit(frame[["x", "when"]], two).save(found / "two.tgp")
    rows = (found / "d.csv").read_text().splitlines()
    texts = {
        "empty": "",
        "header": "x,when,y\n",
        "twice": "x,x,y\n1,2,3\n",
        "short": "\n".join([*rows[:5], "0.1", *rows[5:]]),
        "long": "\n".join([*rows[:3], "1,2024-01-01,2,3"]),
        "word": "\n".join([*rows[:9], "much,2024-01-01,1.5"]),
        "date": "\n".join([*rows[:2], "0.5,tomorrow,1.5"]),
        "zones": "\n".join([*rows[:3], "0.5,2024-03-05T00:00:00+02:00,1.5"]),
        "zoned": "x,when,y\n0.5,,1.5\n0.5,2024-03-05T00:00:00+02:00,1.5\n",
        "infinite": "\n".join([*rows[:2], "inf,2024-01-01,1.5"]),
        "target_word": "\n".join([*rows[:4], "0.5,2024-01-01,high"]),
        "target_gap": "\n".join([*rows[:4], "0.5,2024-01-01,"]),
        "target_infinite": "\n".join([*rows[:4], "0.5,2024-01-01,1e999"]),
        "weights": "x,y,w,t\n1,2,-1,a\n2,3,1,b\n",
        "only_target": "y\n1\n2\n",
        "semicolons": "x;y\n1,5;2\n",
        "tabs": "x\ty\n1\t2\n",
    }
    for name, text in texts.items():
        (found / f"{name}.csv").write_text(text)
    (found / "latin.csv").write_bytes(
        "x,when,y\n0.5,2024-01-01,1.5\nZo\u00eb,,1\n".encode("latin1")
    )
    (found / "fake.parquet").write_text("x,y\n1,2\n")
    (found / "fake.arrow").write_text("x,y\n1,2\n")
    (found / "fake.csv.gz").write_text("x,y\n1,2\n")
    (found / "data.xlsx").write_text("x,y\n1,2\n")
    whole = (found / "m.tgp").read_bytes()
    (found / "cut.tgp").write_bytes(whole[:-100])
    (found / "edited.tgp").write_bytes(whole[:-4] + bytes(rng.bytes(4)))
    (found / "folder").mkdir()
    (found / "link.tgp").symlink_to("m.tgp")
    (found / "clash.csv").write_text("x,when,y,mean\n0.5,2024-01-01,1,2\n")
    (found / "other").mkdir()
    (found / "other" / "a.csv").write_text("x,y\n1,2\n")
    (found / "other" / "b.csv").write_text("x,z\n1,2\n")
    (found / "kinds").mkdir()
    (found / "kinds" / "a.csv").write_text("x,y\n1,2\n")
    (found / "kinds" / "b.csv").write_text("x,y\nlow,2\n")
    return found


FIT = ["fit", "--target", "y", "-o", "OUT.tgp", *QUICK]
PREDICT = ["predict", "m.tgp", "-o", "OUT.csv"]
EVALUATE = ["evaluate", "m.tgp", "--target", "y"]
UPDATE = ["update", "m.tgp", "--target", "y", "-o", "OUT.tgp"]

TABLE = [
    # files that are not there, or are something else
    ([*FIT, "no.csv"], "no.csv: there is no such file"),
    ([*FIT, "x*.parquet"], "x*.parquet: there is no such file"),
    ([*FIT, "data.xlsx"], "data.xlsx: unknown extension, expected one of .csv,"),
    ([*FIT, "folder"], "folder: there are no data files in this folder"),
    ([*FIT, "fake.parquet"], "fake.parquet: Parquet magic bytes not found"),
    ([*FIT, "fake.arrow"], "fake.arrow: "),
    ([*FIT, "fake.csv.gz"], "fake.csv.gz: "),
    ([*FIT, "-", "-"], "standard input can be read once only"),
    ([*PREDICT, "fake.parquet"], "fake.parquet: Parquet magic bytes not found"),
    (["predict", "no.tgp", "d.csv", "-o", "OUT.csv"], "there is no file no.tgp"),
    (["predict", "d.csv", "d.csv", "-o", "OUT.csv"], "d.csv is not a model file"),
    (["predict", "cut.tgp", "d.csv", "-o", "OUT.csv"], "cut.tgp is not a model file, or is trunc"),
    (["evaluate", "edited.tgp", "d.csv", "--target", "y"], "edited.tgp was changed after"),
    (["update", "cut.tgp", "d.csv", "--target", "y"], "cut.tgp is not a model file"),
    (["predict", "two.tgp", "d.csv", "-o", "OUT.csv"], "two.tgp: the model has 2 targets"),
    (["info", "no.tgp"], "there is no file no.tgp"),
    (["info", "d.parquet"], "d.parquet is not a model file"),
    (["info", "folder"], "there is no file folder"),
    # no rows
    ([*FIT, "empty.csv"], "empty.csv: the file is empty"),
    ([*FIT, "header.csv"], "header.csv: there are no rows"),
    ([*FIT, "none.parquet"], "none.parquet: there are no rows"),
    ([*FIT, "none.arrow"], "none.arrow: there are no rows"),
    ([*PREDICT, "empty.csv"], "empty.csv: the file is empty"),
    ([*PREDICT, "header.csv"], "header.csv: there are no rows"),
    ([*PREDICT, "none.parquet"], "none.parquet: there are no rows"),
    ([*PREDICT, "none.arrow"], "none.arrow: there are no rows"),
    ([*EVALUATE, "header.csv"], "header.csv: there are no rows"),
    ([*UPDATE, "none.parquet"], "none.parquet: there are no rows"),
    # columns
    (
        ["fit", "d.csv", "--target", "z", "-o", "OUT.tgp"],
        "d.csv: there is no column 'z'; it has",
    ),
    (["fit", "d.csv", "--target", "Y ", "-o", "OUT.tgp"], "no column 'Y ' (nearest: 'y'); it has"),
    ([*FIT, "d.csv", "--drop", "wehn"], "no column 'wehn' (nearest: 'when'); it has"),
    ([*FIT, "semicolons.csv"], "semicolons.csv: the header is a single cell, 'x;y', expected"),
    ([*PREDICT, "semicolons.csv"], "separated by ',': pass --delimiter ';'"),
    ([*FIT, "tabs.csv"], r"separated by ',': pass --delimiter '\t'"),
    ([*FIT, "d.csv", "--features", "x,q"], "d.csv: there is no column 'q'"),
    ([*FIT, "d.csv", "--drop", "q"], "d.csv: there is no column 'q'"),
    ([*FIT, "d.csv", "--weight", "q"], "d.csv: there is no column 'q'"),
    ([*FIT, "d.csv", "--categorical", "y"], "there is no column 'y'"),
    ([*FIT, "d.csv", "--features", "x,y"], "--features: 'y' has another use"),
    ([*FIT, "only_target.csv"], "only_target.csv: there is no column to learn from"),
    ([*FIT, "twice.csv"], "twice.csv: there are several columns 'x'"),
    ([*PREDICT, "twice.csv"], "twice.csv: there are several columns 'x'"),
    ([*PREDICT, "weights.csv"], "weights.csv: there is no column 'when'; it has 'x'"),
    ([*PREDICT, "d.csv", "--keep", "id"], "d.csv: there is no column 'id'"),
    ([*PREDICT, "clash.csv", "--keep", "mean"], "--keep: 'mean' is the name of a column"),
    ([*EVALUATE[:2], "d.parquet", "--target", "z"], "d.parquet: there is no column 'z'"),
    ([*FIT, "other/a.csv", "other/b.csv"], "other/b.csv: column 'y' must be in all files"),
    ([*FIT, "kinds"], "b.csv, column 'x': the files must agree, got int64 and then string"),
    # rows and cells
    ([*FIT, "short.csv"], "short.csv: CSV parse error: row 5: Expected 3 columns, got 1"),
    ([*PREDICT, "short.csv"], "short.csv: CSV parse error: row 5: Expected 3 columns, got 1"),
    ([*PREDICT, "long.csv"], "long.csv: CSV parse error: row 3: Expected 3 columns, got 4"),
    ([*PREDICT, "word.csv"], "word.csv, column 'x', row 9: not a number: 'much'"),
    ([*PREDICT, "word.csv", "--batch-rows", "2"], "word.csv, column 'x', row 9: not a number"),
    ([*PREDICT, "date.csv"], "date.csv, column 'when', row 2: not a date or time: 'tomorrow'"),
    ([*PREDICT, "zones.csv"], "zones.csv, column 'when', row 3: all times must have a UTC offset"),
    (
        [*PREDICT, "zones.csv", "--batch-rows", "1"],
        "zones.csv, column 'when', row 3: a time with a UTC offset after times without",
    ),
    (
        [*PREDICT, "d.parquet", "zoned.csv"],
        "zoned.csv, column 'when', row 2: a time with a UTC offset after times without",
    ),
    (
        [*EVALUATE, "zoned.csv", "d.csv"],
        "d.csv, column 'when', row 1: a time without a UTC offset after times with",
    ),
    ([*PREDICT, "infinite.csv"], "infinite.csv, column 'x', row 2: not finite: inf"),
    ([*FIT, "infinite.csv"], "infinite.csv, column 'x', row 2: not finite: inf"),
    ([*PREDICT, "latin.csv"], "latin.csv: "),
    ([*FIT, "target_word.csv"], "target_word.csv, column 'y', row 4: not a number: 'high'"),
    ([*FIT, "target_gap.csv"], "target_gap.csv, column 'y', row 4: the target is missing"),
    ([*FIT, "d.csv", "target_gap.csv"], "target_gap.csv, column 'y', row 4: the target is miss"),
    ([*FIT, "target_infinite.csv"], "target_infinite.csv, column 'y', row 4: the target is inf"),
    ([*EVALUATE, "target_gap.csv"], "target_gap.csv, column 'y', row 4: the target is missing"),
    ([*UPDATE, "target_word.csv"], "target_word.csv, column 'y', row 4: not a number: 'high'"),
    ([*FIT, "weights.csv", "--weight", "w"], "weights.csv, column 'w', row 1: the weight is neg"),
    ([*FIT, "weights.csv", "--noise", "t"], "weights.csv, column 't', row 1: not a number: 'a'"),
    ([*FIT[:2], "when", *FIT[3:], "d.parquet"], "column 'when': the target must be numbers, got"),
    # options
    (["fit", "d.csv", "-o", "OUT.tgp"], "Missing option '--target'"),
    (["fit", "--target", "y", "-o", "OUT.tgp"], "Missing argument 'DATA...'"),
    (["nonsense"], "No such command 'nonsense'"),
    (["fit", "--nonsense"], "No such option"),
    (
        [*FIT, "d.csv", "--param", "n_tree=4"],
        "--param: BinaryTreeGPRegressor has no parameter",
    ),
    ([*FIT, "d.csv", "--param", "tol"], "expected name=value, got 'tol'"),
    ([*FIT, "d.csv", "--param", "tol=-1"], "tol must be"),
    ([*FIT, "d.csv", "--param", "random_state=1"], "random_state is given by an option of its own"),
    ([*FIT, "d.csv", "--target-transform", "root"], "target_transform must be"),
    ([*FIT, "d.csv", "--time-budget", "-5"], "time_budget must be"),
    ([*PREDICT, "d.csv", "--quantiles", "0.5,2"], "must lie between 0 and 1, got 2"),
    ([*PREDICT, "d.csv", "--quantiles", "half"], "expected numbers with commas, got 'half'"),
    ([*PREDICT, "d.csv", "--interval", "90"], "90.0 is not in the range 0<x<1"),
    ([*PREDICT, "d.csv", "--delimiter", "ab"], "must be one ASCII character"),
    ([*PREDICT, "d.csv", "--encoding", "klingon"], "d.csv: unknown encoding: klingon"),
    (["predict", "m.tgp", "d.csv", "-o", "-", "--json"], "cannot both go to standard output"),
    (["report", "m.tgp", "-o", "OUT.html", "--data", "d.csv"], "--data needs --target"),
    # outputs
    (["predict", "m.tgp", "d.csv", "-o", "OUT.doc"], "OUT.doc: unknown extension"),
    (["predict", "m.tgp", "d.csv", "-o", "no/OUT.csv"], "no/OUT.csv: there is no folder no"),
    (["fit", "d.csv", "--target", "y", "-o", "no/OUT.tgp"], "no/OUT.tgp: there is no folder no"),
    (["predict", "m.tgp", "d.csv", "-o", "d.csv"], "d.csv: the output must not be one of the inp"),
    (
        ["fit", "d.csv", "--target", "y", "-o", "./d.csv"],
        "the output must not be one of",
    ),
    (["report", "m.tgp", "-o", "m.tgp"], "m.tgp: the output must not be one of the inputs"),
    (["report", "m.tgp", "-o", "folder/../m.tgp"], "m.tgp: the output must not be one of the inp"),
    (["report", "link.tgp", "-o", "m.tgp"], "m.tgp: the output must not be one of the inputs"),
    (["report", "m.tgp", "-o", "link.tgp"], "link.tgp: the output must not be one of the inputs"),
    (
        ["report", "m.tgp", "-o", "d.csv", "--data", "d.csv", "--target", "y"],
        "d.csv: the output must not be one of the inputs",
    ),
    (
        ["predict", "m.tgp", "d.csv", "-o", "m.tgp", "--output-format", "csv"],
        "m.tgp: the output must not be one of the inputs",
    ),
    ([*FIT, "d.csv", "--report", "OUT.tgp"], "--report: OUT.tgp is the model file of -o"),
    ([*FIT, "d.csv", "--report", "folder/../OUT.tgp"], "OUT.tgp is the model file of -o, expect"),
    ([*FIT, "d.csv", "--report", "d.csv"], "d.csv: the output must not be one of the inputs"),
    (
        ["predict", "m.tgp", "d.csv", "-o", "folder", "--output-format", "csv"],
        "is a folder, exp",
    ),
    ([*FIT[:4], "-", "d.csv"], "-o: standard output is for predictions only"),
    ([*FIT[:4], os.devnull, "d.csv"], "is a device, expected a file"),
    ([*UPDATE[:5], os.devnull, "d.csv"], "is a device, expected a file"),
]


@pytest.mark.parametrize(("arguments", "expected"), TABLE, ids=[row[1] for row in TABLE])
def test_one_line_names_the_place_and_nothing_is_written(folder, monkeypatch, arguments, expected):
    monkeypatch.chdir(folder)
    before = {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)}
    result = run(*arguments, input=b"")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("triegp: ")
    assert expected in line
    assert len(line) < 600
    assert {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)} == before


# No space left


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is full")
@pytest.mark.parametrize("kind", problems.FORMATS)
def test_a_device_that_is_full(folder, kind):
    result = run(
        *("predict", folder / "m.tgp", folder / "d.csv", "-o", "/dev/full"),
        *("--output-format", kind),
    )
    assert result.exit_code == 2
    assert result.stderr == "triegp: /dev/full: no space left on device\n"


class FullPart:
    """A file that has no space after some bytes."""

    def __init__(self, file, space):
        self.file, self.space = file, space

    def write(self, data):
        self.space -= len(data)
        if self.space < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


@pytest.mark.parametrize("space", [0, 1500])
@pytest.mark.parametrize("name", ["fit", "update", *(f"p.{kind}" for kind in problems.FORMATS)])
def test_a_disk_that_becomes_full_leaves_the_old_file(folder, tmp_path, monkeypatch, name, space):
    path, real = tmp_path / name, triegp.files.whole._new_part
    path.write_bytes((folder / "m.tgp").read_bytes())
    monkeypatch.setattr(
        triegp.files.whole, "_new_part", lambda *given: FullPart(real(*given), space)
    )
    arguments = {
        "fit": ["fit", folder / "d.csv", "--target", "y", "-o", path, *QUICK],
        "update": ["update", path, folder / "d.csv", "--target", "y"],
    }
    predict = ["predict", folder / "m.tgp", folder / "d.csv", "-o", path, "--batch-rows", 10]
    result = run(*arguments.get(name, predict))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"triegp: {path}: no space left on device"
    assert path.read_bytes() == (folder / "m.tgp").read_bytes()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is permitted to root"
)
def test_folders_that_may_not_be_written(folder, tmp_path):
    tmp_path.chmod(0o500)
    result = run("predict", folder / "m.tgp", folder / "d.csv", "-o", tmp_path / "p.csv")
    tmp_path.chmod(0o700)
    assert result.exit_code == 2
    assert "permission denied" in result.stderr


# What is not bad input


def fail_to_fit(monkeypatch, error):
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(triegp.BinaryTreeGPRegressor, "fit", broken)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyError("oops"), 1, "unexpected KeyError: 'oops' (--debug shows where)"),
        (ValueError("oops"), 2, "oops (--debug shows where)"),
        (TypeError("oops"), 2, "oops (--debug shows where)"),
        (RuntimeError("oops"), 2, "oops (--debug shows where)"),
        (MemoryError(), 2, "not enough memory: an array could not be allocated"),
        *(
            (ModuleNotFoundError(name=name), 2, f"this needs {name}: pip install 'triegp[cli]'")
            for name in ("pyarrow", "matplotlib")
        ),
    ],
    ids=repr,
)
def test_what_fails_inside_is_one_line_and_writes_nothing(
    folder, tmp_path, monkeypatch, error, code, line
):
    fail_to_fit(monkeypatch, error)
    result = run("fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", *QUICK)
    assert (result.exit_code, result.stderr) == (code, f"triegp: {line}\n")
    assert os.listdir(tmp_path) == []


def test_debug_shows_where(folder, tmp_path, monkeypatch):
    assert "--debug" not in run("info", folder / "d.csv").stderr
    fail_to_fit(monkeypatch, KeyError("oops"))
    arguments = ["fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", *QUICK]
    for place in (["--debug", *arguments], [*arguments, "--debug"]):
        result = run(*place)
        assert "Traceback" in result.stderr
        assert "raise error" in result.stderr


def test_without_click(monkeypatch, capsys):
    import triegp.cli

    monkeypatch.setitem(sys.modules, "click", None)
    real = __import__

    def importing(name, *args, **kwargs):
        if name == "click":
            raise ModuleNotFoundError("No module named 'click'", name="click")
        return real(name, *args, **kwargs)

    monkeypatch.setattr("builtins.__import__", importing)
    with pytest.raises(SystemExit) as stopped:
        triegp.cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "triegp: the command needs click: pip install 'triegp[cli]'\n"
    )


def test_names_cannot_steer_the_terminal(tmp_path):
    """Escape sequences, breaks of lines and letters that turn the direction are shown as such."""
    name = "\x1b[2J\x9b31mred\nforged\u202e"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.random(40), "x": rng.random(40)})
    frame["y"] = frame["x"] + 0.1 * rng.standard_normal(40)
    frame.to_parquet(tmp_path / "d.parquet")
    frame.rename(columns={name: "a\x1b]0;"}).to_parquet(tmp_path / "other.parquet")
    frame.astype({name: str}).assign(**{name: "\x1b[1m"}).to_parquet(tmp_path / "text.parquet")
    model = tmp_path / "m.tgp"
    commands = [
        (["fit", tmp_path / "d.parquet", "--target", "y", "-o", model, *QUICK], 0),
        (["info", model], 0),
        (["predict", model, tmp_path / "other.parquet", "-o", tmp_path / "p.csv"], 2),
        (["--debug", "predict", model, tmp_path / "text.parquet", "-o", tmp_path / "p.csv"], 2),
        (["info", f"{model}\x1b[5m"], 2),
    ]
    for arguments, code in commands:
        result = run(*arguments)
        assert result.exit_code == code, result.stderr
        for text in (result.stdout, result.stderr):
            assert text.replace("\n", "").isprintable()
            assert "\nforged" not in text
    assert r"\x1b[2J\x9b31mred\nforged\u202e" in run("info", model).stdout
