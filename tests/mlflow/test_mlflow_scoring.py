"""Predictions through MLflow: columns against the estimator, parameters, signatures."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mlflow.pyfunc", reason="needs the extra mlflow: make mlflow-test")

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature, infer_signature
from mlflow.models.utils import _enforce_schema
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

from mlflow_problems import CASES, QUICK, WARNED, mixture, numbers, table
from tolerances import CHAINED, ROUNDING, both
from triegp import BinaryTreeGPRegressor
from triegp.mlflow import save_model, scoring
from triegp.mlflow.scoring import Scorer, load_scorer
from triegp.mlflow.signatures import infer_inputs

pytestmark = WARNED
COLUMNS = ["mean", "std", "low", "high"]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, rows = CASES[request.param]
    return make(), rows(40, seed=1)[0]


@pytest.fixture(scope="module")
def model():
    return mixture()


@pytest.fixture(scope="module")
def scorer(model, tmp_path_factory):
    """A model of a table with all kinds of columns, with the signature of its first rows."""
    return saved(model, tmp_path_factory.mktemp("table"), input_example=table()[0].head(20))


def saved(model, folder, **options):
    """The scorer that MLflow loads, after a model was saved."""
    save_model(model, folder / "model", **options)
    return mlflow.pyfunc.load_model(str(folder / "model"))


def by_estimator(model, X, coverage=0.9, quantiles=(0.5,), latent=False):
    """Columns by the other methods of the estimator, {name: (m, n_targets)}."""
    mean, std = model.predict(X, return_std=True, latent=latent)
    ends = model.predict_interval(X, coverage, latent=latent)
    found = {"mean": mean, "std": std, "low": ends[:, 0], "high": ends[:, 1]}
    for level in quantiles:
        found[f"q{level}"] = model.predict_quantiles(X, level, latent=latent)[:, 0]
    return {name: values.reshape(len(X), -1) for name, values in found.items()}


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("coverage", [0.9, 0.5])
def test_columns_are_those_of_the_estimator(case, latent, coverage, tmp_path):
    model, X = case
    loaded = saved(model, tmp_path, input_example=X[:5])
    params = {"coverage": coverage, "quantiles": [0.5], "latent": latent}
    found = loaded.predict(X, params=params)
    expected = by_estimator(model, X, coverage, latent=latent)
    n_targets = expected["mean"].shape[1]
    names = [f"y{t}_" for t in range(n_targets)] if n_targets > 1 else [""]
    assert list(found) == [name + column for name in names for column in [*COLUMNS, "q0.5"]]
    for t, name in enumerate(names):
        for column, values in expected.items():
            np.testing.assert_allclose(found[name + column], values[:, t], **both(CHAINED))


@pytest.mark.parametrize("output", [["mean"], ["std", "mean"], ["high", "mean", "low"], ["std"]])
def test_columns_that_are_asked_for_in_their_order(case, output, tmp_path):
    model, X = case
    loaded = saved(model, tmp_path, input_example=X[:5])
    found, whole = loaded.predict(X, params={"output": output}), loaded.predict(X)
    n_targets = int(model.target_mean_.size)
    assert found.shape == (len(X), n_targets * len(output))
    for name in found:
        np.testing.assert_allclose(found[name], whole[name], **both(CHAINED))
    assert [name.split("_")[-1] for name in found] == output * n_targets


def test_quantiles_alone(scorer):
    X = table(30, seed=1)[0]
    found = scorer.predict(X, params={"output": [], "quantiles": [0.05, 0.95]})
    assert list(found) == ["q0.05", "q0.95"]
    ends = scorer.predict(X)[["low", "high"]]
    np.testing.assert_allclose(found, ends, **both(CHAINED))


def test_the_same_bits_as_before_it_was_saved(case, tmp_path):
    model, X = case
    found = saved(model, tmp_path, input_example=X[:5]).predict(X)
    pd.testing.assert_frame_equal(found, Scorer(model).predict(X), check_exact=True)


def test_blocks_do_not_matter(case, monkeypatch):
    model, X = case
    whole = Scorer(model).predict(X)
    monkeypatch.setattr(scoring, "BLOCK_ROWS", 7)
    pd.testing.assert_frame_equal(Scorer(model).predict(X), whole, **both(ROUNDING))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"coverage": 1.0}, "coverage must lie strictly between 0 and 1, got 1.0"),
        ({"coverage": 0.0}, "coverage"),
        ({"output": ["median"]}, "output must be distinct columns of mean, std, low, high"),
        ({"output": ["mean", "mean"]}, "distinct"),
        ({"output": []}, "must not both be empty"),
        ({"quantiles": [1.5]}, "quantiles must lie strictly between 0 and 1"),
        ({"quantiles": [0.5, 0.5]}, "quantiles must be distinct"),
    ],
)
def test_wrong_values_of_params_raise(scorer, params, said):
    with pytest.raises(ValueError, match=said):
        scorer.predict(table(5)[0], params=params)


@pytest.mark.parametrize(
    "params", [{"coverage": "wide"}, {"output": "mean"}, {"latent": 3}, {"quantiles": ["a"]}]
)
def test_params_of_a_wrong_type_raise(scorer, params):
    with pytest.raises(MlflowException, match=next(iter(params))):
        scorer.predict(table(5)[0], params=params)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"cover": 0.5}, "params must be of output, coverage, quantiles, latent, got cover"),
        ({"output": "mean"}, "output must be a list"),
        ({"quantiles": 0.5}, "quantiles must be a list"),
        ({"latent": "yes"}, "latent must be True or False"),
    ],
)
def test_params_are_checked_without_mlflow_too(model, params, said):
    with pytest.raises(ValueError, match=said):
        Scorer(model).predict(table(5)[0], params)


def test_names_of_targets(tmp_path):
    make, rows = CASES["two targets"]
    model, X = make(), rows(10, seed=1)[0]
    loaded = saved(model, tmp_path, targets=["price", "volume"], input_example=X[:2])
    found = loaded.predict(X, params={"output": ["mean", "std"]})
    assert list(found) == ["price_mean", "price_std", "volume_mean", "volume_std"]
    np.testing.assert_array_equal(found[["price_mean", "volume_mean"]], model.predict(X, True)[0])
    outputs = loaded.metadata.get_output_schema().input_names()
    assert outputs == [f"{name}_{column}" for name in ("price", "volume") for column in COLUMNS]


def test_a_single_target_may_have_a_name(model, tmp_path):
    found = saved(model, tmp_path, targets=["price"]).predict(table(5)[0])
    assert list(found) == [f"price_{name}" for name in COLUMNS]


def test_unknown_configuration_raises(model, tmp_path):
    save_model(model, tmp_path / "model")
    with pytest.raises(ValueError, match="model_config must be targets alone, got batch"):
        load_scorer(tmp_path / "model" / "model.triegp", {"batch": 3})


def test_the_index_is_kept_and_there_may_be_no_rows(scorer):
    X = table(12, seed=1)[0].set_index(np.arange(12) * 3)
    pd.testing.assert_index_equal(scorer.predict(X).index, X.index)
    none = scorer.predict(X.iloc[:0])
    assert none.shape == (0, 4)
    assert list(none) == COLUMNS
    assert set(none.dtypes) == {np.dtype("float64")}


# Signatures


def test_columns_are_found_by_name_and_others_are_ignored(scorer):
    X = table(12, seed=1)[0]
    other = X[X.columns[::-1]].assign(note="new")
    pd.testing.assert_frame_equal(scorer.predict(other), scorer.predict(X), check_exact=True)


@pytest.mark.parametrize("name", ["a", "gaps", "town", "kind", "size", "old", "when"])
def test_a_column_that_is_missing_raises(scorer, name):
    with pytest.raises(MlflowException, match=f"missing inputs.*{name}"):
        scorer.predict(table(5)[0].drop(columns=name))


@pytest.mark.parametrize(
    ("name", "value"), [("a", "high"), ("size", 0.5), ("old", 2), ("town", 3), ("when", 5)]
)
def test_a_column_of_another_type_raises(scorer, name, value):
    with pytest.raises(MlflowException, match=rf"(?s){name}|dtype"):
        scorer.predict(table(5)[0].assign(**{name: value}))


def test_categories_strings_and_gaps_pass(scorer, model):
    X = table(40, seed=1)[0]
    expected = Scorer(model).predict(X.astype({"kind": "category"}))
    assert X.isna().any()[["gaps", "town", "kind"]].all()
    for town in ("object", "string"):
        for kind in ("object", "string"):
            rows = X.astype({"town": town, "kind": kind})
            pd.testing.assert_frame_equal(scorer.predict(rows), expected, check_exact=True)


def test_categorical_dtypes_pass_if_the_example_has_them(model, tmp_path):
    X = table(40, seed=1)[0].astype({"kind": "category"}).set_index(np.arange(40) * 3)
    with pytest.warns(UserWarning, match=r"no type for columns of input_example, 'kind' \(cat"):
        loaded = saved(model, tmp_path, input_example=X.head(9))
    assert loaded.metadata.get_input_schema() is None
    expected = Scorer(model).predict(X)
    for rows in (X, X.astype({"kind": "object"}), X[X.columns[::-1]]):
        pd.testing.assert_frame_equal(loaded.predict(rows), expected, check_exact=True)
    with pytest.raises(ValueError, match="now missing: 'kind'"):
        loaded.predict(X.drop(columns="kind"))


def test_unseen_categories_and_new_gaps_pass(scorer, model):
    X = table(10, seed=1)[0]
    X["town"], X["kind"] = "rome", "z"
    X.loc[3, "a"] = np.nan
    found = scorer.predict(X)
    pd.testing.assert_frame_equal(found, Scorer(model).predict(X), check_exact=True)
    assert np.isfinite(found.to_numpy()).all()


def test_types_of_columns():
    X = pd.DataFrame(
        {
            "half": np.zeros(3, np.float16),
            "single": np.zeros(3, np.float32),
            "byte": np.zeros(3, np.uint8),
            "short": np.zeros(3, np.int16),
            "word": np.zeros(3, np.uint32),
            "text": ["a", None, "b"],
            "time": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
        }
    )
    found = [spec.type.name for spec in infer_inputs(X)]
    assert found == ["float", "float", "integer", "integer", "long", "string", "datetime"]
    assert all(spec.required for spec in infer_inputs(X))
    assert len(_enforce_schema(X, infer_inputs(X))) == 3  # MLflow lets them pass


@pytest.mark.parametrize(
    "column",
    [
        pd.date_range("2024", periods=60, freq="h", tz="Europe/Berlin"),
        pd.Categorical(["low", "high"] * 30, ["low", "high"], ordered=True),
        pd.Categorical(np.arange(60) % 3),
        pd.array([None, *range(59)], dtype="Int64"),
        np.arange(60, dtype=np.uint64),
        pd.to_timedelta(np.arange(60), "min"),
    ],
)
def test_columns_that_mlflow_has_no_type_for(column, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"plain": rng.random(60), "other": column})
    model = BinaryTreeGPRegressor(**QUICK).fit(X, rng.random(60))
    with pytest.warns(UserWarning, match="no type for columns of input_example, 'other'"):
        assert infer_inputs(X) is None
    loaded = saved(model, tmp_path)
    pd.testing.assert_frame_equal(loaded.predict(X), Scorer(model).predict(X), check_exact=True)


def test_arrays_frames_and_lists_of_numbers(tmp_path):
    X, y = numbers()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    expected = Scorer(model).predict(X[:9])
    with_example = saved(model, tmp_path / "example", input_example=X[:3])
    pd.testing.assert_frame_equal(with_example.predict(X[:9]), expected, check_exact=True)
    pd.testing.assert_frame_equal(
        with_example.predict(pd.DataFrame(X[:9])), expected, check_exact=True
    )
    with pytest.raises(MlflowException, match="shape"):
        with_example.predict(X[:9, :2])
    without = saved(model, tmp_path / "none")
    assert without.metadata.get_input_schema() is None
    for rows in (X[:9], X[:9].tolist(), pd.DataFrame(X[:9])):
        pd.testing.assert_frame_equal(without.predict(rows), expected, check_exact=True)


def test_params_work_without_an_example(model, tmp_path):
    loaded, X = saved(model, tmp_path), table(9, seed=1)[0]
    found = loaded.predict(X, params={"coverage": 0.5})
    np.testing.assert_allclose(found["low"], by_estimator(model, X, 0.5)["low"][:, 0], rtol=CHAINED)
    columns = {name: X[name].to_numpy() for name in X}
    pd.testing.assert_frame_equal(loaded.predict(columns), loaded.predict(X), check_exact=True)


def test_params_of_the_example_are_the_defaults(model, tmp_path):
    X = table(9, seed=1)[0]
    params = {"coverage": 0.5, "output": ["low", "high"]}
    loaded = saved(model, tmp_path, input_example=(X.head(3), params))
    found, expected = loaded.predict(X), by_estimator(model, X, 0.5)
    assert list(found) == ["low", "high"] == loaded.metadata.get_output_schema().input_names()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name][:, 0], rtol=CHAINED)
    assert list(loaded.predict(X, params={"output": ["mean"]})) == ["mean"]


def test_a_signature_of_the_user_keeps_its_inputs(model, tmp_path):
    X = table(9, seed=1)[0].astype({"size": "float64"})
    given = infer_signature(X, model.predict(X))
    loaded = saved(model, tmp_path, signature=given)
    found = loaded.metadata.signature
    assert found.inputs == given.inputs
    assert found.outputs == Schema([ColSpec("double", name) for name in COLUMNS])
    assert [spec.name for spec in found.params] == ["output", "coverage", "quantiles", "latent"]
    assert list(loaded.predict(X)) == COLUMNS


def test_params_of_a_signature_of_the_user(model, tmp_path):
    X = table(9, seed=1)[0]
    params = ParamSchema([ParamSpec("coverage", "double", 0.5)])
    loaded = saved(model, tmp_path, signature=ModelSignature(params=params))
    found, expected = loaded.predict(X), by_estimator(model, X, 0.5)
    np.testing.assert_allclose(found["high"], expected["high"][:, 0], rtol=CHAINED)
    wrong = ModelSignature(params=ParamSchema([ParamSpec("cover", "double", 0.5)]))
    with pytest.raises(ValueError, match="got cover"):
        save_model(model, tmp_path / "wrong", signature=wrong)


def test_no_signature_at_all(model, tmp_path):
    loaded = saved(model, tmp_path, signature=False, input_example=table(3)[0])
    assert loaded.metadata.signature is None
    assert list(loaded.predict(table(4)[0])) == COLUMNS
