"""`examples/trains.py`, with models that are quick to fit."""

import json
import os
import re

import numpy as np
import pytest

import cli_problems as problems
from cli_problems import run_well
from examples import trains


@pytest.mark.parametrize("many", [False, True])
def test_the_tour_fits_scores_and_writes_all_files(tmp_path, monkeypatch, capsys, many):
    """Its files can be used by the commands."""
    monkeypatch.setattr(trains, "FEW_ROWS", 100 if many else 1000)
    small = {"n_members": 2, "n_candidates": 2, "max_iter": 5} if many else None
    trains.main(["--rows", "400", "-o", str(tmp_path)], **(small or {"n_trees": 4, "max_iter": 3}))
    text = capsys.readouterr().out
    name = "BinaryTreeGPRegressor" if many else "TrieGPRegressor"
    found = re.findall(r"^(\S.*?)  +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) %$", text, re.MULTILINE)
    labels = ["mean of the target", "ridge regression", "histogram boosting", name]
    assert [line[0] for line in found] == labels
    assert "320 rows fitted" in text
    names = ["model.tgp", "predictions.csv", "report.html", "test.csv", "train.csv"]
    assert sorted(os.listdir(tmp_path)) == names
    test = problems.read_frame(tmp_path / "test.csv")
    predictions = problems.read_frame(tmp_path / "predictions.csv")
    assert list(predictions) == ["delay", "mean", "std", "low", "high"]
    arguments = [tmp_path / "model.tgp", tmp_path / "test.csv", "--target", "delay", "--json"]
    scores = json.loads(run_well("evaluate", *arguments))
    error = np.sqrt(np.mean((predictions["mean"] - test["delay"]) ** 2))
    assert error == pytest.approx(scores["rmse"], rel=1e-10)
    expected = [scores["rmse"], scores["nll"], scores["crps"], 100 * scores["coverage_0.9"]]
    assert list(map(float, found[-1][1:])) == pytest.approx(expected, abs=0.051)


def test_baselines_have_the_deviation_of_rows_held_out():
    X, y = trains.make_rows(500, seed=0)
    found = trains.baselines(X[:400], y[:400], X[400:], seed=0)
    mean, deviations = found["mean of the target"], [part.std()[0] for part in found.values()]
    assert mean.mean()[0] == pytest.approx(y[:360].mean())
    assert mean.std()[0] == pytest.approx(y[:360].std())
    assert deviations == sorted(deviations, reverse=True)
