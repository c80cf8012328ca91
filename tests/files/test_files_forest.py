"""Forest files whose numbers are finite but too large to predict with are refused."""

import numpy as np
import pytest

import triegp
from model_files import refused, write_parts
from triegp import TrieGPRegressor
from triegp.files.state import pack_model


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    model = TrieGPRegressor(n_trees=3, max_iter=3, random_state=0)
    model.fit(X, X @ [1.0, 2.0] + 0.1 * rng.standard_normal(60))
    named = {"estimator": type(model).__name__, "parameters": model.get_params()}
    header, arrays = pack_model(model._state(), model._format, False)
    return named | header, arrays


def test_the_parts_make_a_model(parts, tmp_path):
    assert triegp.load(write_parts(tmp_path / "m", *parts)).predict([[0.5, 0.5]]).shape == (1,)


def test_memory_that_is_never_written_is_not_checked(parts, tmp_path, monkeypatch):
    real = np.empty

    def full_of_nan(shape, dtype=float, **options):
        out = real(shape, dtype, **options)
        if out.dtype == np.float64:
            out.fill(np.nan)
        return out

    path = write_parts(tmp_path / "m", *parts)
    monkeypatch.setattr(np, "empty", full_of_nan)
    assert np.isfinite(triegp.load(path).predict([[0.5, 0.5]])).all()


EDITS = {
    "alpha": ("forest.0.alpha", lambda a: a * 1e306),
    "alpha in the units of y": ("forest.0.alpha", lambda a: a * 1e200, 1e150),
    "one alpha": ("forest.0.alpha", lambda a: np.where(np.arange(a.size) == 0, 1.7e308, a)),
    "targets": ("forest.0.y", lambda a: a * 1e200),
    "levels": ("forest.0.1.remaining", lambda a: a * 1e300),
    "factors of the tails": ("forest.0.stage.0.tails", lambda a: a * [[1.0], [1e200]]),
    "scale": ("target_scale", lambda a: a * 0 + 1.7e308),
    "mean": ("target_mean", lambda a: a * 0 + 1.7e308),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_arrays_that_overflow(parts, tmp_path, edit):
    header, arrays = parts
    name, change, *scale = edit
    edited = arrays | {name: change(arrays[name].copy())}
    if scale:
        edited["target_scale"] = np.array(scale)
    refused(write_parts(tmp_path / "m", header, edited), "does not hold a complete model")


@pytest.mark.parametrize("noise", [1e300, 1.7e308])
def test_noise_that_overflows(parts, tmp_path, noise):
    header, arrays = parts
    header = header | {"forests": [header["forests"][0] | {"noise": noise}]}
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


@pytest.mark.parametrize("size", [1e-300, 1e307])
def test_models_of_extreme_targets_are_read(tmp_path, size):
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    model = TrieGPRegressor(n_trees=3, max_iter=3, random_state=0)
    model.fit(X, y / np.abs(y).max() * size).save(tmp_path / "m")
    np.testing.assert_array_equal(triegp.load(tmp_path / "m").predict(X), model.predict(X))


def test_models_with_distant_added_targets_are_read(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    model = TrieGPRegressor(n_trees=3, max_iter=3, random_state=0).fit(X, X[:, 0])
    model.partial_fit(X[:1], [1e140]).save(tmp_path / "m")
    np.testing.assert_array_equal(triegp.load(tmp_path / "m").predict(X), model.predict(X))
