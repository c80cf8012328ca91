"""Model files of mixtures that hold cells, edited: a clear error."""

import copy

import numpy as np
import pytest

import triegp
import triegp.estimators.pieces as pieces_module
from model_files import refused, write_parts
from triegp import BinaryTreeGPRegressor
from triegp.files.state import pack_model


@pytest.fixture(scope="module")
def parts():
    """Header and arrays of a model of 1,500 rows in at most 200 cells."""
    rng = np.random.default_rng(0)
    X = rng.random((1_500, 2))
    y = np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(1_500)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_000), ("HELD_ROWS", 600)):
            patch.setattr(pieces_module, name, value)
        quick = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}
        model = BinaryTreeGPRegressor(max_cells=200, **quick).fit(X, y)
    named = {"estimator": type(model).__name__, "parameters": model.get_params()}
    header, arrays = pack_model(model._state(), model._format, False)
    return named | header, arrays


def test_the_parts_unchanged_are_a_model(parts, tmp_path):
    loaded = triegp.load(write_parts(tmp_path / "m", *parts))
    assert loaded.ensembles_[0].n_summed > 0
    assert np.isfinite(loaded.predict([[0.5, 0.5]])).all()


ARRAYS = {
    "keys out of order": ("ensemble.0.0.keys", lambda a: a[::-1].copy()),
    "equal keys": ("ensemble.0.0.keys", lambda a: np.repeat(a[:1], len(a), axis=0)),
    "bits behind the prefix": ("ensemble.0.0.keys", lambda a: a | np.uint64(1)),
    "fewer keys": ("ensemble.0.0.keys", lambda a: a[:-1]),
    "keys of two words": ("ensemble.0.0.keys", lambda a: np.repeat(a, 2, axis=1)),
    "no weight": ("ensemble.0.0.row_weight", lambda a: np.where(np.arange(a.size) == 1, 0.0, a)),
    "tiny weight": ("ensemble.0.0.row_weight", lambda a: a * 1e-300),
    "weight NaN": ("ensemble.0.0.row_weight", lambda a: a * np.nan),
    "negative scatter": ("ensemble.0.0.scatter", lambda a: -1.0 - a),
    "target infinite": ("ensemble.0.0.targets", lambda a: a + np.inf),
    "noise 0": ("ensemble.0.0.noise.0", lambda a: 0.0 * a),
    "bits twice": ("ensemble.0.0.bits", lambda a: np.zeros_like(a)),
    "rising variance": ("ensemble.0.0.remaining", lambda a: a[::-1].copy()),
    "mixture weights": ("ensemble.0.weight", lambda a: 2.0 * a),
    "held features": ("ensemble.0.held.X", lambda a: a[:, :1].copy()),
    "held NaN": ("ensemble.0.held.X", lambda a: a * np.nan),
    "held targets": ("ensemble.0.held.targets", lambda a: a[:, :-1].copy()),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_edited_arrays_are_refused(parts, tmp_path, name):
    header, arrays = parts
    place, change = ARRAYS[name]
    assert place in arrays
    refused(write_parts(tmp_path / "m", header, arrays | {place: change(arrays[place])}))


def test_cells_have_no_noise_of_their_own(parts, tmp_path):
    header, arrays = parts
    name = "ensemble.0.0.noise.0"
    each = np.repeat(arrays[name], len(arrays["ensemble.0.0.keys"]))
    refused(write_parts(tmp_path / "m", header, arrays | {name: each}), "must be one number")


@pytest.mark.parametrize(
    ("place", "value"),
    [("n_summed", -1), ("n_summed", 1.5), ("n_levels", 0), ("n_levels", 1), ("n_levels", 10**9)],
)
def test_edited_numbers_are_refused(parts, tmp_path, place, value):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    part = header["ensembles"][0]
    part = part.get("ensemble", part.get("base", part))
    owner = part if place in part else part["members"][0]
    assert place in owner
    owner[place] = value
    refused(write_parts(tmp_path / "m", header, arrays))
