"""`triegp report`, and `triegp fit --report`."""

import errno
import json
import os

import pytest

import cli_problems as problems
import triegp
from cli_problems import FORMATS, QUICK, features, new_targets, run, run_well
from triegp.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return problems.make_folder(tmp_path_factory.mktemp("cli"))


def test_reports_are_those_of_the_library(folder, tmp_path):
    path = tmp_path / "r.html"
    text = run_well("report", folder / "m.csv", "-o", path, "--target", "y")
    assert text == f"report written to {path}\n"
    own = tmp_path / "own.html"
    write_report(triegp.load(folder / "m.csv"), own, targets=["y"])
    assert own.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_reports_with_test_rows(folder, tmp_path, kind):
    path = tmp_path / "r.html"
    found = json.loads(
        run_well(
            *("report", folder / "m.csv", "-o", path, "--data", folder / f"new.{kind}"),
            *("--target", "y", "--json"),
        )
    )
    assert found["test_rows"] == 80
    own = tmp_path / "own.html"
    write_report(triegp.load(folder / "m.csv"), own, features(), new_targets(), targets=["y"])
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
    result = run("report", folder / "m.csv", "-o", path)
    assert result.exit_code == 2
    assert result.stderr == f"triegp: {path}: no space left on device\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.html"]
