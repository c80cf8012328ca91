"""The FastAPI example of docs/serving.md answers as the model does."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from triegp import BinaryTreeGPRegressor

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install '.[docs]'")
pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install '.[docs]'")

APP = Path(__file__).parents[2] / "examples" / "serving" / "app.py"


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.random((300, 3))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    return BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=5, random_state=0).fit(X, y)


def served(model, path):
    """A client of the example, for as long as the block lasts."""
    from fastapi.testclient import TestClient

    model.save(path)
    spec = importlib.util.spec_from_file_location("served_app", APP)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIEGP_MODEL", str(path))
        spec.loader.exec_module(module)
        with TestClient(module.app) as found:
            module.app.state.compiling.join()  # numba changes the filters of warnings meanwhile
            yield found


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    yield from served(model, tmp_path_factory.mktemp("served") / "model.triegp")


@pytest.fixture(scope="module")
def frame():
    """One column of every kind, with gaps."""
    rng = np.random.default_rng(3)
    days = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 90, 200), "D")
    found = pd.DataFrame(
        {
            "size": rng.random(200),
            "town": rng.choice(["Bonn", "Ulm"], 200),
            "line": pd.Categorical(rng.choice([3, 7], 200)),
            "when": days,
            "late": pd.to_timedelta(rng.integers(0, 3600, 200), "s"),
            "day": days.strftime("%d/%m/%Y"),
            "at": [time(int(k), 30) for k in rng.integers(0, 24, 200)],
        }
    )
    found.loc[::9, ["size", "town", "when", "day", "at"]] = None
    return found


@pytest.fixture(scope="module")
def table_model(frame):
    y = frame["size"].fillna(0.5) + (frame["line"] == 3)
    kind = BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=5, random_state=0)
    with pytest.warns(UserWarning, match="read as dates, dd/mm/yyyy"):
        return kind.fit(frame, y.to_numpy())


@pytest.fixture(scope="module")
def table_client(table_model, tmp_path_factory):
    yield from served(table_model, tmp_path_factory.mktemp("served") / "model.triegp")


def as_cells(frame):
    """Rows of a frame as JSON has them."""
    cells = frame.assign(late=frame["late"].dt.total_seconds(), when=frame["when"].astype(str))
    cells["at"] = frame["at"].astype(str)
    rows = cells.astype(object).where(frame.notna(), None)
    return rows[rows.columns[::-1]].to_dict("records")


def test_tables_are_taken_by_name(table_client, table_model, frame):
    answer = table_client.post("/predict", json={"rows": as_cells(frame[:20])}).json()
    mean, std = table_model.predict(frame[:20], return_std=True)
    np.testing.assert_allclose(answer["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(answer["std"], std, rtol=1e-12)


def post(client, body):
    headers = {"Content-Type": "application/json"}
    return client.post("/predict", content=body, headers=headers)


BAD_CELLS = [
    *(("size", text) for text in ('"big"', "Infinity", "NaN", "1e999", "1" + "0" * 400)),
    *(("town", text) for text in ("3", "true")),
    *(("line", text) for text in ('"three"', "-Infinity")),
    *(("when", text) for text in ("20240301", '"tomorrow"', "true", '"2024-02-30"')),
    *(("late", text) for text in ('"an hour"', "1e300", "NaN")),
    *(("day", text) for text in ("20240301", "true", '"tomorrow"', '"2024-02-28"')),
    *(("at", text) for text in ("1230", '"25:00"', '"noon"', '""')),
]


@pytest.mark.parametrize(("name", "text"), BAD_CELLS)
def test_a_bad_cell_is_refused_with_the_name_of_its_column(table_client, frame, name, text):
    row = as_cells(frame[1:2])[0]
    body = json.dumps({"rows": [row, row | {name: "HERE"}]}).replace('"HERE"', text)
    answer = post(table_client, body)
    assert answer.status_code == 422
    said = answer.json()["detail"]
    assert f"column '{name}'" in said
    assert "row 1" in said


def test_columns_that_are_missing_or_unknown_are_named(table_client, frame):
    row = as_cells(frame[1:2])[0]
    rest = {name: cell for name, cell in row.items() if name != "town"}
    for rows, said in (
        ([row, rest], "column 'town' of row 1 is missing"),
        ([row | {"\ud800": 1}], r"column '\ud800' of row 0 is none of the model's"),
        ([[0.5]], "row 0 must have 7 cells, got 1"),
    ):
        answer = post(table_client, json.dumps({"rows": rows}))
        assert (answer.status_code, answer.json()["detail"]) == (422, said)


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [[0.5, 0.5, 0.5]], "coverage": NaN}',
        b'{"rows": [["\\ud800", 1, 1]]}',
        b'{"rows": [{"\\ud800": [1]}]}',
        b'{"rows": [{"0": 0.5, "1": 0.5, "2": 0.5}]}',
        b'{"rows": [[[1], 1, 1]]}',
        b'{"rows": 1e999}',
        b'"\\ud800"',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_nothing_that_is_sent_is_an_error_of_the_server(client, body):
    answer = post(client, body)
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"]


def test_answers_are_the_model_s_predictions(client, model):
    rows = np.random.default_rng(1).uniform(0.1, 0.9, (5, 3))
    answer = client.post("/predict", json={"rows": rows.tolist(), "coverage": 0.8}).json()
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_allclose(answer["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(answer["std"], std, rtol=1e-12)
    found = np.column_stack([answer["low"], answer["high"]])
    np.testing.assert_allclose(found, model.predict_interval(rows, coverage=0.8), rtol=1e-12)
    assert answer["outside_box"] == [False] * 5


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_rows_outside_the_box_are_marked(client):
    answer = client.post("/predict", json={"rows": [[0.5, 0.5, 9.0]]}).json()
    assert answer["outside_box"] == [True]


@pytest.mark.parametrize(
    "question",
    [{"rows": [[0.5, 0.5]]}, {"rows": []}, {"rows": [[0.5] * 3], "coverage": 1.5}, {}],
)
def test_bad_questions_are_refused(client, question):
    assert client.post("/predict", json=question).status_code == 422


def test_threads_share_the_model(client, model):
    rows = np.random.default_rng(2).uniform(0.1, 0.9, (24, 3))

    def ask(row):
        return client.post("/predict", json={"rows": [row.tolist()]}).json()["mean"][0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, rows))
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-12)
