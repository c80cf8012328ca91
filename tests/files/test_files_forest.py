"""Files of trees and a smooth part that were edited are refused with a sentence."""

import copy

import numpy as np
import pytest

import triegp
from model_files import refused, write_parts
from tolerances import FITS
from triegp import TrieGPRegressor
from triegp.files import smooth
from triegp.files.state import pack_model


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    X[:, 1] **= 4  # by rank, too
    model = TrieGPRegressor(n_trees=3, max_iter=3, smooth=True, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triegp.additive.exact.EXACT_ROWS", 50)  # a smooth part as of many rows
        model.fit(X, X @ [1.0, 2.0] + 0.1 * rng.standard_normal(60))
    assert model.forests_[0].model.coordinates.ranked.size
    return packed(model)


def packed(model):
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
    "factors of the tails": ("forest.0.stage.0.tails", lambda a: a * [[1.0], [1e200], [1.0]]),
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


def at(place, value):
    def edit(array):
        array[place] = value
        return array

    return edit


# What the smooth part needs
SMOOTH_EDITS = {
    "inputs not finite": ("smooth_inputs", at((0, 0), np.nan)),
    "inputs of fewer rows": ("smooth_inputs", lambda a: a[:-1]),
    "inputs of fewer coordinates": ("smooth_inputs", lambda a: a[:, :1]),
    "inputs in one line": ("smooth_inputs", lambda a: a.ravel()),
    "inputs of another type": ("smooth_inputs", lambda a: a.astype(np.float32)),
    "inputs too large": ("smooth_inputs", at((0, 0), 1e200)),
    "lengthscale below 0": ("lengthscale", lambda a: -a),
    "lengthscale of 0": ("lengthscale", at(0, 0.0)),
    "lengthscale not finite": ("lengthscale", at(0, np.nan)),
    "lengthscale infinite": ("lengthscale", at(0, np.inf)),
    "lengthscale too large": ("lengthscale", at(0, 1e300)),
    "lengthscale too small": ("lengthscale", at(0, 1e-300)),
    "too few lengthscales": ("lengthscale", lambda a: a[:-1]),
    "lengthscale a matrix": ("lengthscale", lambda a: a[None]),
    "order that repeats": ("order", np.zeros_like),
    "order out of range": ("order", at(0, 60)),
    "order below 0": ("order", at(0, -1)),
    "order far out of range": ("order", at(0, 2**62)),
    "order of another type": ("order", lambda a: a.astype(np.float64)),
    "order too short": ("order", lambda a: a[:-1]),
    "inducing out of range": ("inducing", at(0, 60)),
    "inducing below 0": ("inducing", at(0, -1)),
    "inducing that repeat": ("inducing", lambda a: np.append(a[:-1], a[0])),
    "inducing of another type": ("inducing", lambda a: a.astype(np.int32)),
    "inducing a matrix": ("inducing", lambda a: a[None]),
    "features out of range": ("features", at(0, 2)),
    "features below 0": ("features", at(0, -1)),
    "features that repeat": ("features", at(0, 1)),
    "features of another type": ("features", lambda a: a.astype(np.int32)),
    "too few features": ("features", lambda a: a[:1]),
    "no features": ("features", lambda a: a[:0]),
    "ranked out of range": ("ranked", at(0, 7)),
    "no ranked": ("ranked", lambda a: a[:0]),
    "center not finite": ("center", at(0, np.inf)),
    "too few centers": ("center", lambda a: a[:-1]),
    "spread of 0": ("spread", at(0, 0.0)),
    "spread below 0": ("spread", lambda a: -a),
    "spread not finite": ("spread", at(0, np.nan)),
    "knots that fall": ("knots", lambda a: a[:, ::-1].copy()),
    "knots not finite": ("knots", at((0, 3), np.nan)),
    "too few knots": ("knots", lambda a: a[:, :9]),
    "ranks that fall": ("ranks", lambda a: a[:, ::-1].copy()),
    "ranks of other features": ("ranks", lambda a: np.repeat(a, 2, axis=0)),
    "ranks too large": ("ranks", at((0, 0), -1e300)),
    "center far from the box": ("center", at(0, 1e300)),
}


@pytest.mark.parametrize("edit", SMOOTH_EDITS.values(), ids=SMOOTH_EDITS)
def test_arrays_of_the_smooth_part_that_do_not_fit(parts, tmp_path, edit):
    header, arrays = parts
    name, change = f"forest.0.{edit[0]}", edit[1]
    edited = arrays | {name: change(arrays[name].copy())}
    refused(write_parts(tmp_path / "m", header, edited), "does not hold a complete model")


def test_arrays_of_the_smooth_part_that_are_missing(parts, tmp_path):
    header, arrays = parts
    for name in {edit[0] for edit in SMOOTH_EDITS.values()}:
        rest = {key: value for key, value in arrays.items() if key != f"forest.0.{name}"}
        refused(write_parts(tmp_path / "m", header, rest), "does not hold a complete model")


NONSENSE = {
    "smooth": [3, "yes", [], {}],
    "factor": [0.0, -1.0, None, "x", float("nan"), float("inf"), 1e300],
    "n_pending": [-1, None, 1.5, "x", True],
    "n_clustered": [-1, 0, 61, None, 1.5, True],
    "goes_on": [None, 2, "x"],
    "variance": ["samples", None, 3],
    "seed": [-1, None, 1.5],
    "residual": [None, "x"],
    "apart": [None, "x"],
}
SMOOTH_NONSENSE = {
    "kernel": ["matern", "rational", None, 3, ["rbf"]],
    "scale": [0.0, -1.0, None, "x", float("nan"), float("inf"), 1e300, 1e-300],
    "gain": [0.0, -1.0, None, "x", float("nan"), float("inf"), 1e300, 1e-300],
    "dense": [None, "x", 2],
    "n_neighbours": [-1, None, 1.5, "x", True],
    "single": [None, "x", 2],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in NONSENSE.items() for value in values]
)
def test_a_forest_that_says_nonsense(parts, tmp_path, key, value):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    assert key in header["forests"][0]
    header["forests"][0][key] = value
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in SMOOTH_NONSENSE.items() for value in values]
)
def test_a_smooth_part_that_says_nonsense(parts, tmp_path, key, value):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    assert key in header["forests"][0]["smooth"]
    header["forests"][0]["smooth"][key] = value
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


def test_a_fact_that_is_missing(parts, tmp_path):
    for where in ("forest", "smooth"):
        facts = parts[0]["forests"][0] if where == "forest" else parts[0]["forests"][0]["smooth"]
        for key in set(facts) - {"stages", "unrelated"}:
            header = copy.deepcopy(parts[0])
            own = header["forests"][0]
            del (own if where == "forest" else own["smooth"])[key]
            refused(write_parts(tmp_path / "m", header, parts[1]), "does not hold a complete model")


@pytest.mark.parametrize("n_neighbours", [513, 10**6, 10**18])
def test_too_many_neighbours_are_refused(parts, tmp_path, n_neighbours):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["forests"][0]["smooth"]["n_neighbours"] = n_neighbours
    refused(write_parts(tmp_path / "m", header, arrays), "at most 512 neighbours")


def test_too_many_inducing_rows_are_refused(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(smooth, "MOST_INDUCING", parts[1]["forest.0.inducing"].size - 1)
    refused(write_parts(tmp_path / "m", *parts), "inducing rows, got")


@pytest.mark.parametrize("n_neighbours", [0, 3, 128])
def test_any_ordinary_number_of_neighbours_can_be_read(parts, tmp_path, n_neighbours):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["forests"][0]["smooth"]["n_neighbours"] = n_neighbours
    loaded = triegp.load(write_parts(tmp_path / "m", header, arrays))
    assert np.isfinite(loaded.predict([[0.5, 0.5]], return_std=True)).all()


def test_no_inducing_rows_can_be_read(parts, tmp_path):
    header, arrays = parts
    edited = arrays | {"forest.0.inducing": np.empty(0, np.int64)}
    loaded = triegp.load(write_parts(tmp_path / "m", header, edited))
    assert np.isfinite(loaded.predict([[0.5, 0.5]], return_std=True)).all()


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
    with pytest.warns(UserWarning, match="over 1,000 times as far"):
        model.partial_fit(X[:1], [1e140])
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(triegp.load(tmp_path / "m").predict(X), model.predict(X))


# Several targets in one forest
SHARED_EDITS = {
    "alpha of one target": ("alpha", lambda a: a[:, 0]),
    "alpha of more targets": ("alpha", lambda a: np.hstack([a, a])),
    "targets of one": ("y", lambda a: a[:, :1]),
    "targets of more": ("y", lambda a: np.hstack([a, a])),
    "targets in one line": ("y", lambda a: a[:, 0]),
    "targets not finite": ("y", at((0, 1), np.nan)),
    "targets too large": ("y", at((0, 1), 1e200)),
    "no targets": ("y", lambda a: a[:, :0]),
    "targets in three dimensions": ("y", lambda a: a[None]),
    "scatter of one target": ("scatter", lambda a: a[:1]),
    "scatter below 0": ("scatter", at((1, 0), -1.0)),
    "noise of each target": ("noise", lambda a: np.stack([a, a], axis=1)),
    "one alpha that overflows": ("alpha", at((3, 1), 1.7e308)),
}


@pytest.fixture(scope="module")
def shared_parts():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.random((30, 2)), 2, axis=0)
    Y = np.sin(5 * X) + 0.1 * rng.standard_normal((60, 2))
    model = TrieGPRegressor(n_trees=2, max_iter=2, random_state=0, multi_target="shared")
    return packed(model.fit(X, Y))


def test_the_parts_of_several_targets_make_a_model(shared_parts, tmp_path):
    found = triegp.load(write_parts(tmp_path / "m", *shared_parts))
    assert found.predict([[0.5, 0.5]]).shape == (1, 2)


@pytest.mark.parametrize("edit", SHARED_EDITS.values(), ids=SHARED_EDITS)
def test_arrays_of_several_targets_that_do_not_fit(shared_parts, tmp_path, edit):
    header, arrays = shared_parts
    name, change = f"forest.0.{edit[0]}", edit[1]
    edited = arrays | {name: np.ascontiguousarray(change(arrays[name].copy()))}
    refused(write_parts(tmp_path / "m", header, edited), "does not hold a complete model")


def test_neighbours_of_single_rows_are_made_anew_and_solved_again(monkeypatch, tmp_path):
    """Up to format version 7 a smooth part had a seed, and neighbours of each row."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    rng = np.random.default_rng(0)
    X = rng.random((90, 2))
    model = TrieGPRegressor(n_trees=3, max_iter=3, smooth=True, random_state=0)
    model.fit(X, X @ [1.0, 2.0] + 0.1 * rng.standard_normal(90))
    header, arrays = packed(model)
    facts = header["forests"][0]["smooth"]
    facts["seed"] = header["forests"][0]["seed"]
    del facts["single"], arrays["forest.0.starts"]
    arrays["forest.0.alpha"] = 0.9 * arrays["forest.0.alpha"]
    path = write_parts(tmp_path / "m", header, arrays)
    loaded, new = triegp.load(path), rng.random((20, 2))
    np.testing.assert_allclose(loaded.predict(new), model.predict(new), **FITS)
    facts["seed"] = -1
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")
