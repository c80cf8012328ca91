"""Small fitted models of every kind that a model file can hold, and rows to ask them about."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "tests" / "files"
NAMES = ["ant", "bee", "cat"]
FEW = {"random_state": 0, "n_jobs": 1, "max_iter": 3}


def make_rows(n: int, d: int = 2) -> tuple[Any, Any]:
    """Features and targets; the first tenth of the rows repeats the second."""
    draw = np.random.default_rng(n)
    X = draw.random((n, d))
    X[: n // 10] = X[n // 10 : 2 * (n // 10)]
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * draw.standard_normal(n)


def make_table(n: int) -> Any:
    """Numbers with gaps, names, grades and dates."""
    X, _ = make_rows(n)
    at = np.arange(n)
    grades = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    return pd.DataFrame(
        {
            "size": np.where(at % 5 == 3, np.nan, X[:, 0]),
            "name": pd.Categorical([NAMES[k % 3] for k in range(n)], NAMES),
            "grade": pd.Categorical([grades.categories[k % 3] for k in range(n)], dtype=grades),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(at * 7, unit="h"),
        }
    )


def _mixture(n: int = 60, **options: Any) -> Any:
    from triegp import BinaryTreeGPRegressor

    settings = FEW | {"n_members": 2, "n_candidates": 2} | options
    return BinaryTreeGPRegressor(**settings).fit(*make_rows(n))


def _fit(n: int, given: dict[str, Any] | None = None, two: bool = False, **options: Any) -> Any:
    from triegp import BinaryTreeGPRegressor

    X, y = make_rows(n)
    settings = FEW | {"n_members": 2, "n_candidates": 2} | options
    targets = np.stack([y, y**2], axis=1) if two else y
    return BinaryTreeGPRegressor(**settings).fit(X, targets, **(given or {}))


def _cells() -> Any:
    from triegp import BinaryTreeGPRegressor

    sizes = {"FEWEST_ROWS": 50, "SAMPLE_ROWS": 100, "HELD_ROWS": 40}
    with mock.patch.multiple("triegp.estimators.pieces", **sizes):
        return BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_cells=24, **FEW).fit(
            *make_rows(150)
        )


def _forest(n: int = 60, two: bool = False, **options: Any) -> Any:
    from triegp import TrieGPRegressor

    X, y = make_rows(n)
    targets = np.stack([y, y**2], axis=1) if two else y
    return TrieGPRegressor(n_trees=2, **FEW, **options).fit(X, targets)


def _noisy() -> Any:
    """Noise that depends on place, and enough rows for local noise."""
    from triegp import BinaryTreeGPRegressor

    draw = np.random.default_rng(3)
    X = draw.random((400, 2))
    noise = np.where(X[:, 1] < 0.5, 0.02, 1.0) * draw.standard_normal(400)
    return BinaryTreeGPRegressor(n_members=2, n_candidates=2, **FEW).fit(X, X[:, 0] + noise)


def _line() -> Any:
    """Few rows, for which a trend helps."""
    from triegp import BinaryTreeGPRegressor

    X, y = make_rows(60)
    model = BinaryTreeGPRegressor(n_members=2, n_candidates=2, **FEW)
    return model.fit(X[6:], X[6:] @ [1.0, 3.0] + 0.1 * y[6:])


def _table(estimator: str) -> Any:
    import triegp

    options = FEW | ({"n_trees": 2} if estimator == "TrieGPRegressor" else {"n_members": 2})
    return getattr(triegp, estimator)(**options).fit(make_table(60), make_rows(60)[1])


def _numbered() -> Any:
    """Targets that were rounded, whole weights: arrays of few distinct values."""
    from triegp import BinaryTreeGPRegressor

    X, y = make_rows(4500)
    weight = np.random.default_rng(1).integers(0, 4, y.size).astype(float)
    model = BinaryTreeGPRegressor(n_members=2, n_candidates=2, **FEW)
    return model.fit(X, np.round(y, 1), sample_weight=weight)


WEIGHT = np.random.default_rng(1).integers(0, 4, 60).astype(float)
KNOWN = np.random.default_rng(2).exponential(0.1, 60)
ROWS_TOO = {"training_data": True}

# name: (fit, options of save)
KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "mixture": (_mixture, {}),
    "training rows": (lambda: _fit(60, {"sample_weight": WEIGHT, "known_noise": KNOWN}), ROWS_TOO),
    "weights": (lambda: _fit(60, {"sample_weight": 0.5 * WEIGHT}), {}),
    "precision weights": (lambda: _fit(60, {"sample_weight": WEIGHT}, weights="precision"), {}),
    "known noise": (lambda: _fit(60, {"known_noise": KNOWN}), {}),
    "paper": (lambda: _mixture(preset="paper-bte", n_members=None, n_candidates=3), {}),
    "bit nugget": (lambda: _mixture(nugget="bit", scaling="ecdf", mixture="stacking"), {}),
    "unrelated": (lambda: _mixture(outside="unrelated"), {}),
    "many bits": (lambda: _mixture(precision=[31, 30]), {}),
    "own targets": (lambda: _fit(60, two=True), ROWS_TOO),
    "shared targets": (lambda: _fit(60, two=True, multi_target="shared"), ROWS_TOO),
    "local noise": (_noisy, {}),
    "trend": (_line, {}),
    "added to": (lambda: _mixture().partial_fit(make_rows(7)[0], make_rows(7)[1]), ROWS_TOO),
    "intervals": (lambda: _mixture(2100), {}),
    "numbered": (_numbered, {}),
    "cells": (_cells, {}),
    "table": (lambda: _table("BinaryTreeGPRegressor"), ROWS_TOO),
    "yeo-johnson": (lambda: _mixture(target_transform="yeo-johnson"), ROWS_TOO),
    "quantile": (lambda: _mixture(target_transform="quantile"), {}),
    "forest": (_forest, {}),
    "forest, plain": (lambda: _forest(calibrated=False, smooth=False, variance="exact"), ROWS_TOO),
    "forest, many rows": (lambda: _forest(2200, smooth=True), {}),
    "forest, targets": (lambda: _forest(two=True), {}),
    "forest, table": (lambda: _table("TrieGPRegressor"), ROWS_TOO),
}


def write_kinds(folder: Path, names: Iterable[str] = KINDS) -> dict[str, Path]:
    """Fit and save models of these kinds; their files, by name."""
    found = {}
    for name in names:
        fit, options = KINDS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit()
        found[name] = folder / name.replace(", ", "_").replace(" ", "_")
        model.save(found[name], **options)
    return found


def kept_files() -> dict[str, Path]:
    """The kept files of all format versions, by name."""
    paths = sorted(KEPT.glob("version_*/*"))
    return {f"{path.parent.name}/{path.name}": path for path in paths if path.suffix != ".npz"}


def new_rows(columns: Any) -> Any:
    """Rows to predict, of these columns (`Columns`): within the box, outside it, and unseen."""
    draw = np.random.default_rng(7)
    n = 12
    parts: dict[str, Any] = {}
    for j, kind in enumerate(columns.kinds):
        name = f"x{j}" if columns.names is None else columns.names[j]
        listed = list(columns.categories[j])
        if kind == "time":
            parts[name] = pd.Timestamp("2024-01-05") + pd.to_timedelta(
                draw.integers(0, 500, n), "h"
            )
        elif kind == "duration":
            parts[name] = pd.to_timedelta(draw.integers(0, 500, n), "h")
        elif kind in ("category", "ordered"):
            values = [listed[k % len(listed)] for k in range(n)] if listed else [None] * n
            dtype = pd.CategoricalDtype(listed, ordered=kind == "ordered") if listed else "category"
            parts[name] = pd.Series(values, dtype=dtype)
        else:
            parts[name] = draw.uniform(-0.1, 1.1, n)
    if columns.names is None and set(columns.kinds) == {"number"}:
        return np.column_stack(list(parts.values()))
    return pd.DataFrame(parts)
