"""What is stopped: a call of every kind, with a model before it and files around it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

KINDS = ("mixture", "forest")
NAMES = ["ant", "bee", "cat"]
N_ROWS = {"mixture": 260, "forest": 120}
MANY = {"mixture": 1_500, "forest": 320}  # the mixture looks ahead from 500 rows on


@dataclass
class Scene:
    """A model, a call that may be stopped, and the file that the call writes.

    Attributes
    ----------
    model : estimator
        Fitted or not; what it says after the call must be what it said before, or what it says
        after a call that was not stopped.
    act : callable
        The call; what it returns is compared, too.
    written : Path or None
        A file that must be the old or the new one, whole.
    new : array or data frame
        Rows to ask the model about.
    trains : bool
        Whether on_interrupt="keep" may shorten the training.
    """

    model: Any
    act: Callable[[], Any]
    new: Any
    written: Path | None = None
    trains: bool = False
    context: Any = field(default_factory=lambda: mock.patch.dict({}))


def make_rows(n: int, seed: int, d: int = 3) -> tuple[Any, Any]:
    """Features and targets."""
    draw = np.random.default_rng(seed)
    X = draw.random((n, d))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.2 * draw.standard_normal(n)


def make_table(n: int, seed: int) -> tuple[Any, Any]:
    """Numbers with gaps, names and dates, with targets."""
    X, y = make_rows(n, seed)
    table = pd.DataFrame(
        {
            "size": np.where(np.arange(n) % 5 == 3, np.nan, X[:, 0]),
            "name": [NAMES[k % 3] for k in range(n)],
            "day": pd.Timestamp("2024-01-01")
            + pd.to_timedelta((X[:, 1] * 4e6).astype(int), unit="s"),
        }
    )
    return table, y


def make_model(kind: str, **options: Any) -> Any:
    """An estimator that trains quickly; it is not fitted."""
    from triegp import BinaryTreeGPRegressor, TrieGPRegressor

    few = {"random_state": 0, "max_iter": 12}
    if kind == "mixture":
        return BinaryTreeGPRegressor(**few | {"n_members": 4, "n_candidates": 4} | options)
    return TrieGPRegressor(**few | {"n_trees": 4} | options)


@cache
def _fitted(kind: str, n: int, table: bool, cells: bool = False) -> bytes:
    """A pickled model of other rows than the scenes add."""
    rows = make_table(n, 1) if table else make_rows(n, 1)
    return pickle.dumps(make_model(kind, n_jobs=1).fit(*rows))


def _old(kind: str, options: dict[str, Any], n: int | None = None, table: bool = False) -> Any:
    model = pickle.loads(_fitted(kind, n or N_ROWS[kind], table))
    return model.set_params(**options)


def _first_fit(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    X, y = make_table(N_ROWS[kind], 2)
    model = make_model(kind, **options)
    return Scene(model, lambda: model.fit(X, y), X[:9], trains=True)


def _second_fit(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """To rows of another kind: names of features appear."""
    model = _old(kind, options | {"max_iter": 15})
    X, y = make_rows(N_ROWS[kind], 3)
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    return Scene(model, lambda: model.fit(named, y), named[:9], trains=True)


def _targets(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    X, y = make_rows(N_ROWS[kind] // 2, 4)
    model = make_model(kind, **options)
    both = np.stack([y, y**2 + X[:, 2]], axis=1)
    return Scene(model, lambda: model.fit(X, both), X[:9], trains=True)


def _transform(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    X, y = make_rows(N_ROWS[kind] // 2, 5)
    model = make_model(kind, target_transform="auto", **options)
    return Scene(model, lambda: model.fit(X, np.exp(y)), X[:9], trains=True)


def _repeats(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Weights and repeated measurements; enough rows that noise by region is learned."""
    X, y = make_rows(MANY[kind], 6)
    X[::3] = X[1::3][: len(X[::3])]
    weight = 1.0 + (np.arange(len(y)) % 3)
    model = make_model(kind, **options)
    return Scene(model, lambda: model.fit(X, y * (1 + X[:, 2]), weight), X[:9], trains=True)


def _pieces(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Rows of Parquet files, summed up in cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import triegp.estimators.pieces as module
    from triegp.pieces import parquet_pieces

    X, y = make_rows(2_500, 7)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    pq.write_table(table, folder / "rows.parquet", row_group_size=500)
    model = make_model(kind, max_cells=200, **options)
    pieces = parquet_pieces(folder / "rows.parquet", target="y")
    new = pd.DataFrame(X[:9], columns=["a", "b", "c"])
    sizes = {"FEWEST_ROWS": 500, "SAMPLE_ROWS": 1_500, "HELD_ROWS": 900}
    scene = Scene(model, lambda: model.fit_pieces(pieces), new, trains=True)
    scene.context = mock.patch.multiple(module, **sizes)
    return scene


def _queue(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Rows with a new category are added."""
    model = _old(kind, options, table=True)
    X, y = make_table(20, 8)
    X.loc[3, "name"] = "dog"
    return Scene(model, lambda: model.partial_fit(X, y), X[:9], trains=True)


def _add_and_predict(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Rows are inserted, or looked ahead to, and calibrated again."""
    model = _old(kind, options, MANY[kind])
    parts = [make_rows(n, 9 + n) for n in (5, 8, 60)]

    def act() -> list[Any]:
        said = []
        for X, y in parts:
            model.partial_fit(X, y)
            said += model.predict(X, return_std=True)
        return said

    return Scene(model, act, parts[0][0])


def _refit(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """A prediction for which a fit is due."""
    n = N_ROWS[kind] // 2
    model = _old(kind, options, n)
    X, y = make_rows(n + 10, 10)
    model.partial_fit(X, y)
    return Scene(model, lambda: model.predict(X[:9], return_std=True), X[:9], trains=True)


def _refresh(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    model = _old(kind, options)
    X, y = make_rows(12, 11)
    model.partial_fit(X, y)
    return Scene(model, model.refresh, X[:9], trains=True)


def _forget(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    model = _old(kind, options, MANY[kind])
    X, y = make_rows(9, 12)
    model.partial_fit(X, y)
    return Scene(model, lambda: model.forget(keep_last=400, factor=0.9), X)


def _ask(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Predictions of every kind, leave-one-out, importances and draws."""
    model = _old(kind, options)
    X = make_rows(300, 13)[0]

    def act() -> list[Any]:
        return [
            *model.predict(X, return_std=True),
            *model.predict(X[:60], return_cov=True),
            model.predict_interval(X),
            model.predict_distribution(X).quantile(0.3),
            model.sample_y(X[:60], 3),
            model.sample_functions(2)(X[:60]),
            *model.loo_predict(),
            np.array([model.loo_score_, model.log_marginal_likelihood_]),
            model.feature_importances_,
        ]

    return Scene(model, act, X[:9])


def _save(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Several saves over one file, which holds parameters, too."""
    model = _old(kind, {}, MANY[kind])
    path = folder / "model"
    _old(kind, {}).save(path)
    return Scene(model, lambda: [model.save(path) for _ in range(5)] and None, _new(), path)


def _load(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    from triegp import load

    model = _old(kind, options)
    path = folder / "model"
    _old(kind, options, MANY[kind]).save(path, training_data=True)
    return Scene(model, lambda: load(path).predict(_new()), _new())


def _report(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    model = _old(kind, options)
    path = folder / "report.html"
    path.write_text("old")
    return Scene(model, lambda: model.report(path) and None, _new(), path)


def _copy(kind: str, options: dict[str, Any], folder: Path) -> Scene:
    """Pickle and copy; rows wait."""
    model = _old(kind, options, MANY[kind])
    X, y = make_rows(9, 14)
    model.partial_fit(X, y)

    def act() -> list[Any]:
        return [pickle.loads(pickle.dumps(model)).predict(X), copy.deepcopy(model).predict(X)]

    return Scene(model, act, X)


def _new() -> Any:
    return make_rows(9, 15)[0]


Maker = Callable[[str, dict[str, Any], Path], Scene]
SCENES: dict[str, Maker] = {
    "first fit, of a table": _first_fit,
    "second fit": _second_fit,
    "fit, two targets": _targets,
    'fit, target_transform="auto"': _transform,
    "fit, weights and repeats": _repeats,
    "fit, pieces of Parquet": _pieces,
    "partial_fit": _queue,
    "partial_fit and predict": _add_and_predict,
    "predict, a fit is due": _refit,
    "refresh": _refresh,
    "forget": _forget,
    "predictions and draws": _ask,
    "save": _save,
    "load": _load,
    "report": _report,
    "pickle and copy": _copy,
}
OF_MIXTURES = ("fit, pieces of Parquet", "forget")
