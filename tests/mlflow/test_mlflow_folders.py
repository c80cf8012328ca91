"""Models in MLflow's folders and stores: the same bits, no pickles, environments, errors."""

import importlib.metadata
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("mlflow.pyfunc", reason="needs the extra mlflow: make mlflow-test")

import cloudpickle
import mlflow
import yaml
from mlflow.models import Model
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import QuantileTransformer

import triegp
from mlflow_problems import (
    CASES,
    QUICK,
    WARNED,
    assert_same,
    numbers,
    table,
    two_targets,
    use_store,
)
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.mlflow import (
    get_default_conda_env,
    get_default_pip_requirements,
    load_model,
    log_model,
    save_model,
)
from triegp.mlflow.environments import PACKAGES
from triegp.mlflow.scoring import Scorer

pytestmark = WARNED
FILES = {
    "MLmodel",
    "conda.yaml",
    "input_example.json",
    "model.triegp",
    "python_env.yaml",
    "requirements.txt",
    "serving_input_example.json",
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, rows = CASES[request.param]
    return make(), rows(40, seed=1)[0]


@pytest.fixture(scope="module")
def small():
    return BinaryTreeGPRegressor(**QUICK).fit(*numbers())


@pytest.fixture
def store(tmp_path):
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    use_store(tmp_path)
    yield tmp_path
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


def test_round_trip_has_the_same_bits(case, tmp_path):
    model, X = case
    save_model(model, tmp_path / "model", input_example=X[:5])
    assert_same(load_model(tmp_path / "model"), model, X)
    assert_same(load_model(str(tmp_path / "model")), model, X)
    assert_same(triegp.load(tmp_path / "model" / "model.triegp"), model, X)
    raw = mlflow.pyfunc.load_model(str(tmp_path / "model")).get_raw_model()
    assert_same(raw, model, X)


def test_the_folder_is_what_mlflow_expects(case, tmp_path):
    model, X = case
    save_model(model, tmp_path / "model", input_example=X[:5], metadata={"team": "a"})
    assert {path.name for path in (tmp_path / "model").rglob("*")} == FILES
    found = yaml.safe_load((tmp_path / "model" / "MLmodel").read_text())
    pyfunc, own = found["flavors"]["python_function"], found["flavors"]["triegp"]
    assert (pyfunc["loader_module"], pyfunc["data"]) == ("triegp.mlflow", "model.triegp")
    assert pyfunc["env"] == {"conda": "conda.yaml", "virtualenv": "python_env.yaml"}
    assert own["estimator"] == type(model).__name__
    assert own["triegp_version"] == triegp.__version__
    assert found["metadata"] == {"team": "a"}
    assert found["model_size_bytes"] > (tmp_path / "model" / "model.triegp").stat().st_size
    example = Model.load(str(tmp_path / "model")).load_input_example(str(tmp_path / "model"))
    assert np.shape(example) == np.shape(X[:5])


def test_nothing_is_pickled(case, tmp_path, monkeypatch):
    model, X = case
    for rows in (X[:5], X):  # numba pickles what it compiles
        Scorer(model).predict(rows)

    def refuse(*_, **__):
        raise AssertionError("pickled")

    for module in (pickle, cloudpickle):
        for name in ("dump", "dumps", "load", "loads"):
            monkeypatch.setattr(module, name, refuse)
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    save_model(model, tmp_path / "model", input_example=X[:5])
    load_model(tmp_path / "model")
    mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X)
    monkeypatch.undo()
    for path in (tmp_path / "model").iterdir():
        if path.name == "model.triegp":
            triegp.load(path)  # JSON and safetensors, or ModelFileError
        else:
            path.read_text(encoding="utf-8")


def test_a_fresh_process_loads_it(tmp_path):
    make, rows = CASES["mixture"]
    model, X = make(), rows(40, seed=1)[0]
    save_model(model, tmp_path / "model", input_example=X[:5])
    X.to_parquet(tmp_path / "rows.parquet")
    code = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow.pyfunc, numpy, pandas
assert "triegp" not in sys.modules
X = pandas.read_parquet(sys.argv[1] + "/rows.parquet")
found = mlflow.pyfunc.load_model(sys.argv[1] + "/model").predict(X)
numpy.save(sys.argv[1] + "/found.npy", found.to_numpy())
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    expected = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected.to_numpy())


def test_training_data_are_stored_if_asked_for(small, tmp_path):
    save_model(small, tmp_path / "with", training_data=True)
    save_model(small, tmp_path / "without")
    X = numbers(20, seed=1)[0]
    assert_same(load_model(tmp_path / "with").refresh(), small, X)
    with pytest.raises(ValueError, match="refresh needs the training rows"):
        load_model(tmp_path / "without").refresh()
    sizes = [(tmp_path / name / "model.triegp").stat().st_size for name in ("with", "without")]
    assert sizes[0] > sizes[1]


def wrong_models():
    X, y = numbers()
    transformer = QuantileTransformer(n_quantiles=20, output_distribution="normal")
    transformed = BinaryTreeGPRegressor(**QUICK, target_transform=transformer).fit(X, y)
    return [
        (LinearRegression().fit(X, y), TypeError, "model must be a .* got LinearRegression"),
        ("model.triegp", TypeError, "got str"),
        (BinaryTreeGPRegressor, TypeError, "got ABCMeta"),
        (TrieGPRegressor(), NotFittedError, "not fitted yet"),
        (transformed, TypeError, "target_transform of type QuantileTransformer cannot be saved"),
    ]


def test_models_that_cannot_be_saved_raise_and_leave_nothing(store):
    for model, error, said in wrong_models():
        with pytest.raises(error, match=said):
            save_model(model, store / "model")
        with pytest.raises(error, match=said):
            log_model(model, "model")
        assert not (store / "model").exists()
    assert mlflow.search_logged_models(experiment_ids=["0"], output_format="list") == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"input_example": np.zeros((2, 7))}, ValueError, "7 features"),
        ({"signature": "double"}, TypeError, "signature must be a ModelSignature"),
        ({"targets": ["a", "b"]}, ValueError, "targets must be 1 distinct names"),
        ({"targets": "a"}, ValueError, "sequence of strings"),
        ({"code_paths": "a.py"}, TypeError, "[Ll]ist"),
        ({"conda_env": {}, "pip_requirements": []}, ValueError, "Only one of"),
    ],
)
def test_wrong_options_leave_the_folder_as_it_was(small, tmp_path, options, error, said):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with pytest.raises(error, match=said):
            save_model(small, tmp_path / name, **options)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_folder_that_is_not_empty_is_kept(small, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="path must be a new or an empty folder"):
        save_model(small, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_other_flavours_are_not_loaded(tmp_path):
    Model().add_flavor("other", data="x").save(str(tmp_path / "MLmodel"))
    with pytest.raises(ValueError, match=r"flavour triegp, got .* with other"):
        load_model(tmp_path)


def test_logged_and_registered(store, caplog):
    X, y = table()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    with mlflow.start_run() as run:
        info = log_model(
            model,
            "prices",
            input_example=X.head(5),
            registered_model_name="prices",
            metadata={"rows": 200},
            tags={"owner": "me"},
            params={"n_members": 3},
        )
    assert info.metadata == {"rows": 200}
    assert info.signature.inputs.input_names() == list(X.columns)
    logged = mlflow.get_logged_model(info.model_id)
    assert logged.tags["owner"] == "me"
    assert logged.params["n_members"] == "3"
    assert logged.source_run_id == run.info.run_id
    mlflow.MlflowClient().set_registered_model_alias("prices", "best", 1)
    for uri in (
        info.model_uri,
        "models:/prices/1",
        "models:/prices@best",
        f"runs:/{run.info.run_id}/prices",
    ):
        assert_same(load_model(uri), model, X)
    assert_same(load_model(info.model_uri, dst_path=store / "copy"), model, X)
    assert (store / "copy").is_dir()
    assert "serving input" not in caplog.text  # MLflow has served the example


def test_a_run_is_not_needed(store, small):
    info = log_model(small, name="alone")
    assert_same(load_model(info.model_uri), small, numbers(20, seed=1)[0])


def test_default_requirements_are_what_is_installed(small, tmp_path):
    save_model(small, tmp_path)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines)
    assert set(pins) == {"mlflow", "triegp", *PACKAGES}
    for name, pinned in pins.items():
        if name != "triegp":  # an editable install may have an older version
            assert importlib.metadata.version(name) == pinned
    assert pins["triegp"] == triegp.__version__
    conda = yaml.safe_load((tmp_path / "conda.yaml").read_text())
    assert conda["dependencies"][-1]["pip"] == lines
    assert lines[1:] == get_default_pip_requirements()
    assert get_default_conda_env()["dependencies"][-1]["pip"] == lines
    python = yaml.safe_load((tmp_path / "python_env.yaml").read_text())["python"]
    assert python == ".".join(map(str, sys.version_info[:3]))


def test_pinned_packages_are_those_that_triegp_needs():
    needed = importlib.metadata.requires("triegp")
    core = {line.split(">")[0] for line in needed if "extra ==" not in line}
    assert set(PACKAGES) == core | {"pandas"}


def test_models_on_a_device_require_the_engine(small, tmp_path):
    model = small._twin()
    model.engine = "cuda"
    save_model(model, tmp_path)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert f"triegp[cuda]=={triegp.__version__}" in lines


def test_environments_of_the_user(small, tmp_path):
    save_model(small, tmp_path / "extra", extra_pip_requirements=["six"])
    assert "six" in (tmp_path / "extra" / "requirements.txt").read_text().splitlines()
    (tmp_path / "limits.txt").write_text("six<9")
    own = ["triegp", f"-c {tmp_path}/limits.txt"]
    save_model(small, tmp_path / "own", pip_requirements=own)
    lines = (tmp_path / "own" / "requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == ["mlflow", "triegp", "-c constraints.txt"]
    assert (tmp_path / "own" / "constraints.txt").read_text() == "six<9"
    conda = {"name": "mine", "dependencies": ["python=3.11", {"pip": ["triegp", "mlflow"]}]}
    save_model(small, tmp_path / "conda", conda_env=conda)
    assert yaml.safe_load((tmp_path / "conda" / "conda.yaml").read_text()) == conda


@pytest.mark.parametrize("load", [load_model, lambda path: mlflow.pyfunc.load_model(str(path))])
def test_code_comes_along(small, tmp_path, load, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_features.py").write_text("NAMES = ['a']\n")
    save_model(small, tmp_path / "model", code_paths=[str(tmp_path / "my_features.py")])
    load(tmp_path / "model")
    assert str(tmp_path / "model" / "code") in sys.path


def test_dask_estimators_become_local(tmp_path):
    estimators = pytest.importorskip("triegp.dask", reason="needs the extra dask")
    X, y = numbers()
    fitted = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    model = estimators.DaskBinaryTreeGPRegressor(**QUICK)
    model._restore(fitted._state())
    save_model(model, tmp_path)
    assert_same(load_model(tmp_path), fitted, X[:20])


def test_serving_example_is_json(tmp_path):
    model, X = two_targets(), numbers(3, seed=1)[0]
    save_model(model, tmp_path, input_example=(X, {"coverage": 0.5}))
    found = json.loads((tmp_path / "serving_input_example.json").read_text())
    np.testing.assert_array_equal(found["inputs"], X)
    assert found["params"] == {"coverage": 0.5}
