"""The comparison's own parts: scores, cells, tables, the page; and its quick mode on real data."""

import json

import numpy as np
import pytest
from bench.data import SEVEN, available, load
from bench.distributions import (
    LEVELS,
    TAILS,
    Quantiles,
    central,
    gaussian,
    score,
)
from bench.methods import METHODS, Task, gaussian_processes, missing
from scipy.integrate import quad
from scipy.stats import norm

from bench import __main__ as command
from bench import cells, pace, page, paper, plan, scaling, tables, unique
from naive_scores import naive_crps, naive_nll, naive_quantile
from score_problems import SHAPES, random_mixture, targets
from tolerances import CHAINED, DENSE, MANY_QUANTILES, QUADRATURE, ROUNDING
from triegp import BinaryTreeGPRegressor, PredictiveDistribution


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "FOLDER", tmp_path / "cells")
    monkeypatch.setattr(scaling, "FOLDER", tmp_path / "scaling")
    monkeypatch.setattr(unique, "PATH", tmp_path / "unique.json")
    monkeypatch.setattr(page, "TIMES", tmp_path / "times.json")
    monkeypatch.setattr(pace, "PATH", tmp_path / "pace.json")
    return tmp_path


def mixture(m=7, seed=0):
    rng = np.random.default_rng(seed)
    return PredictiveDistribution(
        np.array([0.2, 0.8]), rng.standard_normal((2, m)), rng.uniform(0.1, 4.0, (2, m))
    )


# Scores


def test_scores_of_a_gaussian_are_the_textbooks():
    rng = np.random.default_rng(1)
    mean, sd, y = rng.standard_normal(200), rng.uniform(0.5, 2, 200), rng.standard_normal(200)
    found = score(gaussian(mean, sd), y, unit=2.0)
    assert found["nll"] == pytest.approx(
        -norm.logpdf(y, mean, sd).mean() - np.log(2.0), rel=ROUNDING
    )
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)) / 2.0, rel=ROUNDING)
    assert found["width"]["90"] == pytest.approx(norm.ppf(0.95) * sd.mean(), rel=CHAINED)
    inside = np.abs(y - mean) <= norm.ppf(0.95) * sd
    assert found["coverage"]["90"] == inside.mean()


def test_scores_of_a_mixture_agree_with_numerical_integrals():
    predicted, y = mixture(), np.linspace(-2, 2, 7)
    sd = np.sqrt(predicted.variances)
    found = score(predicted, y, unit=1.0)

    def cdf(x, i):
        return predicted.weights @ norm.cdf(x, predicted.means[:, i], sd[:, i])

    crps = [
        quad(lambda x, i=i: cdf(x, i) ** 2, -25, y[i])[0]
        + quad(lambda x, i=i: (1 - cdf(x, i)) ** 2, y[i], 25)[0]
        for i in range(7)
    ]
    assert found["crps"] == pytest.approx(np.mean(crps), rel=QUADRATURE)
    density = [
        predicted.weights @ norm.pdf(y[i], predicted.means[:, i], sd[:, i]) for i in range(7)
    ]
    assert found["nll"] == pytest.approx(-np.log(density).mean(), rel=ROUNDING)
    np.testing.assert_allclose(central(predicted), predicted.weights @ predicted.means)
    covered = [0.05 <= cdf(y[i], i) <= 0.95 for i in range(7)]
    assert found["coverage"]["90"] == np.mean(covered)


def test_scores_of_many_quantiles_approach_those_of_the_distribution():
    rng = np.random.default_rng(2)
    mean, y = rng.standard_normal(300), rng.standard_normal(300)
    levels = np.array(sorted({*TAILS, *np.linspace(0.001, 0.999, 999).tolist()}))
    values = mean[:, None] + norm.ppf(levels)
    found = score(Quantiles(levels, values, mean), y, unit=1.0)
    exact = score(gaussian(mean, 1.0), y, unit=1.0)
    assert found["nll"] is None
    assert found["crps"] == pytest.approx(exact["crps"], rel=MANY_QUANTILES)
    assert found["coverage"] == exact["coverage"]
    assert found["width"]["99"] == pytest.approx(exact["width"]["99"], rel=CHAINED)
    assert set(TAILS) <= set(LEVELS)


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_agree_with_naive_ones(shape):
    predicted = random_mixture(3, **SHAPES[shape])
    y = targets(predicted.n_rows)
    found = score(predicted, y, unit=1.7)
    assert found["nll"] == pytest.approx(
        naive_nll(y, predicted).mean() - np.log(1.7), rel=ROUNDING, abs=ROUNDING
    )
    assert found["crps"] == pytest.approx(naive_crps(y, predicted).mean() / 1.7, rel=ROUNDING)
    error = np.sqrt(np.mean((predicted.mean() - y) ** 2))
    assert found["rmse"] == pytest.approx(error / 1.7, rel=ROUNDING)
    for c in (50, 90, 99):
        low, high = (naive_quantile(q, predicted) for q in (0.5 - c / 200, 0.5 + c / 200))
        assert found["coverage"][str(c)] == pytest.approx(np.mean((low <= y) & (y <= high)))
        assert found["width"][str(c)] == pytest.approx(np.mean(high - low) / 1.7, rel=ROUNDING)


def test_scores_of_quantiles_agree_with_naive_ones():
    rng = np.random.default_rng(4)
    values, y = np.sort(rng.standard_normal((20, len(LEVELS))), axis=1), targets(20)
    found = score(Quantiles(np.array(LEVELS), values, values[:, 9]), y, unit=1.7)
    total = 0.0
    for k, level in enumerate(LEVELS):
        above = 0.5 * (level + LEVELS[k + 1]) if k + 1 < len(LEVELS) else 1.0
        below = 0.5 * (level + LEVELS[k - 1]) if k else 0.0
        gap = y - values[:, k]
        loss = np.where(gap > 0, level * gap, (level - 1) * gap)
        total += 2 * (above - below) * loss.mean()
    assert found["crps"] == pytest.approx(total / 1.7, rel=ROUNDING)


def test_fifths_are_of_the_predicted_deviation():
    sd = np.array([5.0, 1.0, 4.0, 2.0, 3.0] * 4)
    y = np.where(sd == 2.0, 100.0, 0.0)
    found = score(gaussian(np.zeros(20), sd), y, unit=1.0)
    assert found["fifths"] == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert score(gaussian(np.zeros(4), 1.0), np.zeros(4), unit=1.0)["fifths"] is None


# Methods


def small_task(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((160, 2))
    y = 5 + 3 * np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(160)
    return Task(X[:100], y[:100], X[100:130], y[100:130], 0), X[130:], y[130:]


@pytest.mark.parametrize("name", [*plan.OURS[:3], *plan.PEERS])
def test_every_method_that_is_installed_learns_something(name):
    absent = missing(METHODS[name])
    if absent:
        pytest.skip(f"needs {', '.join(absent)}")
    task, X, y = small_task()
    results = cells.measure_task(task, X, y, "synthetic", name, "test")
    assert results[0]["method"] == name
    for cell in results:
        assert cell["rmse"] < 0.7
        assert cell["fit_seconds"] > 0
        assert cell["memory_peak"] >= cell["memory_before"] > 0
        assert json.loads(json.dumps(cell)) == cell


def test_a_task_is_thinned_to_the_most_rows_of_its_method():
    task, _, _ = small_task()
    assert task.thinned(None) is task
    assert task.thinned(100) is task
    fewer = task.thinned(40)
    assert len(fewer.y) == 40
    rows = {(*x, y) for x, y in zip(task.X.tolist(), task.y.tolist(), strict=True)}
    assert {(*x, y) for x, y in zip(fewer.X.tolist(), fewer.y.tolist(), strict=True)} < rows
    np.testing.assert_array_equal(task.thinned(40).y, fewer.y)
    assert fewer.y_valid is task.y_valid


def test_the_papers_two_methods_come_of_one_fit():
    task, X, _ = small_task()
    fitted = METHODS["paper-bte"].fit(task)
    both, best = fitted["paper-bte"](X), fitted["paper-bt"](X)
    alone = BinaryTreeGPRegressor(preset="paper-bt", random_state=0).fit(task.X, task.y)
    np.testing.assert_allclose(best.mean(), alone.predict(X), rtol=ROUNDING)
    assert both.weights.size == 20


def test_batches_of_new_rows_do_not_matter(monkeypatch):
    task, X, _ = small_task()
    predict = METHODS["sklearn-gp"].fit(task)
    whole = predict(X)
    monkeypatch.setattr(gaussian_processes, "PREDICT_ROWS", 7)
    parts = predict(X)
    np.testing.assert_allclose(parts.mean(), whole.mean(), rtol=DENSE)
    np.testing.assert_allclose(parts.std(), whole.std(), rtol=DENSE)


# Cells


def fake_cell(folder, data, method, seed, part="test", **facts):
    path = cells.path_of(part, data, method, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {
        "data": data,
        "method": method,
        "seed": seed,
        "part": part,
        "status": "ok",
        "nll": 0.5 + seed,
        "rmse": 0.1,
        "crps": 0.05,
        "coverage": {"50": 0.5, "90": 0.9, "99": 0.99},
        "width": {"50": 0.5, "90": 0.9, "99": 0.99},
        "fit_seconds": 60.0,
        "predict_seconds_per_million": 1.0,
        "memory_peak": 2**30,
        "memory_before": 2**20,
        "gpu_memory_peak": None,
        "machine": {"cpu": "a cpu", "cores": 2, "gpu": None},
    }
    path.write_text(json.dumps(cell | facts))


def test_a_cell_that_is_there_is_not_run_again(folder):
    fake_cell(folder, "yacht", "triegp", 0, nll=123.0)
    assert cells.run_cell("test", "yacht", "triegp", 0)["nll"] == 123.0


def test_a_method_that_is_not_installed_is_named(folder, monkeypatch):
    monkeypatch.setattr(cells, "missing", lambda method: ["somepackage"])
    cell = cells.run_cell("test", "yacht", "lightgbm", 0)
    assert (cell["status"], cell["note"]) == ("missing", "needs somepackage")
    assert not cells.path_of("test", "yacht", "lightgbm", 0).exists()
    assert "missing needs somepackage" in command.line_of(cell)


def test_a_cell_that_takes_too_long_is_a_time_out(folder):
    cell = cells.run_cell("test", "yacht", "triegp", 0, limit=0.01)
    assert cell["status"] == "time-out"
    assert cells.read("test", "yacht", "triegp") == [cell]


def test_a_time_out_is_tried_again_with_more_time(folder, monkeypatch):
    fake_cell(folder, "yacht", "triegp", 0, status="time-out", limit_s=1.0)
    assert cells.run_cell("test", "yacht", "triegp", 0, limit=1.0)["status"] == "time-out"
    monkeypatch.setattr(cells, "_run_apart", lambda names, limit: [{**names, "status": "ok"}])
    assert cells.run_cell("test", "yacht", "triegp", 0, limit=2.0)["status"] == "ok"


def test_a_cell_that_fails_says_why(folder):
    cell = cells.run_cell("test", "no such data", "triegp", 0)
    assert cell["status"] == "error"
    assert "no such data" in cell["note"]


def test_data_that_is_not_at_hand_is_no_failure_of_the_method(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("TRIEGP_DATA", str(tmp_path))
    monkeypatch.setenv("TRIEGP_CACHE", str(tmp_path))
    cell = cells.run_cell("test", "flights3m", "triegp", 0)  # which has no download
    assert cell["status"] == "missing"
    assert not cells.path_of("test", "flights3m", "triegp", 0).exists()


def test_mean_and_two_standard_errors():
    mean, error = cells.mean_error([1.0, 2.0, 3.0, None])
    assert (mean, error) == (2.0, pytest.approx(2 / np.sqrt(3), rel=ROUNDING))
    assert np.isnan(cells.mean_error([1.0])[1])
    assert cells.mean_error([]) is None


# Tables and the page


def test_the_papers_figures_are_read():
    assert paper.figure("table1", "pol", "BTE", "nll") == (-0.625, 0.035)
    assert paper.figure("precision", "bike", "BTE p=8", "nll") is None  # a misprint
    assert paper.figure("precision", "bike", "BT p=8", "nll") is not None
    assert paper.figure("table1", "yacht", "BTE", "nll") is None
    assert float(paper.UNIQUE["Buzz"]["pct_unique_bits"]) == 0.5


def test_a_table_of_peers_marks_the_best_the_missing_and_the_slow(folder):
    for seed in range(3):
        fake_cell(folder, "pol", "triegp", seed)
        fake_cell(folder, "pol", "lightgbm", seed, nll=0.2)
    fake_cell(folder, "pol", "catboost", 0, status="time-out")
    fake_cell(folder, "pol", "ngboost", 0, status="error")
    fake_cell(folder, "pol", "gpytorch-svgp", 0, nll=3.0, machine={"gpu": "some GPU"})
    fake_cell(folder, "pol", "gpytorch-svgp", 1, status="time-out", limit_s=600)
    methods = ("triegp", "lightgbm", "catboost", "ngboost", "quantile-forest", "gpytorch-svgp")
    lines = tables.peers_table("nll", ("pol",), methods)
    assert lines[2:] == [
        "| triegp | 1.500 ± 1.155 |",
        "| lightgbm | **0.200 ± 0.000** |",
        "| catboost | time-out |",
        "| ngboost | failed |",
        "| quantile-forest | not run |",
        "| gpytorch-svgp (GPU) | 3.000 (1 time-out) |",
    ]


def test_gains_stand_beside_times_both_relative_to_lightgbm(folder):
    for seed in range(3):
        fake_cell(folder, "pol", "lightgbm", seed, nll=0.2, fit_seconds=4.0 + seed)
        better = {"nll": 0.2 - 0.1 * (1 + seed), "rmse": 0.08, "crps": 0.04}
        fake_cell(folder, "pol", "triegp-flagship", seed, **better, fit_seconds=10.0)
    fake_cell(folder, "pol", "triegp", 0, nll=0.1, crps=0.06, fit_seconds=2.0)
    fake_cell(folder, "pol", "lightgbm-quantiles", 0, nll=None, crps=0.01, fit_seconds=6.0)
    fake_cell(folder, "pol", "catboost", 0, status="time-out", limit_s=600)
    fake_cell(folder, "bike", "triegp", 0)  # without LightGBM: not shown
    methods = ("triegp", "triegp-flagship", "lightgbm", "lightgbm-quantiles", "catboost")
    assert tables.quality_table(("pol", "bike"), methods)[2:] == [
        "| pol | triegp | 2.0 | 0.5 | **+0.100** | **-20.0 %** | **+0.0 %** |",
        "| pol | lightgbm | 4.0 | 1.0 | +0.000 | **+0.0 %** | +0.0 % |",
        "| pol | lightgbm-quantiles | 6.0 | 1.5 | - | +80.0 % | +0.0 % |",
        "| pol | triegp-flagship | 10.0 | 2.5 | **+0.200** | **+20.0 %** | **+20.0 %** |",
    ]


def test_of_times_and_memory_the_least_counts(folder):
    for seed, took in enumerate((90.0, 60.0, 75.0)):
        fake_cell(folder, "pol", "paper-bte", seed, fit_seconds=took, memory_peak=took * 2**20)
    fake_cell(folder, "bike", "paper-bte", 0, status="time-out", limit_s=600)
    row = {m: tables.peers_table(m, ("pol", "bike"), ("paper-bte",))[2] for m in tables.LEAST}
    assert row == {
        "fit": "| paper-bte | 60.0 | time-out |",
        "predict": "| paper-bte | 1.0 | time-out |",
        "memory": "| paper-bte | 60 | time-out |",
    }
    (pol,) = [line for line in tables.paper_table("minutes") if line.startswith("| pol")]
    assert pol.split(" | ")[2] == "1.000"


def test_what_a_cell_did_not_keep_is_a_dash(folder):
    gone = {"50": None, "90": 0.9, "99": None}
    lost = {"predict_seconds_per_million": None, "memory_peak": None}
    for seed in range(2):
        fake_cell(folder, "pol", "gpytorch-svgp", seed, coverage=gone, width=gone, **lost)
    text = {m: tables.peers_table(m, ("pol",), ("gpytorch-svgp",))[2] for m in tables.METRICS}
    assert text["cover90"] == "| gpytorch-svgp | 90.0 ± 0.0 (2 seeds) |"
    assert text["width90"] == "| gpytorch-svgp | 0.900 ± 0.000 (2 seeds) |"
    for metric in ("cover50", "cover99", "width50", "width99", "predict", "memory"):
        assert text[metric] == "| gpytorch-svgp | - |"


def test_fifths_are_shown_for_the_cells_that_have_them(folder):
    fake_cell(folder, "pol", "triegp", 0)
    assert tables.fifths_table(("pol", "bike"), ("triegp", "triegp-flagship")) == []
    fake_cell(folder, "pol", "triegp", 1, fifths=[0.8, 0.9, 0.9, 0.95, 1.0])
    fake_cell(folder, "bike", "triegp", 0, status="time-out", limit_s=600)
    fake_cell(folder, "bike", "triegp-flagship", 0, fifths=[0.5] * 5)
    fake_cell(folder, "bike", "triegp-flagship", 1, fifths=[0.7] * 5)
    assert tables.fifths_table(("pol", "bike"), ("triegp", "triegp-flagship"))[2:] == [
        "| pol | triegp (1 of 2 seeds) | 80.0 | 90.0 | 90.0 | 95.0 | 100.0 |",
        "| bike | triegp-flagship | 60.0 | 60.0 | 60.0 | 60.0 | 60.0 |",
    ]


def test_a_mean_over_fewer_seeds_says_so(folder):
    gpu = {"machine": {"gpu": "some GPU"}}
    for seed in range(2):
        fake_cell(folder, "pol", "gpytorch-svgp", seed, gpu_memory_peak=2**21, **gpu)
    gone = {"50": None, "90": 0.9, "99": None}
    lost = {"fit_seconds": 40.0, "memory_peak": None}
    fake_cell(folder, "pol", "gpytorch-svgp", 2, coverage=gone, width=gone, **lost, **gpu)
    row = {m: tables.peers_table(m, ("pol",), ("gpytorch-svgp",))[2] for m in tables.METRICS}
    assert row["cover90"] == "| gpytorch-svgp (GPU) | 90.0 ± 0.0 |"
    assert row["cover50"] == "| gpytorch-svgp (GPU) | 50.0 ± 0.0 (2 seeds) |"
    assert row["fit"] == "| gpytorch-svgp (GPU) | 40.0 |"
    assert row["memory"] == "| gpytorch-svgp (GPU) | 2 |"  # the card's


def test_the_ablation_is_a_difference_seed_by_seed(folder):
    for seed in range(2):
        fake_cell(folder, "pol", "triegp", seed, "valid")
        fake_cell(folder, "pol", "triegp, no shift", seed, "valid", nll=0.75 + seed)
    row = next(line for line in tables.ablation_table() if line.startswith("| no shift"))
    assert row.startswith("| no shift | +0.250 | not run")
    assert row.endswith("| +0.250 | 2 |")
    fake_cell(folder, "bike", "triegp", 0, "valid")
    fake_cell(folder, "bike", "triegp, no shift", 0, "valid")
    row = next(line for line in tables.ablation_table() if line.startswith("| no shift"))
    assert row.endswith("| +0.125 | 1 to 2 |")


def test_more_bits_after_ecdf_are_for_one_data_set_each(folder):
    fake_cell(folder, "etopo20", "paper-bte", 0)
    fake_cell(folder, "etopo20", "paper-bte-secdf", 0, status="time-out", limit_s=600)
    fake_cell(folder, "etopo20", "paper-bte-secdf-p16", 0, nll=-1.0)
    assert tables.ecdf_table("nll")[2] == "| etopo20 | 0.500 | time-out | -1.000 | 16 |"
    wanted = {(d, m) for _, d, m, _ in plan.cells_of("ecdf")}
    assert ("etopo20", "paper-bte-secdf-p16") in wanted
    assert ("blogfeedback", "paper-bte-secdf-p16") not in wanted


def test_the_page_is_written_from_what_is_there(folder, monkeypatch):
    pytest.importorskip("matplotlib")
    for d in SEVEN:
        for seed in range(3):
            fake_cell(folder, d, "triegp", seed)
            fake_cell(folder, d, "paper-bte", seed)
    unique.PATH.write_text(
        json.dumps(
            [
                {
                    "data": "pol",
                    "n": 9600,
                    "d": 26,
                    "p": 6,
                    "rows": 99.9,
                    "bits": 98.8,
                    "bits_ecdf": 99.0,
                    "p_new": 6,
                }
            ]
        )
    )
    scaling.FOLDER.mkdir()
    for n in (10_000, 100_000):
        row = {"method": "evaluation", "n": n, "status": "ok", "fit_seconds": n * 1e-6}
        (scaling.FOLDER / f"evaluation-{n}.json").write_text(json.dumps(row))
    row = {"method": "sklearn-gp", "n": 1_000, "status": "error", "note": "MemoryError: 6 matrices"}
    (scaling.FOLDER / "sklearn-gp-1000.json").write_text(json.dumps(row))
    page.main(folder)
    text = (folder / "results.md").read_text()
    assert "98.8 (98.8)" in text
    assert "n^1.00" in text
    assert "1.500 ± 1.155" in text
    assert "python -m bench peers" in text
    assert "Coverage by predicted deviation" not in text
    assert "| sklearn-gp | no memory |" in text
    assert text.count("Minimum over the seeds") == 2 * len(tables.LEAST)
    assert (folder / "figures" / "runtime.svg").read_text().startswith("<?xml")
    once = (folder / "figures" / "scaling.svg").read_bytes()
    fake_cell(folder, "pol", "triegp", 2, fifths=[0.9] * 5)  # the others do not have them
    page.main(folder)
    assert (folder / "figures" / "scaling.svg").read_bytes() == once
    assert "| pol | triegp (1 of 3 seeds) | 90.0 |" in (folder / "results.md").read_text()


def test_growth_is_the_slope_of_what_worked():
    rows = [{"n": n, "status": "ok", "fit_seconds": n**1.2} for n in (1_000, 10_000, 100_000)]
    rows.append({"n": 10**6, "status": "time-out", "limit_s": 600.0})
    assert scaling.growth(rows) == pytest.approx(1.2, rel=ROUNDING)
    assert scaling.growth(rows[:2]) is None


def test_tables_name_methods_that_exist():
    for name in plan.TABLES:
        listed = plan.cells_of(name)
        assert listed
        assert {method for _, _, method, _ in listed} <= set(METHODS)
        assert {part for part, *_ in listed} == {"valid" if name == "ablation" else "test"}


# On real data


def test_tuning_never_loads_the_test_part(monkeypatch):
    asked = []

    def spy(name, seed, *parts):
        asked.append(parts)
        rng = np.random.default_rng(0)
        return [(rng.random((50, 2)), rng.random(50)) for _ in parts]

    monkeypatch.setattr(cells, "load", spy)
    cells.measure_cell("valid", "yacht", "triegp, 1 member", 0)
    assert asked == [("train", "valid")]


def test_quick_mode_runs_every_method_that_is_installed(folder, capsys):
    for name in plan.SMALL:
        if not available(name):
            pytest.skip(f"data set {name!r} is not at hand")
    command.main(["quick"])
    out = capsys.readouterr().out
    for name in (*plan.OURS[:3], *plan.PEERS):
        for d in plan.SMALL:
            kept = cells.read("test", d, name, seeds=(0,))
            if missing(METHODS[name]):
                assert not kept
                assert "missing" in next(x for x in out.splitlines() if d in x and name in x)
            else:
                assert kept[0]["status"] == "ok"
                assert kept[0]["rmse"] < 0.6
    ((_, y),) = load(plan.SMALL[0], 0, "test")
    assert y.size > 50


def test_the_command_lists_its_methods(capsys):
    command.main(["methods"])
    out = capsys.readouterr().out
    assert all(name in out for name in METHODS)
    with pytest.raises(SystemExit):
        command.main(["run", "pol", "--methods", "no such method"])
    with pytest.raises(SystemExit, match="do not go together"):
        command.main(["run", "pol", "--methods", "triegp", "--together", "--limit", "5"])
