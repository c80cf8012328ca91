"""Models that only predict: the same predictions, without scikit-learn and without compiling."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from tolerances import VALUE
from triegp import BinaryTreeGPRegressor, ModelFileError, TrieGPRegressor, serving

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 5, "random_state": 0}
START = """
import sys
from triegp import serving
model = serving.load(sys.argv[1])
mean, std = model.predict([[0.5] * 3], return_std=True)
low, high = model.predict_interval([[0.5] * 3])[0]
print(float(mean[0]).hex(), float(std[0]).hex(), low.hex(), high.hex())
print([name for name in ("sklearn", "numba", "pandas", "matplotlib") if name in sys.modules])
"""


def make_data(n=500):
    rng = np.random.default_rng(0)
    X = rng.random((n, 3))
    noise = (0.05 + 0.3 * X[:, 1]) * rng.standard_normal(n)
    return X, np.sin(6 * X[:, 0]) + noise


def make_frame(n=400):
    X, y = make_data(n)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = np.where(X[:, 2] > 0.5, "up", "down")
    frame.loc[::7, "b"] = np.nan
    return frame, y + (frame["kind"] == "up")


def everything(model, X, y):
    """All that a model predicts, as one list of arrays."""
    distribution = model.predict_distribution(X)
    parts = distribution if isinstance(distribution, list) else [distribution]
    return [
        model.predict(X),
        *model.predict(X, return_std=True),
        *model.predict(X, return_std=True, latent=True),
        model.predict_quantiles(X, [0.01, 0.4, 0.99]),
        model.predict_interval(X, 0.5, latent=True),
        model.log_density(X, y),
        *(part.mean() for part in parts),
        model.outside_box(X),
    ]


MODELS = {
    "mixture": BinaryTreeGPRegressor(**QUICK),
    "paper": BinaryTreeGPRegressor(preset="paper-bte", n_candidates=2, max_iter=3, random_state=0),
    "unrelated": BinaryTreeGPRegressor(**QUICK, outside="unrelated"),
    "bit": BinaryTreeGPRegressor(**QUICK, nugget="bit", scaling="ecdf"),
    "cells": BinaryTreeGPRegressor(**QUICK, max_cells=100),
    "log": BinaryTreeGPRegressor(**QUICK, target_transform="log"),
    "forest": TrieGPRegressor(n_trees=4, max_iter=3, variance="exact", random_state=0),
}


@pytest.mark.filterwarnings("ignore:.*outside the training box")
@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_the_estimator(tmp_path, name, monkeypatch):
    monkeypatch.setattr("triegp.estimators.pieces.FEWEST_ROWS", 0)
    X, y = make_data()
    y = np.exp(y) if name == "log" else y
    model = MODELS[name].fit(X, y)
    model.save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    new = np.vstack([X[:20], np.random.default_rng(1).uniform(-0.2, 1.2, (30, 3))])
    expected = everything(model, new, np.ones(50))
    for here, there in zip(everything(served, new, np.ones(50)), expected, strict=True):
        np.testing.assert_allclose(here, there, **VALUE)
    assert served.compiled_ is (name in ("cells", "forest"))
    assert served.compile() is served
    assert served.compiled_
    for here, there in zip(everything(served, new, np.ones(50)), expected, strict=True):
        np.testing.assert_array_equal(here, there)
    assert served.estimator_ == type(model).__name__
    assert served.n_rows_ == 500
    assert served.n_features_in_ == 3


@pytest.mark.parametrize("weight", [None, "frequency"])
def test_repeated_rows_and_several_targets(tmp_path, weight):
    X, y = make_data(300)
    X[100:200] = X[:100]
    weights = None if weight is None else np.random.default_rng(2).integers(0, 4, 300)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, np.column_stack([y, y**2]), weights)
    model.save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    for here, there in zip(
        everything(served, X[:40], np.ones((40, 2))),
        everything(model, X[:40], np.ones((40, 2))),
        strict=True,
    ):
        np.testing.assert_allclose(here, there, **VALUE)


def test_larger_files_hold_intervals(tmp_path):
    X, y = make_data(2_500)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    model.save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    assert not served.compiled_
    np.testing.assert_allclose(served.predict(X), model.predict(X), **VALUE)


def test_many_rows_start_compiled(tmp_path, monkeypatch):
    X, y = make_data()
    BinaryTreeGPRegressor(**QUICK).fit(X, y).save(tmp_path / "model")
    monkeypatch.setattr(serving, "MOST_ROWS", 499)
    assert serving.load(tmp_path / "model").compiled_


def test_tables_are_read_as_in_training(tmp_path):
    frame, y = make_frame()
    model = BinaryTreeGPRegressor(**QUICK).fit(frame, y)
    model.save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    assert served.feature_names_in_.tolist() == ["a", "b", "c", "kind"]
    new = frame[::5][["kind", "c", "b", "a"]].copy()
    new.iloc[0, 0] = "unseen"
    np.testing.assert_allclose(served.predict(new), model.predict(new), **VALUE)
    with pytest.raises(ValueError, match="yet now missing: 'c'"):
        served.predict(new.drop(columns="c"))


def test_wrong_rows_get_a_sentence(tmp_path):
    X, y = make_data()
    BinaryTreeGPRegressor(**QUICK).fit(X, y).save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    with pytest.raises(ValueError, match="X has 2 features, but ServedModel is expecting 3"):
        served.predict(X[:, :2])
    with pytest.raises(ValueError, match="X must be finite, got inf in column 1 at row 0"):
        served.predict([[0.0, np.inf, 0.0]])
    with pytest.raises(ValueError, match="Expected 2D array"):
        served.predict(X[0])
    assert not hasattr(served, "fit")
    assert not hasattr(served, "partial_fit")


def test_wrong_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        serving.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a model")
    with pytest.raises(ModelFileError):
        serving.load(tmp_path / "text")
    X, y = make_data()
    BinaryTreeGPRegressor(**QUICK).fit(X, y).save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "short").write_bytes(content[:-8])
    with pytest.raises(ModelFileError):
        serving.load(tmp_path / "short")


def test_functions_drawn_from_a_served_model(tmp_path):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    model.save(tmp_path / "model")
    served = serving.load(tmp_path / "model")
    draws = served.sample_functions(3, random_state=1)
    np.testing.assert_array_equal(draws(X[:9]), model.sample_functions(3, random_state=1)(X[:9]))
    again = pickle.loads(pickle.dumps(draws))
    np.testing.assert_array_equal(again(X[:9]), draws(X[:9]))
    np.testing.assert_array_equal(served.loo_predict(), model.loo_predict())


def test_threads_predict_while_one_compiles(tmp_path):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    model.save(tmp_path / "model")
    served, expected = serving.load(tmp_path / "model"), model.predict(X[:50])
    wrong = []
    compiler = threading.Thread(target=served.compile)

    def ask():
        while True:
            last = not compiler.is_alive()
            if not np.allclose(served.predict(X[:50]), expected, **VALUE):
                wrong.append(1)
            if last:
                return

    asking = [threading.Thread(target=ask) for _ in range(3)]
    compiler.start()
    for thread in asking:
        thread.start()
    for thread in (compiler, *asking):
        thread.join()
    assert served.compiled_
    assert not wrong


def test_a_service_starts_without_scikit_learn_and_numba(tmp_path):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    path = tmp_path / "model"
    model.save(path)
    done = subprocess.run(
        [sys.executable, "-c", START, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    mean, std = model.predict([[0.5] * 3], return_std=True)
    expected = [mean[0], std[0], *model.predict_interval([[0.5] * 3])[0]]
    np.testing.assert_allclose([float.fromhex(one) for one in numbers.split()], expected, **VALUE)
