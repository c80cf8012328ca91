"""Model files: the same bits after loading."""

import copy
import io
import pickle

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from model_files import (
    MODELS,
    MORE,
    NEW,
    WEIGHT,
    Y2,
    X,
    Y,
    assert_same,
    fit_named,
    small,
    through_file,
)
from triegp.files.container import read_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning"),
]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def plain():
    return MODELS["plain"]()


# The same bits


def test_a_loaded_model_says_the_same_to_the_last_bit(model, tmp_path):
    loaded = through_file(model, tmp_path / "m")
    assert_same(model, loaded)
    assert loaded.get_params() == model.get_params()
    assert loaded.stopped_early_ == model.stopped_early_
    assert repr(loaded) == repr(model)


def test_partial_fit_goes_on_after_loading(model, tmp_path):
    loaded = through_file(model, tmp_path / "m")
    rows = (X[:1] if model.ensembles_[0].members[0].posteriors[0].n_rows == 1 else MORE)[
        :, : model.n_features_in_
    ]
    y = Y2[: len(rows)] if model.target_mean_.size == 2 else Y[: len(rows)]
    y = y[:, None] if model.target_mean_.size == 1 and not model.one_dimensional_ else y
    weight = np.arange(1.0, len(rows) + 1)
    grown = copy.deepcopy(model).partial_fit(rows, y, weight, 0.1 * weight)
    assert_same(grown, loaded.partial_fit(rows, y, weight, 0.1 * weight))


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_file_saved_again_is_the_same_file(weight, tmp_path):
    model = small(mixture="softmax").fit(X, Y, weight)
    through_file(model, tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", ["both", "shared targets", "float32", "added to, weighted"])
def test_refresh_after_loading_with_training_data(name, tmp_path):
    model = MODELS[name]()
    loaded = through_file(model, tmp_path / "m", training_data=True)
    assert loaded.rows_.X.dtype == model.rows_.X.dtype
    assert_same(model, loaded)
    assert_same(model.refresh(), loaded.refresh())


def test_refresh_without_training_data_is_a_clear_error(plain, tmp_path):
    loaded = through_file(plain, tmp_path / "m")
    with pytest.raises(ValueError, match=r"refresh needs the training rows.*training_data=True"):
        loaded.refresh()


def test_training_data_that_was_not_kept_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match="keep_rows=True"):
        MODELS["no rows kept"]().save(tmp_path / "m", training_data=True)
    assert not list(tmp_path.iterdir())


def test_a_file_without_training_data_is_smaller(plain, tmp_path):
    plain.save(tmp_path / "a")
    plain.save(tmp_path / "b", training_data=True)
    size = {name: (tmp_path / name).stat().st_size for name in "ab"}
    assert size["b"] - size["a"] >= X.nbytes + Y.nbytes
    whole, without = (read_file(tmp_path / name)[1] for name in "ba")
    assert whole.keys() - without.keys() == {"stream.kept.X", "stream.kept.y"}


def test_feature_names_survive(tmp_path):
    model = fit_named()
    loaded = through_file(model, tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    frame = pd.DataFrame(NEW, columns=["a", "b", "c"])
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(loaded.predict(frame[["b", "a", "c"]]), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a"]])
    assert not hasattr(through_file(small().fit(X, Y), tmp_path / "n"), "feature_names_in_")


@pytest.mark.parametrize(
    "options",
    [
        {"random_state": np.random.RandomState(0)},
        {"precision": np.array([4, 5, 6])},
        {"precision": (4, 5, 6)},
        {"precision": [np.int64(4), 5, 6]},
        {"random_state": np.int64(3), "n_members": np.int64(2), "noise": np.float64(1e-3)},
    ],
)
def test_parameters_of_any_kind_are_stored(options, tmp_path):
    model = small(**options).fit(X, Y)
    loaded = through_file(model, tmp_path / "m")
    assert_same(model, loaded)
    if "precision" in options:
        assert list(loaded.precision) == [4, 5, 6]
    expected = 3 if options.get("random_state") == 3 else 0 if "precision" in options else None
    assert loaded.random_state == expected


def test_what_a_fitted_model_does_is_stored_not_what_it_was_set_to_since(tmp_path):
    model = small(outside="unrelated").fit(X, Y).set_params(outside="clip")
    assert_same(model, through_file(model, tmp_path / "m"))


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        small().save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("name", ["plain", "both", "shared targets"])
def test_pickles(module, name):
    model = MODELS[name]()
    assert_same(model, pickle.loads(module.dumps(model)))


def test_other_copies(plain):
    assert_same(plain, copy.deepcopy(plain))
    file = io.BytesIO()
    joblib.dump(plain, file)
    file.seek(0)
    assert_same(plain, joblib.load(file))
    fresh = clone(plain)
    assert not hasattr(fresh, "ensembles_")
    assert_same(plain, fresh.fit(X, Y))
