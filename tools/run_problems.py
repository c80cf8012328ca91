"""Random small problems for models in several threads and processes, and questions to ask them."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NAMES = ["ant", "bee", "cat", "dog"]
N_NEW = 40  # rows to predict
Answer = list[np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A model, its first rows, batches to add, and rows to predict.

    Attributes
    ----------
    text : str
        What it is, for people.
    estimator : str
        Name of the class.
    parameters : dict
        Its parameters.
    first : dict
        Arguments of `fit`.
    batches : tuple of dict
        Arguments of `partial_fit`.
    new : array-like (40, n_features)
        Rows to predict.
    """

    text: str
    estimator: str
    parameters: dict[str, Any]
    first: dict[str, Any]
    batches: tuple[dict[str, Any], ...]
    new: Any

    def fit(self, **parameters: Any) -> Any:
        """A new model of the first rows."""
        import triegp

        model = getattr(triegp, self.estimator)(**self.parameters | parameters)
        return model.fit(**self.first)


def draw_problem(draw: np.random.Generator, *, streamed: bool = False) -> Problem:
    """Draw a problem. streamed: few rows, several batches, and no sums of rows in cells."""
    forest = bool(draw.random() < 0.4)
    shares = [0.6, 0.4, 0.0] if streamed else [0.5, 0.35, 0.15]
    size = str(draw.choice(["few", "some", "many"], p=shares))
    low, high = {"few": (50, 300), "some": (500, 900), "many": (10_500, 30_000)}[size]
    if forest and size != "few":
        low, high = (400, 600) if size == "some" else (2_010, 2_200)
    n = int(draw.integers(low, high))
    n_batches = int(draw.integers(3, 9)) if streamed else 1
    counts = draw.integers(1, max(2, n // 6), n_batches)
    parts = np.split(np.arange(n + int(counts.sum())), np.cumsum([n, *counts[:-1]]))
    columns, kind = _columns(draw, n + int(counts.sum()))
    values = np.nan_to_num(columns[0].astype(float), nan=0.5)
    noise = np.where(values < 0.5, 0.05, 0.3) * draw.standard_normal(values.size)
    y = np.sin(5.0 * values) + columns[1].astype(float) + noise
    parameters, text = _parameters(draw, forest)
    cells = size == "many" and not forest and draw.random() < 0.4
    if cells:
        parameters["max_cells"] = int(draw.integers(100, 2000))
    if parameters["target_transform"] == "log":
        y = np.exp(y)
    n_targets = int(draw.choice([1, 1, 1, 2]))
    if n_targets == 2:
        y = np.stack([y, np.abs(y) ** 1.5 + 0.1], axis=1)
        parameters["multi_target"] = str(draw.choice(["own", "shared"]))
    extra: dict[str, Any] = {}
    if draw.random() < 0.3:
        whole = draw.integers(0, 4, len(y)).astype(float)
        extra["sample_weight"] = (
            whole if draw.random() < 0.5 else draw.exponential(1.0, len(y)) + 0.01
        )
        parameters["weights"] = str(draw.choice(["frequency", "precision"]))
    elif draw.random() < 0.2 and parameters["target_transform"] == "identity" and not cells:
        extra["known_noise"] = draw.exponential(0.01, len(y))

    def rows(part: Any) -> dict[str, Any]:
        X = columns_to_table(columns, kind, part)
        return {"X": X, "y": y[part]} | {name: one[part] for name, one in extra.items()}

    inner = draw.integers(0, n, N_NEW)  # old rows, and others
    moved = [one.copy() for one in columns]
    moved[0], moved[1] = moved[0][inner], draw.permutation(moved[1][inner])
    moved[2:] = [one[inner] for one in moved[2:]]
    said = [f"{n} rows", kind, *extra, f"{n_targets} targets", f"{n_batches} batches"]
    if cells:
        said.append(f"max_cells={parameters['max_cells']}")
    return Problem(
        f"{text}: {', '.join(said)}",
        "TrieGPRegressor" if forest else "BinaryTreeGPRegressor",
        parameters,
        rows(parts[0]),
        tuple(rows(part) for part in parts[1:]),
        columns_to_table(moved, kind, np.arange(N_NEW)),
    )


def _columns(draw: np.random.Generator, n: int) -> tuple[list[np.ndarray], str]:
    """Columns of a table, and what they are; corners come first, so that later rows are inside."""
    kind = str(draw.choice(["numbers", "float32", "repeats", "table"], p=[0.4, 0.15, 0.2, 0.25]))
    X = draw.random((n, int(draw.integers(2, 6))))
    if draw.random() < 0.3:
        X = np.round(X, 2)  # rows that share keys
    X[:2] = [[0.0], [1.0]]
    if kind == "repeats":
        some = draw.random(n) < 0.3
        X[some] = X[draw.integers(0, n, int(some.sum()))]
        X[:2] = [[0.0], [1.0]]
    columns = list(X.T)
    if kind == "table":
        gaps = draw.random(n) < 0.1
        gaps[:3] = [False, False, True]
        columns[0] = np.where(gaps, np.nan, columns[0])
        names = draw.integers(0, len(NAMES), n)
        names[: len(NAMES)] = np.arange(len(NAMES))
        columns.append(np.array(NAMES, dtype=object)[names])
    return columns, kind


def columns_to_table(columns: Sequence[np.ndarray], kind: str, part: Any) -> Any:
    """Some rows of columns, as an array or a data frame."""
    some = [one[part] for one in columns]
    if kind == "table":
        return pd.DataFrame({f"x{j}": one for j, one in enumerate(some)})
    return np.column_stack(some).astype(np.float32 if kind == "float32" else np.float64)


def _parameters(draw: np.random.Generator, forest: bool) -> tuple[dict[str, Any], str]:
    """Parameters of a quick fit, and what they are."""
    transforms = ["identity", "log", "yeo-johnson", "quantile"]
    found: dict[str, Any] = {
        "target_transform": str(draw.choice(transforms, p=[0.7, 0.1, 0.1, 0.1])),
        "random_state": int(draw.integers(1000)),
        "n_jobs": 1,
    }
    if forest:
        found |= {
            "n_trees": int(draw.integers(2, 7)),
            "max_iter": int(draw.integers(0, 9)),
            "smooth": [True, False, "auto"][int(draw.integers(3))],
            "local_noise": bool(draw.random() < 0.7),
        }
        return found, f"forest, {found['target_transform']}"
    mixture = str(
        draw.choice(["calibrated", "stacking", "softmax", "best"], p=[0.7, 0.1, 0.1, 0.1])
    )
    found |= {
        "n_members": int(draw.integers(2, 6)),
        "n_candidates": int(draw.integers(2, 5)),
        "max_iter": int(draw.integers(1, 6)),
        "mixture": mixture,
    }
    if draw.random() < 0.15:
        found |= {"preset": "paper-bte", "n_candidates": 6}
    return found, f"{mixture} mixture, {found['target_transform']}"


# Questions


def _mean(model: Any, new: Any) -> Answer:
    return [model.predict(new)]


def _latent(model: Any, new: Any) -> Answer:
    return list(model.predict(new, return_std=True, latent=True))


def _moments(model: Any, new: Any) -> Answer:
    return list(model.predict(new, return_std=True))


def _interval(model: Any, new: Any) -> Answer:
    return [model.predict_interval(new, 0.8)]


def _distribution(model: Any, new: Any) -> Answer:
    found = model.predict_distribution(new)
    parts = [found] if model.one_dimensional_ else found
    return [value for one in parts for value in (one.mean(), one.quantile([0.1, 0.5]))]


def _left_out(model: Any, new: Any) -> Answer:
    return list(model.loo_predict())


def _observed(model: Any, new: Any) -> Answer:
    return [model.loo_targets()]


def _likelihood(model: Any, new: Any) -> Answer:
    return [np.asarray(model.log_marginal_likelihood_)]


def _score(model: Any, new: Any) -> Answer:
    return [np.asarray(model.loo_score_)]


def _importances(model: Any, new: Any) -> Answer:
    return [model.feature_importances_]


def _samples(model: Any, new: Any) -> Answer:
    return [model.sample_y(new, 3, random_state=5)]


def _functions(model: Any, new: Any) -> Answer:
    return [model.sample_functions(2, random_state=5)(new)]


def _plan(model: Any) -> np.ndarray:
    """What a model counts: rows, rows of the last fit, and whether these are all that it holds."""
    plan = model._stream.plan
    held = model._stream.n_rows + sum(batch.n_rows for batch in model._stream.waiting)
    assert plan.n_rows == held, f"a plan of {plan.n_rows} rows for {held}"
    return np.array([plan.n_rows, plan.n_fit, plan.n_model, plan.n_calibrated, plan.fit_at])


def _file(model: Any, new: Any) -> Answer:
    import triegp

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model", training_data=True)
        again = triegp.load(Path(folder) / "model")
    return [_plan(again), *again.predict(new, return_std=True), again.rows_.y]


def _pickle(model: Any, new: Any) -> Answer:
    again = pickle.loads(pickle.dumps(model))
    return [_plan(again), *again.predict(new, return_std=True), again.rows_.y]


def _copy(model: Any, new: Any) -> Answer:
    again = copy.deepcopy(model)
    return [_plan(again), again.predict(new), again.rows_.y]


def _rows(model: Any, new: Any) -> Answer:
    rows = model.rows_
    assert len(rows.features) == len(rows.y)
    return [rows.y, np.asarray(rows.weight if rows.weight is not None else 0.0)]


def _counted(model: Any, new: Any) -> Answer:
    return [np.asarray(model.n_rows_)]


def _shown(model: Any, new: Any) -> Answer:
    found = re.search(r"fitted: ([\d,]+) rows?(?: and ([\d,]+) waiting)?", repr(model))
    assert found is not None, repr(model)
    return [np.asarray(sum(int(one.replace(",", "")) for one in found.groups("0")))]


QUESTIONS: dict[str, Callable[[Any, Any], Answer]] = {
    "mean": _mean,
    "moments": _moments,
    "latent": _latent,
    "interval": _interval,
    "distribution": _distribution,
    "leave-one-out": _left_out,
    "observed": _observed,
    "likelihood": _likelihood,
    "score": _score,
    "importances": _importances,
    "samples": _samples,
    "functions": _functions,
    "file": _file,
    "pickle": _pickle,
    "copy": _copy,
    "rows": _rows,
    "counted": _counted,
    "shown": _shown,
}
OF_ROWS = ("leave-one-out", "observed")  # not known if rows are summed up in cells
OF_KEPT = ("file", "pickle", "copy", "rows")  # these ask for kept rows


def ask_all(model: Any, new: Any) -> dict[str, Answer]:
    """The answers to all questions that the model can answer."""
    stream = model._stream
    missing = (*OF_ROWS * bool(stream.fitted[0].n_summed), *OF_KEPT * (stream.kept is None))
    names = [name for name in QUESTIONS if name not in missing]
    return {name: QUESTIONS[name](model, new) for name in names}


def digest_file(model: Any) -> str:
    """Digest of what a model file holds, but for seconds and the number of threads."""
    from triegp.files.container import read_file

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        header, arrays = read_file(Path(folder) / "model")
    del header["sha256"], header["model"]["fit_seconds"]
    header["parameters"] = header["parameters"] | {"n_jobs": None}
    text = json.dumps(header, sort_keys=True)
    parts = [np.frombuffer(text.encode(), np.uint8), *(arrays[name] for name in sorted(arrays))]
    return digest(parts)


def digest(parts: Answer) -> str:
    """Digest of types, shapes and bits of arrays."""
    found = hashlib.sha256()
    for part in map(np.asarray, parts):
        found.update(f"{part.dtype} {part.shape} ".encode())
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()[:16]


def fit_and_ask(problem: Problem, n_jobs: int) -> dict[str, str]:
    """Digests of all answers after the fit and after rows were added, by name."""
    model = problem.fit(n_jobs=n_jobs)
    found = {name: digest(said) for name, said in ask_all(model, problem.new).items()}
    found["bits of the file"] = digest_file(model)
    for batch in problem.batches:
        model.partial_fit(**batch)
    later = {f"{name}, later": digest(said) for name, said in ask_all(model, problem.new).items()}
    later["bits of the file, later"] = digest_file(model)
    return found | later
