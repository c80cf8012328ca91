"""What `triegp demo` does: data, baselines, model, files."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from triegp.cli.console import Console
from triegp.cli.report import make_report
from triegp.cli.scores import Tally, loo_scores
from triegp.cli.training import ESTIMATORS
from triegp.estimators.loading import find_estimator
from triegp.files.whole import open_whole
from triegp.models.distribution import PredictiveDistribution

Floats = npt.NDArray[np.float64]

FEW_ROWS = 20_000  # up to which the sum of trees and a smooth part is fitted
TEST_ROWS = 20_000  # at most; a fifth of the rows if there are fewer
LINES = ("Coast", "Hill", "Lake", "Marsh", "North", "Ring", "South", "Valley")
BUDGET = 25.0  # seconds; fits take less on two idle cores
COMPILED = 60_000  # rows of a first fit: enough for the kernels of many rows
CSV_ROWS = 100_000  # above, training rows are written as Parquet


def make_rows(n: int, seed: int) -> tuple[pa.Table, Floats]:
    """Delays of trains in minutes, (n,), and what is known of each train.

    The delay has a daily rhythm, a step on one line, an effect of cold and of a full train, and
    noise that is larger in the rush hours.
    """
    rng = np.random.default_rng(seed)
    hour = rng.uniform(5, 24, n)
    line = rng.integers(0, len(LINES), n)
    day = rng.integers(0, 365, n)
    temperature = 10 - 12 * np.cos(2 * np.pi * day / 365) + 4 * rng.standard_normal(n)
    passengers = rng.gamma(4.0, 60.0, n)
    stops = rng.integers(4, 30, n)
    rush = np.exp(-0.5 * (hour - 8) ** 2) + np.exp(-0.5 * ((hour - 17.5) / 1.3) ** 2)
    delay = 2 + 5 * rush * (1 + 0.1 * line) + 0.08 * stops + np.maximum(0, -temperature) * 0.6
    delay += np.where((line == 3) & (hour > 20), 6.0, 0.0) + 4 / (
        1 + np.exp(-(passengers - 400) / 40)
    )
    delay += (0.5 + 1.5 * rush) * rng.standard_normal(n)
    known = rng.random(n) > 0.05  # the thermometer fails at times
    date = np.datetime64("2025-01-01") + day.astype("timedelta64[D]")
    table = pa.table(
        {
            "line": pa.array(np.array(LINES)[line]),
            "date": pa.array(date),
            "hour": hour.round(2),
            "stops": stops,
            "passengers": passengers.round(),
            "temperature": pa.array(temperature.round(1), mask=~known),
        }
    )
    return table, delay.round(3)


def take_tour(n_rows: int, folder: str, seed: int, console: Console) -> dict[str, Any]:
    """Do it all; returns facts and the paths of files."""
    X, y = make_rows(n_rows, seed)
    n_test = min(n_rows // 5, TEST_ROWS)
    n_train = n_rows - n_test
    train, test = X[:n_train], X[n_train:]
    y_train, y_test = y[:n_train], y[n_train:]
    names = ["train rows", "test rows", "model", "predictions", "report"]
    kind = "csv" if n_train <= CSV_ROWS else "parquet"
    files = [f"train.{kind}", "test.csv", "model.tgp", "predictions.csv", "report.html"]
    paths = {name: os.path.join(folder, file) for name, file in zip(names, files, strict=True)}
    write_table(train.append_column("delay", pa.array(y_train)), paths["train rows"])
    write_table(test.append_column("delay", pa.array(y_test)), paths["test rows"])

    console.note(f"{n_rows:,} rows made; baselines ...")
    scores = {}
    for label, mean in baselines(train, y_train, test, seed).items():
        scores[label] = gaussian_scores(y_test, *mean)
    name = ESTIMATORS["trie" if n_rows <= FEW_ROWS else "mixture"]
    console.note(f"{name} ...")
    verbose = int(console.shows_progress)
    if name == ESTIMATORS["mixture"]:
        _compile_kernels(find_estimator(name), train[:COMPILED], y_train[:COMPILED])
    model = find_estimator(name)(random_state=seed, verbose=verbose, time_budget=BUDGET)
    model.fit(train, y_train)
    began = time.monotonic()
    distribution = model.predict_distribution(test)
    seconds = time.monotonic() - began
    tally = Tally()
    tally.add(y_test, distribution)
    scores[name] = tally.scores()
    low, high = distribution.interval(0.9).T
    columns = [y_test, distribution.mean(), distribution.std(), low, high]
    predictions = pa.table(columns, names=["delay", "mean", "std", "low", "high"])
    write_table(predictions, paths["predictions"])
    model.save(paths["model"], training_data=model.rows_ is not None)
    console.note("report ...")
    make_report(model, paths["report"], "delay", test, y_test)
    return {
        "estimator": name,
        "train_rows": n_train,
        "test_rows": n_test,
        "fit_seconds": model.fit_seconds_,
        "predict_seconds": seconds,
        "scores": scores,
        "leave_one_out": loo_scores(model),
        "files": paths,
    }


def baselines(
    train: pa.Table, y: Floats, test: pa.Table, seed: int
) -> dict[str, tuple[Floats, float]]:
    """Means of the test rows and one deviation, of models without error bars of their own.

    The deviation is that of the residuals of a tenth of the training rows, which are held out.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    listed = {name: k for k, name in enumerate(LINES)}
    cut = y.size - y.size // 10

    def numbers(table: pa.Table, *, one_hot: bool) -> Floats:
        codes = np.array([listed[name] for name in table["line"].to_pylist()])
        day = table["date"].to_numpy().astype("datetime64[D]").astype(np.float64)
        columns = [table[name].to_numpy().astype(np.float64) for name in table.column_names[2:]]
        coded = np.eye(len(LINES))[codes] if one_hot else codes[:, None]
        data = np.column_stack([coded, day, *columns])
        return np.nan_to_num(data, nan=10.0) if one_hot else data

    models = {
        "ridge regression": (make_pipeline(StandardScaler(), Ridge()), True),
        "histogram boosting": (
            HistGradientBoostingRegressor(categorical_features=[0], random_state=seed),
            False,
        ),
    }
    deviation = float(y[:cut].std())
    found = {"mean of the target": (np.full(test.num_rows, y[:cut].mean()), deviation)}
    for label, (model, one_hot) in models.items():
        data = numbers(train, one_hot=one_hot)
        model.fit(data[:cut], y[:cut])
        residuals = y[cut:] - model.predict(data[cut:])
        spread = float(np.sqrt(np.mean(residuals**2)))
        found[label] = (model.predict(numbers(test, one_hot=one_hot)), spread)
    return found


def gaussian_scores(y: Floats, mean: Floats, deviation: float) -> dict[str, Any]:
    """Scores of Gaussians of one width."""
    variances = np.full((1, y.size), deviation**2)
    tally = Tally()
    tally.add(y, PredictiveDistribution(np.ones(1), mean[None, :], variances))
    return tally.scores()


def write_table(table: pa.Table, path: str) -> None:
    """Write a table as CSV or Parquet, by its extension."""
    with open_whole(path) as file:
        if path.endswith(".csv"):
            pacsv.write_csv(table, file)
        else:
            pq.write_table(table, file)


def _compile_kernels(estimator: type[Any], X: Any, y: Any) -> None:
    """Fit one tree: the time budget of the next fit is planned from times without compilation."""
    with warnings.catch_warnings(action="ignore"):  # nobody sees this model
        estimator(n_members=1, n_candidates=1, max_iter=2, random_state=0).fit(X, y)
