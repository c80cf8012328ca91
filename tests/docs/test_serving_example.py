"""The FastAPI example of docs/serving.md answers as the model does."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
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


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    from fastapi.testclient import TestClient

    path = tmp_path_factory.mktemp("served") / "model.triegp"
    model.save(path)
    spec = importlib.util.spec_from_file_location("served_app", APP)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIEGP_MODEL", str(path))
        spec.loader.exec_module(module)
        with TestClient(module.app) as found:
            module.app.state.compiling.join()  # numba changes the filters of warnings meanwhile
            yield found


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
