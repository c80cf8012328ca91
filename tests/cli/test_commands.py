"""Every command from end to end, on files of every format."""

import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cli_problems as problems
import triegp
from cli_problems import FORMATS, QUICK, features, new_targets, quick_model, run, run_well
from triegp.cli.scores import COVERAGES, loo_scores, score_facts
from triegp.metrics import coverage
from triegp.metrics.forecasts import make_forecast
from triegp.metrics.summary import Tally


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return problems.make_folder(tmp_path_factory.mktemp("cli"))


def test_models_of_all_formats_are_the_same(folder):
    one, two, three = (problems.contents(folder / f"m.{kind}") for kind in FORMATS)
    assert one == two == three


def test_a_model_is_that_of_the_library(folder):
    frame = problems.make_frame()
    model = quick_model(categorical_features=["zip"])
    model.fit(frame.drop(columns=["id", "y"]), frame["y"])
    loaded = triegp.load(folder / "m.csv")
    np.testing.assert_array_equal(loaded.predict(features()), model.predict(features()))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("out", FORMATS)
def test_predictions_are_those_of_the_library(folder, kind, out, tmp_path):
    path = tmp_path / f"p.{out}"
    run_well("predict", folder / "m.csv", folder / f"new.{kind}", "-o", path, "--batch-rows", 33)
    found = problems.read_frame(path)
    assert list(found) == ["mean", "std"]
    mean, std = triegp.load(folder / "m.csv").predict(features(), return_std=True)
    np.testing.assert_array_equal(found["mean"], mean)
    np.testing.assert_array_equal(found["std"], std)
    assert os.listdir(tmp_path) == [f"p.{out}"]


@pytest.mark.parametrize("latent", [False, True])
def test_intervals_quantiles_and_kept_columns(folder, latent, tmp_path):
    path = tmp_path / "p.csv"
    options = ["--interval", 0.8, "--quantiles", "0.25,0.5", "--keep", "id", "--keep", "name,y"]
    run_well(
        *("predict", folder / "m.csv", folder / "new.csv", "-o", path),
        *options,
        *(["--latent"] if latent else []),
    )
    found = problems.read_frame(path)
    names = ["id", "name", "y", "mean", "std", "low", "high", "q0.25", "q0.5"]
    assert list(found) == names
    expected = triegp.load(folder / "m.csv").predict_distribution(features(), latent=latent)
    np.testing.assert_array_equal(found["mean"], expected.mean())
    np.testing.assert_array_equal(found["std"], expected.std())
    np.testing.assert_array_equal(found[["low", "high"]], expected.interval(0.8))
    np.testing.assert_array_equal(found[["q0.25", "q0.5"]], expected.quantile([0.25, 0.5]))
    pd.testing.assert_frame_equal(
        found[["id", "name", "y"]], problems.read_frame(folder / "new.csv")[["id", "name", "y"]]
    )


def test_means_only_and_names_of_quantiles_that_differ_in_late_digits(folder, tmp_path):
    path, model = tmp_path / "p.csv", triegp.load(folder / "m.csv")
    arguments = ["predict", folder / "m.csv", folder / "new.csv", "-o", path, "--mean-only"]
    run_well(*arguments)
    found = problems.read_frame(path)
    assert list(found) == ["mean"]
    np.testing.assert_array_equal(found["mean"], model.predict(features()))
    run_well(*arguments, "--quantiles", "0.9999999,0.99999999,0.5")
    found = problems.read_frame(path)
    assert list(found) == ["mean", "q0.9999999", "q0.99999999", "q0.5"]
    expected = model.predict_distribution(features()).quantile(0.99999999).reshape(-1)
    np.testing.assert_array_equal(found["q0.99999999"], expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_standard_input_and_output(folder, kind):
    data = (folder / f"new.{kind}").read_bytes()
    given = ["--format", kind] if kind != "csv" else []
    text = run_well("predict", folder / "m.csv", "-", "-o", "-", *given, input=data)
    lines = text.splitlines()
    assert lines[0] == "mean,std"
    mean, std = triegp.load(folder / "m.csv").predict(features(), return_std=True)
    assert [tuple(map(float, line.split(","))) for line in lines[1:]] == list(
        zip(mean.tolist(), std.tolist(), strict=True)
    )


def test_several_files_patterns_and_folders_are_one_table(folder, tmp_path):
    frame = problems.make_frame()
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(3):
        problems.write_frame(frame[40 * k : 40 * k + 40], parts / f"{k}.parquet")
    (parts / "_SUCCESS").touch()
    ways = [[parts], [parts / "*.parquet"], [parts / f"{k}.parquet" for k in range(3)]]
    for k, way in enumerate(ways):
        path = tmp_path / f"{k}.tgp"
        run_well(
            *("fit", *way, "--target", "y", "-o", path, "--drop", "id"),
            *("--categorical", "zip", "--no-keep-rows", *QUICK),
        )
        assert problems.contents(path) == problems.contents(folder / "m.csv")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_files_without_rows_among_others(folder, tmp_path, kind, empty):
    table = pa.Table.from_pandas(problems.make_frame(), preserve_index=False)
    paths = [tmp_path / f"{k}.{kind}" for k in range(3)]
    parts = [table[:50], table[50:]]
    parts.insert(empty, None)
    for path, part in zip(paths, parts, strict=True):
        rows = table[:0] if part is None else part
        if kind == "parquet":
            pa.parquet.write_table(rows, path)
            continue
        with pa.ipc.new_file(path, table.schema) as file:  # without record batches if empty
            if part is not None:
                file.write_table(part)
    arguments = ["--target", "y", "-o", tmp_path / "m.tgp", "--drop", "id", "--categorical", "zip"]
    run_well("fit", *paths, *arguments, "--no-keep-rows", *QUICK)
    assert problems.contents(tmp_path / "m.tgp") == problems.contents(folder / "m.csv")


def test_columns_are_found_by_name_in_any_order(folder, tmp_path):
    frame = problems.make_frame(80, seed=1)
    problems.write_frame(frame[list(frame)[::-1]].assign(more=1), tmp_path / "new.csv")
    for data, name in ((tmp_path / "new.csv", "a.csv"), (folder / "new.csv", "b.csv")):
        run_well("predict", folder / "m.csv", data, "-o", tmp_path / name)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


# evaluate


@pytest.mark.parametrize("batch", [7, 1000])
@pytest.mark.parametrize("kind", FORMATS)
def test_scores_are_those_of_the_library(folder, kind, batch):
    text = run_well(
        *("evaluate", folder / "m.csv", folder / f"new.{kind}", "--target", "y"),
        *("--json", "--batch-rows", batch),
    )
    found = json.loads(text)
    distribution = triegp.load(folder / "m.csv").predict_distribution(features())
    forecast = make_forecast(new_targets(), distribution, coverages=COVERAGES)
    expected = score_facts(Tally().add(forecast).scores())
    assert found.keys() - {"model", "warnings"} == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-10), name


def test_scores_for_people(folder):
    text = run_well("evaluate", folder / "m.csv", folder / "new.csv", "--target", "y")
    assert text.startswith("80 rows\n")
    assert "RMSE" in text
    assert "90 % intervals" in text


def test_a_constant_target_has_no_r_squared(folder, tmp_path):
    problems.write_frame(problems.make_frame().assign(y=1.0), tmp_path / "d.csv")
    found = json.loads(
        run_well("evaluate", folder / "m.csv", tmp_path / "d.csv", "--target", "y", "--json")
    )
    assert found["r2"] is None


# fit


def test_the_summary_shows_columns_and_leave_one_out(folder, tmp_path):
    text = run_well(
        *("fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp"),
        *("--features", "x,zip,when", "--json", *QUICK),
    )
    found = json.loads(text)
    kinds = {one["name"]: one["kind"] for one in found["features"]}
    assert kinds == {"x": "number", "zip": "number", "when": "time"}
    model = triegp.load(tmp_path / "m.tgp")
    y, distribution = model.loo_targets(), model.loo_distribution()
    assert found["leave_one_out"]["nll"] == pytest.approx(-model.loo_score_, rel=1e-10)
    inside = coverage(y, distribution.interval(0.9))
    assert found["leave_one_out"]["coverage_0.9"] == pytest.approx(inside, rel=1e-12)
    text = run_well(
        "fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", "--drop", "id", *QUICK
    )
    assert "fitted to 120 rows" in text
    assert "when  time" in text
    assert "90 % intervals" in text


def test_weights_noise_and_parameters_reach_the_estimator(tmp_path):
    frame = problems.make_frame()[["x", "y"]].fillna(0.5)
    frame["w"] = np.arange(len(frame)) % 3
    frame["v"] = 0.01
    problems.write_frame(frame, tmp_path / "d.csv")
    run_well(
        *("fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", "--weight", "w"),
        *("--noise", "v", "--seed", 3, "--param", "weights=precision", *QUICK),
    )
    model = quick_model(random_state=3, weights="precision")
    model.fit(frame[["x"]], frame["y"], frame["w"], frame["v"])
    loaded = triegp.load(tmp_path / "m.tgp")
    assert loaded.get_params()["weights"] == "precision"
    np.testing.assert_array_equal(loaded.predict(frame[["x"]]), model.predict(frame[["x"]]))


def test_leave_one_out_scores_are_weighted(tmp_path):
    frame = problems.make_frame()[["x", "y"]].fillna(0.5)
    w = (np.arange(len(frame)) % 4) * 1.5
    problems.write_frame(frame.assign(w=w), tmp_path / "d.csv")
    arguments = ["fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp"]
    arguments += ["--weight", "w", "--param", "weights=precision", "--json"]
    found = json.loads(run_well(*arguments, *QUICK))["leave_one_out"]
    model = quick_model(weights="precision").fit(frame[["x"]], frame["y"], w)
    used, y = w > 0, frame["y"].to_numpy()
    error, w = (y - model.loo_distribution().mean())[used], w[used]
    density = np.average(model.loo_log_density()[used], weights=w)
    assert found["rows"] == used.sum()
    assert found["rmse"] == pytest.approx(np.sqrt(np.average(error**2, weights=w)), rel=1e-9)
    assert found["nll"] == pytest.approx(model.loo_optimism_ - density, rel=1e-9)
    assert found["rmse"] != pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)


def test_leave_one_out_scores_hide_no_error(monkeypatch):
    X, y = np.random.default_rng(0).random((30, 2)), np.arange(30.0)
    model = quick_model().fit(X, y)

    def broken(self):
        raise ValueError("oops")

    monkeypatch.setattr(triegp.BinaryTreeGPRegressor, "loo_distribution", broken)
    with pytest.raises(ValueError, match="oops"):
        loo_scores(model)


def test_the_flagship_is_the_default(tmp_path):
    problems.write_frame(problems.make_frame(40), tmp_path / "d.csv")
    run_well(
        *("fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", "--drop", "id"),
        *("--param", "n_trees=4", "--param", "max_iter=3", "--param", "smooth=false"),
        *("--target-transform", "yeo-johnson", "--time-budget", "20", "--jobs", "1"),
    )
    model = triegp.load(tmp_path / "m.tgp")
    assert isinstance(model, triegp.TrieGPRegressor)
    asked = {"n_trees": 4, "smooth": False, "target_transform": "yeo-johnson"}
    asked |= {"time_budget": 20.0, "n_jobs": 1, "random_state": 0}
    assert asked.items() <= model.get_params().items()


def test_many_rows_of_parquet_files_are_read_in_pieces(tmp_path):
    """From `max_cells` rows on; the model is that of rows in memory, to the last bit."""
    frame = problems.make_frame(9000)[["x", "zip", "y"]].assign(w=1.0)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pa.parquet.write_table(table, tmp_path / "d.parquet", row_group_size=2000)
    problems.write_frame(frame, tmp_path / "d.csv")
    options = ["--target", "y", "--weight", "w", "--param", "max_cells=5000", *QUICK]
    options += ["--categorical", "zip"]
    told = run("fit", tmp_path / "d.parquet", "-o", tmp_path / "a.tgp", "-v", *options).stderr
    assert "rows are read in pieces" in told
    told = run("fit", tmp_path / "d.csv", "-o", tmp_path / "b.tgp", "-v", *options).stderr
    assert "rows are read in pieces" not in told
    one, two = (triegp.load(tmp_path / name) for name in ("a.tgp", "b.tgp"))
    np.testing.assert_array_equal(
        one.predict(frame[["x", "zip"]]), two.predict(frame[["x", "zip"]])
    )


def test_a_column_of_numbers_and_odd_cells_is_told_about(tmp_path):
    frame = problems.make_frame()[["x", "y"]]
    frame["x"] = frame["x"].map(lambda value: "?" if np.isnan(value) else f"{value:.4f}")
    problems.write_frame(frame, tmp_path / "d.csv")
    arguments = ["fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", *QUICK]
    result = run(*arguments)
    assert "column 'x' is read as categories, since it holds '?'" in result.stderr
    result = run(*arguments, "--missing", "?", "--json")
    assert json.loads(result.stdout)["features"] == [{"name": "x", "kind": "number"}]
    assert result.stderr == ""


# update


@pytest.mark.parametrize("kind", FORMATS)
def test_updates_are_those_of_the_library(folder, kind, tmp_path):
    text = run_well(
        *("update", folder / "m.csv", folder / f"new.{kind}", "--target", "y"),
        *("-o", tmp_path / "m.tgp", "--batch-rows", 33, "--json"),
    )
    assert json.loads(text)["rows_added"] == 80
    assert "outside the training box" in json.loads(text)["warnings"][0]
    model = triegp.load(folder / "m.csv")
    with pytest.warns(UserWarning, match="outside the training box"):
        model.partial_fit(features(), new_targets())
    loaded = triegp.load(tmp_path / "m.tgp")
    expected = model.predict(features())
    np.testing.assert_allclose(loaded.predict(features()), expected, rtol=1e-10)


def test_an_update_replaces_the_model_and_keeps_its_rows(folder, tmp_path):
    run_well(
        *("fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp"),
        *("--drop", "id", "--categorical", "zip", *QUICK),
    )
    run_well("update", tmp_path / "m.tgp", folder / "new.csv", "--target", "y")
    loaded = triegp.load(tmp_path / "m.tgp")
    assert loaded.rows_.n_rows == 200
    text = run_well("update", tmp_path / "m.tgp", folder / "d.csv", "--target", "y", "--json")
    assert json.loads(text)["fitted_anew"] is True  # rows have doubled
    assert os.listdir(tmp_path) == ["m.tgp"]


def test_an_update_of_a_model_with_a_window_forgets(folder, tmp_path):
    fit = [
        *("fit", folder / "d.csv", "--target", "y", "--param", "window=64"),
        *("--drop", "id", "--categorical", "zip", *QUICK),
    ]
    run_well(*fit, "-o", tmp_path / "m.tgp")
    assert triegp.load(tmp_path / "m.tgp").n_rows_ == 64
    run_well("update", tmp_path / "m.tgp", folder / "new.csv", "--target", "y")
    loaded = triegp.load(tmp_path / "m.tgp")
    assert loaded.n_rows_ == 64
    np.testing.assert_array_equal(loaded.rows_.y[:, 0], new_targets()[-64:])
    run_well(*fit, "-o", tmp_path / "bare.tgp", "--no-keep-rows")
    result = run("update", tmp_path / "bare.tgp", folder / "new.csv", "--target", "y")
    assert result.exit_code == 2
    assert "window needs the training rows" in result.stderr


# info


def test_info_tells_what_is_in_a_file(folder):
    found = json.loads(run_well("info", folder / "m.csv", "--json"))
    assert found["estimator"] == "BinaryTreeGPRegressor"
    assert found["rows"] == 120
    assert found["features"][:2] == [
        {"name": "x", "kind": "number"},
        {"name": "zip", "kind": "category", "categories": 3},
    ]
    assert found["parameters"]["n_members"] == 2
    assert found["bytes"] == os.path.getsize(folder / "m.csv")
    assert found["fit_seconds"] > 0
    text = run_well("info", folder / "m.csv")
    assert "rows        120 (without the rows themselves)" in text
    assert "zip   category, 3 values" in text


def test_info_of_a_model_without_names(tmp_path):
    X, y = np.random.default_rng(0).random((30, 2)), np.arange(30.0)
    quick_model().fit(X, y).save(tmp_path / "m.tgp")
    assert "columns     2, known by place" in run_well("info", tmp_path / "m.tgp")


def test_a_model_without_names_takes_columns_by_place(tmp_path):
    frame = problems.make_frame(40)[["x", "flag", "y"]].fillna(0.5)
    X = frame[["x", "flag"]].to_numpy(np.float64)
    model = quick_model().fit(X, frame["y"])
    model.save(tmp_path / "m.tgp")
    problems.write_frame(frame, tmp_path / "d.csv")
    arguments = [tmp_path / "m.tgp", tmp_path / "d.csv", "-o", tmp_path / "p.csv"]
    run_well("predict", *arguments, "--keep", "y")
    found = problems.read_frame(tmp_path / "p.csv")
    np.testing.assert_array_equal(found["mean"], model.predict(X))
    assert "the file has 3 columns" in run("predict", *arguments).stderr
