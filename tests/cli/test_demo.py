"""`triegp demo`."""

import json
import os
import re
from functools import partial

import numpy as np
import pytest

import cli_problems as problems
from cli_problems import run_well
from triegp.cli import tour
from triegp.cli.demo import show_tour


@pytest.mark.parametrize("many", [False, True])
def test_the_demo_fits_scores_and_writes_all_files(tmp_path, monkeypatch, many):
    """With models that are quick to fit; its files can be used by the other commands."""
    monkeypatch.setattr("triegp.cli.tour.FEW_ROWS", 100 if many else 1000)
    small = {"n_members": 2, "n_candidates": 2, "max_iter": 5} if many else None
    small = small or {"n_trees": 4, "max_iter": 3}
    real = tour.find_estimator
    monkeypatch.setattr(tour, "find_estimator", lambda name: partial(real(name), **small))
    found = json.loads(run_well("demo", "--rows", 400, "-o", tmp_path / "demo", "--json"))
    name = "BinaryTreeGPRegressor" if many else "TrieGPRegressor"
    assert found["estimator"] == name
    assert (found["train_rows"], found["test_rows"]) == (320, 80)
    assert list(found["scores"]) == [
        "mean of the target",
        "ridge regression",
        "histogram boosting",
        name,
    ]
    files = found["files"]
    assert all(os.path.getsize(path) for path in files.values())
    assert sorted(os.listdir(tmp_path / "demo")) == sorted(
        os.path.basename(path) for path in files.values()
    )
    scores = json.loads(
        run_well("evaluate", files["model"], files["test rows"], "--target", "delay", "--json")
    )
    expected = found["scores"][name]
    for score in ("rmse", "nll", "crps", "coverage_0.9"):
        assert scores[score] == pytest.approx(expected[score], rel=1e-10)
    test, predictions = (problems.read_frame(files[one]) for one in ("test rows", "predictions"))
    assert list(predictions) == ["delay", "mean", "std", "low", "high"]
    error = np.sqrt(np.mean((predictions["mean"] - test["delay"]) ** 2))
    assert error == pytest.approx(expected["rmse"], rel=1e-10)


def test_the_demo_for_people(tmp_path, monkeypatch):
    monkeypatch.setattr("triegp.cli.tour.FEW_ROWS", 100)
    text = run_well("demo", "--rows", 200, "-o", tmp_path / "demo")
    assert "BinaryTreeGPRegressor: 160 rows fitted" in text
    assert re.search(r"^histogram boosting( +\S+){4} %$", text, re.MULTILINE)
    assert str(tmp_path / "demo" / "report.html") in text


def test_the_demo_of_a_model_of_cells_has_fewer_scores():
    """More rows than `max_cells`: leave-one-out is the mean log density of a sample."""
    scores = {"rmse": 1.0, "nll": 2.0, "crps": 0.5, "coverage_0.9": 0.875}
    facts = {"estimator": "BinaryTreeGPRegressor", "train_rows": 9, "test_rows": 3, "seconds": 1.0}
    facts |= {"fit_seconds": 1.0, "predict_seconds": 1.0, "scores": {"model": scores}}
    facts |= {"files": {"model": "m.tgp", "test rows": "test.csv"}}
    said = "leave-one-out, from the training rows alone: "
    lines = show_tour(facts | {"leave_one_out": {"rows": None, "nll": 1.25}})
    assert f"{said}NLL 1.2500" in lines
    lines = show_tour(facts | {"leave_one_out": scores})
    assert f"{said}RMSE 1.0000, NLL 2.0000, 87.5 % in 90 %" in lines


def test_baselines_have_the_deviation_of_rows_held_out():
    X, y = tour.make_rows(500, seed=0)
    found = tour.baselines(X[:400], y[:400], X[400:], seed=0)
    mean, deviation = found["mean of the target"]
    assert mean[0] == pytest.approx(y[:360].mean())
    assert deviation == pytest.approx(y[:360].std())
    scores = tour.gaussian_scores(y[400:], mean, deviation)
    z = (y[400:] - mean) / deviation
    expected = np.mean(0.5 * z**2 + np.log(deviation) + 0.5 * np.log(2 * np.pi))
    assert scores["nll"] == pytest.approx(expected, rel=1e-12)
    assert scores["coverage_0.9"] == pytest.approx(np.mean(np.abs(z) < 1.6448536269514722))
    assert found["histogram boosting"][1] < found["ridge regression"][1] < deviation
