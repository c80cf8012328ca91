"""Data files and models for the tests of the command, and ways to run it."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from click.testing import CliRunner

from triegp import BinaryTreeGPRegressor
from triegp.cli.app import app
from triegp.files.container import read_file

QUICK = ["--estimator", "mixture", "--param", "n_members=2", "--param", "n_candidates=2"]
QUICK += ["--param", "max_iter=5"]
ROOT = Path(__file__).parents[1]
FORMATS = ["csv", "parquet", "arrow"]


def make_frame(n_rows=120, seed=0):
    """Rows of every kind of column: categories that look like numbers, booleans, dates, gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": [f"{k:04d}" for k in range(n_rows)],
            "x": rng.random(n_rows).round(4),
            "zip": rng.choice(["01", "02", "10"], n_rows),
            "flag": rng.random(n_rows) < 0.5,
            "when": pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 90, n_rows), "D"),
            "name": rng.choice(["a, b", 'say "c"', "Zoë"], n_rows),
        }
    )
    y = np.sin(6 * frame["x"]) + (frame["zip"] == "02") + 0.5 * frame["flag"]
    frame["y"] = y + 0.1 * rng.standard_normal(n_rows)
    frame.loc[::11, "x"] = np.nan
    frame.loc[::13, "name"] = None
    return frame


def features():
    """Features of the new rows, as the models read them."""
    frame = make_frame(80, seed=1).drop(columns=["id", "y"])
    return pa.Table.from_pandas(frame, preserve_index=False)


def new_targets():
    return make_frame(80, seed=1)["y"].to_numpy()


def quick_model(**parameters):
    """The estimator that QUICK describes."""
    quick = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}
    return BinaryTreeGPRegressor(**quick | parameters)


def write_frame(frame, path):
    """Write a frame in the format of the extension."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    path = str(path)
    if path.endswith(".csv"):
        frame.to_csv(path, index=False)
    elif path.endswith(".parquet"):
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path)


def read_frame(path):
    """Read a frame in the format of the extension."""
    path = str(path)
    if path.endswith(".csv"):
        options = pa.csv.ConvertOptions(column_types={"id": pa.string()}, strings_can_be_null=True)
        return pa.csv.read_csv(path, convert_options=options).to_pandas()
    return pd.read_parquet(path) if path.endswith(".parquet") else pd.read_feather(path)


def make_folder(path):
    """Files of 120 and of 80 rows in every format, and a model of each."""
    for kind in FORMATS:
        write_frame(make_frame(), path / f"d.{kind}")
        write_frame(make_frame(80, seed=1), path / f"new.{kind}")
        run_well(
            *("fit", path / f"d.{kind}", "--target", "y", "-o", path / f"m.{kind}", "--drop", "id"),
            *("--categorical", "zip", "--no-keep-rows", *QUICK),
        )
    return path


def run(*args, **extra):
    """Run the command in this process."""
    old = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(mix_stderr=False) if old else CliRunner()
    return runner.invoke(app, [str(arg) for arg in args], **extra)


def run_well(*args, **extra):
    """Run the command, which must succeed; returns its standard output."""
    result = run(*args, **extra)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def start(*args, **extra):
    """Start the command as a process of its own, with pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "triegp", *map(str, args)]
    return subprocess.Popen(command, **(pipes | extra))


def contents(path):
    """What a model file holds, but for the time of the fit."""
    header, arrays = read_file(path)
    del header["sha256"], header["model"]["fit_seconds"]
    return header, {name: array.tobytes() for name, array in arrays.items()}
