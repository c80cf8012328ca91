"""`triegp report`, and `triegp fit --report`."""

import errno
import json
import os

import pyarrow as pa
import pytest

import cli_problems as problems
import triegp
from cli_problems import FORMATS, QUICK, run, run_well
from triegp.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in every format, and a model."""
    found = tmp_path_factory.mktemp("report")
    problems.write_frame(problems.make_frame(60), found / "d.csv")
    for kind in FORMATS:
        problems.write_frame(problems.make_frame(80, seed=1), found / f"new.{kind}")
    run_well(
        *("fit", found / "d.csv", "--target", "y", "-o", found / "m.tgp", "--drop", "id,name,zip"),
        *QUICK,
    )
    return found


def features():
    frame = problems.make_frame(80, seed=1)[["x", "flag", "when"]]
    return pa.Table.from_pandas(frame, preserve_index=False)


def test_reports_are_those_of_the_library(folder, tmp_path):
    path = tmp_path / "r.html"
    text = run_well("report", folder / "m.tgp", "-o", path, "--target", "y")
    assert text == f"report written to {path}\n"
    own = tmp_path / "own.html"
    write_report(triegp.load(folder / "m.tgp"), own, targets=["y"])
    assert own.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_reports_with_test_rows(folder, tmp_path, kind):
    path = tmp_path / "r.html"
    found = json.loads(
        run_well(
            *("report", folder / "m.tgp", "-o", path, "--data", folder / f"new.{kind}"),
            *("--target", "y", "--json"),
        )
    )
    assert found["test_rows"] == 80
    y = problems.make_frame(80, seed=1)["y"].to_numpy()
    own = tmp_path / "own.html"
    write_report(triegp.load(folder / "m.tgp"), own, features(), y, targets=["y"])
    assert own.read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["own.html", "r.html"]


def test_fit_writes_a_report_too(folder, tmp_path):
    run_well(
        *("fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", "--drop", "id,zip"),
        *("--report", tmp_path / "r.html", *QUICK),
    )
    assert (tmp_path / "r.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_a_model_of_fit_has_effects_and_regions_in_its_report(tmp_path):
    problems.write_frame(problems.make_frame(200), tmp_path / "d.csv")
    fit = ("fit", tmp_path / "d.csv", "--target", "y", "--drop", "id,name,zip", *QUICK)
    run_well(*fit, "-o", tmp_path / "m.tgp")
    run_well("report", tmp_path / "m.tgp", "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "Effect of x" in text
    assert "mean width of 90" in text
    run_well(*fit, "-o", tmp_path / "bare.tgp", "--no-keep-rows")
    run_well("report", tmp_path / "bare.tgp", "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "fit without --no-keep-rows" in text
    assert "too few rows" not in text
    result = run(*fit, "-o", tmp_path / "m.tgp", "--keep-rows", "--param", "keep_rows=false")
    assert result.exit_code == 2
    assert "training_data=True requires a model fitted with keep_rows=True" in result.stderr


def test_a_report_that_fails_leaves_the_old_one(folder, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = run("report", folder / "m.tgp", "-o", path)
    assert result.exit_code == 2
    assert result.stderr == f"triegp: {path}: no space left on device\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.html"]
