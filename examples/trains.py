"""A tour on delays of trains, made up: data, baselines, a model, its predictions and its report.

    python examples/trains.py [--rows 20000] [--output trains] [--seed 0]

The first part of `make demo`, and the files of docs/command_line.md. TrieGPRegressor is fitted to
up to 20,000 rows, BinaryTreeGPRegressor to more, with a time budget of 25 seconds. Scores are those
of rows that no model has seen. Needs the extra `cli`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from triegp import BinaryTreeGPRegressor, PredictiveDistribution, TrieGPRegressor
from triegp.metrics import coverage, crps, nll

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


def baselines(train: pa.Table, y: Floats, test: pa.Table, seed: int) -> dict[str, Any]:
    """Gaussians at the test rows, by models without error bars of their own.

    Their deviation is that of the residuals of a tenth of the training rows, which are held out.
    """
    cut = y.size - y.size // 10

    def numbers(table: pa.Table, one_hot: bool) -> Floats:
        codes = np.array([LINES.index(name) for name in table["line"].to_pylist()])
        day = table["date"].to_numpy().astype("datetime64[D]").astype(np.float64)
        columns = [table[name].to_numpy().astype(np.float64) for name in table.column_names[2:]]
        coded = np.eye(len(LINES))[codes] if one_hot else codes[:, None]
        data = np.column_stack([coded, day, *columns])
        return np.nan_to_num(data, nan=10.0) if one_hot else data

    def gaussian(mean: Floats, deviation: float) -> PredictiveDistribution:
        variances = np.full((1, test.num_rows), deviation**2)
        return PredictiveDistribution(np.ones(1), mean[None, :], variances)

    boosting = HistGradientBoostingRegressor(categorical_features=[0], random_state=seed)
    models = {
        "ridge regression": (make_pipeline(StandardScaler(), Ridge()), True),
        "histogram boosting": (boosting, False),
    }
    mean = np.full(test.num_rows, y[:cut].mean())
    predicted = {"mean of the target": gaussian(mean, float(y[:cut].std()))}
    for label, (model, one_hot) in models.items():
        data = numbers(train, one_hot)
        model.fit(data[:cut], y[:cut])
        deviation = float(np.sqrt(np.mean((y[cut:] - model.predict(data[cut:])) ** 2)))
        predicted[label] = gaussian(model.predict(numbers(test, one_hot)), deviation)
    return predicted


def fit_model(X: pa.Table, y: Floats, seed: int, **parameters: Any) -> Any:
    """The model for so many rows."""
    if X.num_rows <= FEW_ROWS:
        return TrieGPRegressor(random_state=seed, time_budget=BUDGET, **parameters).fit(X, y)
    # The time budget is planned from times without compilation.
    with warnings.catch_warnings(action="ignore"):
        quick = BinaryTreeGPRegressor(n_members=1, n_candidates=1, max_iter=2, random_state=0)
        quick.fit(X[:COMPILED], y[:COMPILED])
    return BinaryTreeGPRegressor(random_state=seed, time_budget=BUDGET, **parameters).fit(X, y)


def show_scores(label: str, y: Floats, distribution: Any) -> None:
    """A line of the table of scores."""
    rmse = np.sqrt(np.mean((y - distribution.mean()) ** 2))
    cells = [f"{value:.4f}" for value in (rmse, nll(y, distribution), crps(y, distribution))]
    cells.append(f"{100 * coverage(y, distribution.interval(0.9)):.1f} %")
    print(f"{label:<26}" + "".join(f"{cell:>18}" for cell in cells))


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as CSV or Parquet, by its extension."""
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)


def main(arguments: list[str] | None = None, **parameters: Any) -> None:
    """Do it all; parameters: of the estimator."""
    parser = argparse.ArgumentParser(description="A tour on delays of trains, made up.")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=Path, default=Path("trains"), help="folder")
    parser.add_argument("--seed", type=int, default=0, help="of data and model")
    given = parser.parse_args(arguments)
    began, folder = time.monotonic(), given.output
    folder.mkdir(parents=True, exist_ok=True)
    X, y = make_rows(given.rows, given.seed)
    n_train = given.rows - min(given.rows // 5, TEST_ROWS)
    train, test, y_train, y_test = X[:n_train], X[n_train:], y[:n_train], y[n_train:]
    train_path = folder / ("train.csv" if n_train <= CSV_ROWS else "train.parquet")
    write_table(train.append_column("delay", pa.array(y_train)), train_path)
    write_table(test.append_column("delay", pa.array(y_test)), folder / "test.csv")
    print(f"{given.rows:,} rows made\n")

    heads = ("RMSE", "NLL", "CRPS", "in 90 % interval")
    print(f"{'test rows':<26}" + "".join(f"{head:>18}" for head in heads), flush=True)
    for label, distribution in baselines(train, y_train, test, given.seed).items():
        show_scores(label, y_test, distribution)
    model = fit_model(train, y_train, given.seed, **parameters)
    distribution = model.predict_distribution(test)
    show_scores(type(model).__name__, y_test, distribution)
    print(f"leave-one-out, from the training rows alone: NLL {-model.loo_score_:.4f}\n")

    low, high = distribution.interval(0.9).T
    columns = [y_test, distribution.mean(), distribution.std(), low, high]
    predictions = pa.table(columns, names=["delay", "mean", "std", "low", "high"])
    write_table(predictions, folder / "predictions.csv")
    model.save(folder / "model.tgp", training_data=model.rows_ is not None)
    model.report(folder / "report.html", test, y_test, targets=["delay"])
    print(f"{n_train:,} rows fitted in {model.fit_seconds_:.1f} s; all files are in {folder}")
    print(f"{time.monotonic() - began:.0f} s in all. Open the report in a browser, or go on with")
    print(f"  triegp predict {folder}/model.tgp {folder}/test.csv --interval 0.9 -o -")


if __name__ == "__main__":
    main()
