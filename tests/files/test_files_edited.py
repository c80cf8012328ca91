"""Model files with a fitting digest whose content does not fit together: a clear error.

Every fact and every array of some models is edited in ways that never fit (`test_every_...`); the
tables below are about values that fit by type and size.
"""

import copy
import itertools
import json
import os
from contextlib import suppress

import numpy as np
import pytest
from safetensors.numpy import save_file

import triegp
from model_files import (
    KNOWN,
    NEW,
    WEIGHT,
    Y2,
    X,
    array_at,
    at,
    edited,
    fit_line,
    heteroscedastic,
    parts_of,
    places_in,
    refused,
    small,
    swap,
    write_parts,
)
from triegp import TrieGPRegressor, serving
from triegp.estimators.loading import KINDS
from triegp.files import codec, forest
from triegp.files.container import FORMAT, VERSION, ModelFileError, _digest
from triegp.files.state import unpack_model
from triegp.files.trees import check_leaves
from triegp.tree.trie import SortedKeys

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning"),
]
INCOMPLETE = "does not hold a complete model"


def fit_mixture():
    """Three members, two targets, training rows."""
    model = small(multi_target="shared", mixture="softmax").fit(X, Y2, 0.5 * WEIGHT, KNOWN)
    return parts_of(model, training_data=True)


def fit_calibrated():
    """The twins have a calibration of their own."""
    return parts_of(small().fit(X, Y2[:, 0]))


def fit_local():
    """Local noise."""
    return parts_of(small(n_members=1).fit(*heteroscedastic()))


def fit_cells():
    """1,500 rows in at most 200 cells."""
    rng = np.random.default_rng(0)
    features = rng.random((1_500, 2))
    y = np.sin(6 * features[:, 0]) + 0.2 * rng.standard_normal(1_500)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FEWEST_ROWS", 500), ("SAMPLE_ROWS", 1_000), ("HELD_ROWS", 600)):
            patch.setattr(f"triegp.estimators.pieces.{name}", value)
        return parts_of(small(n_members=2, n_candidates=2, max_cells=200).fit(features, y))


def fit_forest():
    """A smooth part as of many rows; one coordinate is by rank, too."""
    rng = np.random.default_rng(0)
    features = rng.random((60, 2))
    features[:, 1] **= 4
    model = TrieGPRegressor(n_trees=3, max_iter=3, smooth=True, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
        model.fit(features, features @ [1.0, 2.0] + 0.1 * rng.standard_normal(60))
    assert model.forests_[0].model.coordinates.ranked.size
    return parts_of(model)


def fit_shared_forest():
    """Two targets in one forest, each input twice."""
    rng = np.random.default_rng(0)
    features = np.repeat(rng.random((30, 2)), 2, axis=0)
    targets = np.sin(5 * features) + 0.1 * rng.standard_normal((60, 2))
    model = TrieGPRegressor(n_trees=2, max_iter=2, random_state=0, multi_target="shared")
    return parts_of(model.fit(features, targets))


def fit_layers():
    """Main effects, three trees with a smooth part on 450 rows, and a mixture."""
    rng = np.random.default_rng(0)
    features = rng.random((1_100, 2))
    y = np.sin(6 * features[:, 0]) * features[:, 1] + 0.1 * rng.standard_normal(1_100)
    model = TrieGPRegressor(n_trees=3, max_iter=3, local_noise=False, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triegp.estimators.trie_regressor.MOST_ROWS", 1_000)
        patch.setattr("triegp.layers.train.BASE_ROWS", 450)
        patch.setattr("triegp.layers.train.COMPARED_ROWS", 200)
        model.fit(features, y)
    return parts_of(model)


def fit_log():
    return parts_of(small(target_transform="log", n_members=1).fit(X[20:], np.exp(Y2[20:, 0])))


FITS = {
    "mixture": fit_mixture,
    "calibrated": fit_calibrated,
    "local": fit_local,
    "cells": fit_cells,
    "forest": fit_forest,
    "shared forest": fit_shared_forest,
    "layers": fit_layers,
    "log": fit_log,
    "trend": lambda: parts_of(fit_line()),
}


@pytest.fixture(scope="module")
def parts_by_name():
    return {name: fit() for name, fit in FITS.items()}


@pytest.fixture(scope="module")
def parts(parts_by_name):
    return parts_by_name["mixture"]


def refuse(parts, tmp_path, place, change, match=INCOMPLETE):
    refused(write_parts(tmp_path / "m", *edited(parts, place, change)), match)


# Every fact, every array


@pytest.mark.parametrize("name", FITS)
def test_the_parts_unchanged_are_a_model(parts_by_name, tmp_path, name):
    header, arrays = parts_by_name[name]
    loaded = triegp.load(write_parts(tmp_path / "m", header, arrays))
    again = parts_of(loaded, header["model"]["stream"]["kept"] is not None)
    assert again[0]["model"] == header["model"]
    assert again[1].keys() == arrays.keys()


def taken(parts, edits):
    """Places of edits that are not refused with a ValueError; nothing is written to a file."""
    found = []
    for place, value in edits:
        header, arrays = edited(parts, place, value)
        with suppress(ValueError):
            unpack_model(header["model"], arrays, KINDS[header["estimator"]])
            found.append((place, str(value)[:80]))
    return found


@pytest.mark.parametrize("name", FITS)
def test_every_field_is_needed_and_no_other(parts_by_name, name):
    header, arrays = parts_by_name[name]
    for place, fact in places_in({"model": header["model"]}):
        if isinstance(fact, dict):
            place = place.removeprefix("model").removeprefix(".")
            rest = dict(list(fact.items())[1:])
            for wrong in (rest, {**fact, "another": 1}):
                if place:
                    assert not taken((header, arrays), [(place, wrong)])
                    continue
                with pytest.raises(ValueError, match="ModelState must have the fields"):
                    unpack_model(wrong, arrays, KINDS[header["estimator"]])


ODD = ("nll_per_row", "gain", "residual", "ceiling", "low", "high")  # need not be finite


@pytest.mark.parametrize("name", FITS)
def test_every_fact_has_a_type(parts_by_name, name):
    parts, edits = parts_by_name[name], []
    for place, fact in places_in(parts[0]["model"]):
        last = [part for part in place.split(".") if not part.isdigit()][-1]
        if last in ("categories", "record"):
            continue
        wrong = [{}, [[]]]
        if array_at(parts, place) is not None:
            wrong += [False, 3, "no such array"]
        elif type(fact) is float:
            wrong += ["x", True] + ["nan", float("nan"), float("inf")] * (last not in ODD)
        elif type(fact) is int:
            wrong += ["x", True, -1, 1.5, None]
        elif type(fact) is bool or last in ("kinds", "roles", "scaling", "outside", "nugget"):
            wrong += [3, "x", None]
        edits += [(place, value) for value in wrong]
    assert not taken(parts, edits)


FREE_SIZE = ("inducing", "codes")
FREE_VALUES = ("shift_", "X", "grid")  # may have NaN


@pytest.mark.parametrize("name", FITS)
def test_every_array_has_a_type_and_a_size_and_is_finite(parts_by_name, name):
    parts, edits = parts_by_name[name], []
    for place, _ in places_in(parts[0]["model"]):
        array = array_at(parts, place)
        if array is None:
            continue
        last = [part for part in place.split(".") if not part.isdigit()][-1]
        wrong = [array.astype(np.int8), array[None]]
        if array.size and last not in FREE_SIZE:
            wrong += [array[:-1], np.concatenate([array, array[-1:]])]
        if array.size and array.dtype.kind == "f":
            wrong += [at((0,) * array.ndim, np.inf)(array.copy())]
            wrong += [at((0,) * array.ndim, np.nan)(array.copy())] * (last not in FREE_VALUES)
        edits += [(place, value) for value in wrong]
    assert not taken(parts, edits)
    for key in parts[1]:
        rest = {other: array for other, array in parts[1].items() if other != key}
        with pytest.raises(ValueError, match=f"needs the array {key}"):
            unpack_model(parts[0]["model"], rest, KINDS[parts[0]["estimator"]])


# Values that fit by type and size


MEMBER, BASE = "stream.fitted.0.members.0", "stream.fitted.0.base"
STAGE, MODEL = "stream.fitted.0.stages.0", "stream.fitted.0.base.model"
INDUCED, EFFECTS = f"{MODEL}.smooth.induced", f"{BASE}.below.effects"
EDITS = [
    # the mixture
    ("mixture", "one_dimensional", True),
    ("mixture", "stream.columns.names", ["a"]),
    ("mixture", "stream.columns.names", ["a", "b", "b"]),
    ("mixture", "stream.encoders", []),
    ("mixture", "stream.encoders.0.scaling", "rank"),
    ("mixture", "stream.encoders.0.scaling", "ecdf"),
    ("mixture", "stream.encoders.0.margin", -1.0),
    ("mixture", "stream.encoders.0.outside", "nowhere"),
    ("mixture", "stream.encoders.0.low_", lambda a: a + 100),
    ("mixture", "stream.encoders.0.precision_", at(0, 0)),
    ("mixture", "stream.encoders.0.precision_", at(0, 99)),
    ("mixture", "stream.encoders.1.knots_", lambda a: a[:, ::-1].copy()),
    ("mixture", "stream.encoders.1.knots_", lambda a: a[:, :5]),
    ("mixture", "stream.encoders.1.knots_", lambda a: a + 1.0),
    ("mixture", "stream.encoders.1.knots_", lambda a: a - 1.0),
    ("mixture", "stream.fitted", []),
    ("mixture", "stream.fitted.0.members", []),
    ("mixture", "stream.fitted.0.calibrations", []),
    ("mixture", "stream.fitted.0.calibrations.0.weight", lambda a: 2 * a),
    ("mixture", "stream.fitted.0.calibrations.0.weight", lambda a: 0 * a + 1.7e308),
    ("mixture", "stream.fitted.0.calibrations.0.weight", at(slice(None), [-1.0, 2.0, 0.0])),
    ("mixture", "stream.fitted.0.members.1.encoder.low_", lambda a: a - 1.0),
    ("mixture", f"{MEMBER}.encoder.precision_", lambda a: a + 1),
    ("mixture", f"{MEMBER}.encoder.shift_", at(0, 1.5)),
    ("mixture", f"{MEMBER}.trained.order.bits", at(0, 1)),
    ("mixture", f"{MEMBER}.trained.order.bits", at(0, 10_000)),
    ("mixture", f"{MEMBER}.trained.order.bits", at(0, -1)),
    ("mixture", f"{MEMBER}.trained.order.remaining", swap(1, 2)),
    ("mixture", f"{MEMBER}.trained.order.remaining", at(-1, 1e-3)),
    ("mixture", f"{MEMBER}.trained.order.remaining", np.zeros_like),
    ("mixture", f"{MEMBER}.trained.order.remaining", lambda a: a / a[0] * 1e305),
    ("mixture", f"{MEMBER}.trained.order.nugget", "both"),
    ("mixture", f"{MEMBER}.noise", 0.0),
    ("mixture", f"{MEMBER}.noise", 5e-324),
    ("mixture", f"{MEMBER}.noise", 1e301),
    ("mixture", f"{MEMBER}.dtype", "int8"),
    ("mixture", f"{MEMBER}.n_levels", 5),
    ("mixture", f"{MEMBER}.leaves", None),
    ("mixture", f"{MEMBER}.leaves.row_idx", np.zeros_like),
    ("mixture", f"{MEMBER}.leaves.row_idx", at(3, 200)),
    ("mixture", f"{MEMBER}.leaves.row_idx", at(3, 2**31 - 1)),
    ("mixture", f"{MEMBER}.leaves.row_idx", at(3, -1)),
    ("mixture", f"{MEMBER}.leaves.lcp", at(3, 10_000)),
    ("mixture", f"{MEMBER}.leaves.lcp", at(3, -1)),
    ("mixture", f"{MEMBER}.leaves.lcp", at(0, 0)),
    ("mixture", f"{MEMBER}.leaves.lcp", lambda a: np.append(a[:1], a[:0:-1])),
    ("mixture", f"{MEMBER}.leaves.keys", lambda a: a[::-1].copy()),
    ("mixture", f"{MEMBER}.leaves.keys", lambda a: a[:, :0]),
    ("mixture", f"{MEMBER}.leaves.keys", lambda a: np.repeat(a, 2, axis=1)),
    ("mixture", f"{MEMBER}.leaves.keys", lambda a: a | np.uint64(1)),
    ("mixture", f"{MEMBER}.leaves.keys", np.zeros_like),
    ("mixture", f"{MEMBER}.rows", []),
    (
        "mixture",
        "stream.fitted.0.members.1.rows.0.y",
        lambda a: a + 1.0,
    ),
    ("mixture", f"{MEMBER}.rows.0.y", lambda a: np.stack([a, a], axis=1)),
    ("mixture", f"{MEMBER}.rows.0.y", at(0, 1e200)),
    ("mixture", f"{MEMBER}.rows.0.weight", at(5, -1.0)),
    ("mixture", f"{MEMBER}.rows.0.weight", np.zeros_like),
    ("mixture", f"{MEMBER}.rows.0.weight", at(0, 5e-324)),
    ("mixture", f"{MEMBER}.rows.0.weight", None),
    ("mixture", f"{MEMBER}.rows.0.copies", at(0, -1.0)),
    ("mixture", f"{MEMBER}.rows.0.noise", None),
    ("mixture", f"{MEMBER}.rows.0.noise", at(0, 0.0)),
    ("mixture", f"{MEMBER}.rows.1.noise", lambda a: a[:1]),
    ("mixture", "stream.scale", np.zeros_like),
    ("mixture", "stream.scale", lambda a: a * 0 + 1.7e308),
    ("mixture", "stream.mean", lambda a: a * 0 + 1.7e308),
    ("mixture", "stream.kept.X", lambda a: a[:, :-1]),
    ("mixture", "stream.kept.X", None),
    ("mixture", "stream.kept.known_noise", at(0, -1.0)),
    ("mixture", "stream.kept.weight", at(0, -1.0)),
    ("mixture", "stream.observations.index", at(0, 10_000)),
    ("mixture", "stream.observations.index", at(0, -2)),
    ("mixture", "stream.observations.y", lambda a: a[:, :1]),
    ("mixture", "stream.observations.y", at((0, 0), 1e300)),
    ("mixture", "stream.observations.weight", at(0, -1.0)),
    ("mixture", "stream.observations.weight", at(0, 5e-324)),
    ("mixture", "stream.observations.weight", at(0, 1e200)),
    *(("mixture", "stream.observations.unit", unit) for unit in (5e-324, 1.7e308, 0.0)),
    ("mixture", "fit_seconds", -1.0),
    *(("mixture", "curve.names", names) for names in ([], ["a"], ["a", "b", "c" * 100], "abc")),
    ("mixture", "curve.held_out", []),
    ("mixture", "curve.step.0", lambda a: a[::-1].copy()),
    ("mixture", "curve.step.0", lambda a: a - 2),
    # the plan and seeds
    ("mixture", "stream.plan.n_rows", 199),
    ("mixture", "stream.plan.n_fit", 201),
    ("mixture", "stream.plan.n_calibrated", 201),
    ("mixture", "stream.plan.n_aside", 200),
    ("mixture", "stream.plan.n_model", 201),
    ("mixture", "stream.plan.highest", lambda a: a - 10.0),
    *(("mixture", "stream.seeds", seeds) for seeds in ([], [{"entropy": [1], "key": [-2]}], [3])),
    # a calibration
    ("calibrated", "stream.fitted.0.stages", []),
    ("calibrated", "stream.fitted.0.border.slope", lambda a: -np.abs(a) - 1.0),
    ("calibrated", "stream.fitted.0.border.slope", lambda a: a + 1e40),
    ("calibrated", "stream.fitted.0.border.slope", lambda a: np.vstack([a, a])),
    ("calibrated", "stream.fitted.0.inputs", lambda a: a[::-1].copy()),
    ("calibrated", "stream.fitted.0.inputs", None),
    ("calibrated", "stream.fitted.0.border.low", lambda a: a - 1.0),
    ("calibrated", f"{STAGE}.tails.weight", lambda a: 0.9 * a),
    ("calibrated", f"{STAGE}.tails.weight", lambda a: 0 * a + 1.7e308),
    ("calibrated", f"{STAGE}.tails.offset", lambda a: a + 0.1),
    ("calibrated", f"{STAGE}.tails.factor", lambda a: 1e9 * a),
    ("calibrated", f"{STAGE}.repeats", None),
    ("calibrated", f"{STAGE}.repeats.scale", 1e-30),
    ("calibrated", f"{STAGE}.repeats.seen.spread", lambda a: a - 9.0),
    ("calibrated", f"{STAGE}.logs", lambda a: a + 1e3),
    ("calibrated", f"{STAGE}.scale", 0.0),
    ("calibrated", f"{STAGE}.scale", 1e30),
    ("calibrated", f"{STAGE}.slope", -1.0),
    ("calibrated", f"{STAGE}.slope", 11.0),
    ("calibrated", f"{STAGE}.ceiling", "nan"),
    ("local", f"{STAGE}.local.by_var", lambda a: not a),
    ("local", f"{STAGE}.local.encoder.knots_", None),
    ("local", f"{STAGE}.local.encoder.low_", lambda a: a - 1.0),
    # cells
    ("cells", f"{BASE}.n_summed", 5),
    ("cells", f"{BASE}.members.0.n_levels", 0),
    ("cells", f"{BASE}.members.0.n_levels", 10**9),
    ("cells", f"{BASE}.members.0.leaves.keys", lambda a: np.repeat(a[:1], len(a), axis=0)),
    ("cells", f"{BASE}.members.0.leaves.keys", lambda a: a | np.uint64(1)),
    ("cells", f"{BASE}.members.0.rows.0.weight", at(1, 0.0)),
    ("cells", f"{BASE}.members.0.rows.0.weight", lambda a: a * 1e-300),
    ("cells", f"{BASE}.members.0.rows.0.scatter", lambda a: -1.0 - a),
    ("cells", f"{BASE}.members.0.rows.0.noise", lambda a: 0.0 * a),
    ("cells", f"{BASE}.held.X", lambda a: a[:, :1]),
    ("cells", f"{BASE}.held.X", at((0, 0), np.nan)),
    ("cells", f"{BASE}.held.y", lambda a: a[:, 0]),
    # a forest
    ("forest", f"{MODEL}.alpha", lambda a: a * 1e306),
    ("forest", f"{MODEL}.alpha", at(0, 1.7e308)),
    ("forest", f"{MODEL}.rows.y", lambda a: a * 1e200),
    ("forest", f"{MODEL}.rows.noise", lambda a: a[:1]),
    ("forest", f"{MODEL}.rows.noise", at(0, 1e31)),
    ("forest", f"{MODEL}.orders.1.remaining", lambda a: a * 1e300),
    ("forest", f"{MODEL}.present", at(0, False)),
    ("forest", f"{MODEL}.trees", []),
    ("forest", f"{MODEL}.trees.0.row_idx", np.zeros_like),
    ("forest", f"{MODEL}.noise", 1e300),
    *(("forest", f"{MODEL}.factor", value) for value in (0.0, -1.0, 1e300)),
    *(("forest", f"{MODEL}.n_clustered", value) for value in (0, 61)),
    ("forest", f"{BASE}.variance", "samples"),
    ("forest", "stream.scale", lambda a: a * 0 + 1.7e308),
    ("forest", f"{MODEL}.inputs", lambda a: a[:, :1]),
    ("forest", f"{MODEL}.inputs", at((0, 0), 1e200)),
    *(
        ("forest", f"{INDUCED}.kernel.lengthscale", change)
        for change in (lambda a: -a, at(0, 0.0), at(0, 1e300), at(0, 1e-300))
    ),
    *(("forest", f"{INDUCED}.kernel.scale", value) for value in (0.0, -1.0, 1e300, 1e-300)),
    *(("forest", f"{MODEL}.smooth.gain", value) for value in (0.0, -1.0, 1e300, 1e-300)),
    ("forest", f"{INDUCED}.kernel.name", "matern"),
    ("forest", f"{MODEL}.smooth.record", "LowRank"),
    *(("forest", f"{INDUCED}.order", change) for change in (np.zeros_like, at(0, 60), at(0, -1))),
    ("forest", f"{INDUCED}.inducing", at(0, 60)),
    ("forest", f"{INDUCED}.inducing", at(0, -1)),
    ("forest", f"{INDUCED}.inducing", lambda a: np.append(a[:-1], a[0])),
    ("forest", f"{INDUCED}.starts", at(0, 1)),
    ("forest", f"{INDUCED}.starts", lambda a: a[[0, -1]] * 1000),
    ("forest", f"{MODEL}.coordinates.features", at(0, 2)),
    ("forest", f"{MODEL}.coordinates.features", at(0, -1)),
    ("forest", f"{MODEL}.coordinates.features", at(0, 1)),
    ("forest", f"{MODEL}.coordinates.ranked", at(0, 7)),
    ("forest", f"{MODEL}.coordinates.center", at(0, 1e300)),
    ("forest", f"{MODEL}.coordinates.spread", at(0, 0.0)),
    ("forest", f"{MODEL}.coordinates.knots", lambda a: a[:, ::-1].copy()),
    ("forest", f"{MODEL}.coordinates.ranks", lambda a: a[:, ::-1].copy()),
    ("forest", f"{MODEL}.coordinates.ranks", at((0, 0), -1e300)),
    ("shared forest", f"{MODEL}.alpha", lambda a: a[:, 0]),
    ("shared forest", f"{MODEL}.alpha", at((3, 1), 1.7e308)),
    ("shared forest", f"{MODEL}.rows.y", at((0, 1), 1e200)),
    ("shared forest", f"{MODEL}.rows.scatter", lambda a: a[:, :1]),
    ("shared forest", f"{MODEL}.rows.scatter", at((1, 0), -1.0)),
    # layers
    ("layers", f"{BASE}.scale", at(0, 0.0)),
    ("layers", f"{BASE}.known", lambda a: a[:-1]),
    ("layers", f"{BASE}.known", lambda a: np.repeat(a, 2, axis=1)),
    ("layers", f"{BASE}.below.gain", at(0, 1.5)),
    ("layers", f"{BASE}.below.bound", at(0, -1.0)),
    ("layers", f"{BASE}.below.usual", -1.0),
    ("layers", f"{EFFECTS}.features", at(-1, 2)),
    ("layers", f"{EFFECTS}.features", at(0, -1)),
    ("layers", f"{EFFECTS}.features", lambda a: a[::-1].copy()),
    ("layers", f"{EFFECTS}.starts", at(0, 1)),
    ("layers", f"{EFFECTS}.starts", at(-1, 1 << 20)),
    ("layers", f"{EFFECTS}.starts", lambda a: a[[0, -1]]),
    ("layers", f"{EFFECTS}.knots", lambda a: a[::-1].copy()),
    ("layers", f"{EFFECTS}.level", lambda a: np.repeat(a, 2)),
    # transforms, a trend
    *(("log", "stream.transforms.0.centre", value) for value in (1e300, -1e300, 711.0, -747.0)),
    ("log", "stream.transforms.0.low", 0.0),
    ("log", "stream.transforms.0.low", 1e9),
    ("log", "stream.transforms.0.record", "Pickle"),
    *(("log", "stream.scale", np.array([value])) for value in (1e-300, 1e300)),
    ("log", "stream.mean", np.array([4e198])),
    ("trend", f"{STAGE}.trend.share", 1.5),
    ("trend", f"{STAGE}.trend.level", 1e200),
]


@pytest.mark.parametrize(
    ("name", "place", "change"), EDITS, ids=[f"{k} {edit[1]}" for k, edit in enumerate(EDITS)]
)
def test_values_that_do_not_fit(parts_by_name, name, place, change):
    """No crash, nothing read out of bounds."""
    assert not taken(parts_by_name[name], [(place, change)])


def test_an_error_names_the_place(parts, tmp_path):
    order, bits = f"{MEMBER}.trained.order", f"{MEMBER}.trained.order.bits"
    refuse(parts, tmp_path, f"{order}.remaining", swap(1, 2), f"{order}: remaining must decrease")
    refuse(parts, tmp_path, bits, at(0, 1), f"{bits} must be a permutation")
    refuse(parts, tmp_path, f"{MEMBER}.noise", "x", rf"{MEMBER}\.noise must be a number")


def test_predictions_that_exceed_float64_in_the_units_of_y(parts_by_name, tmp_path):
    parts = edited(parts_by_name["forest"], f"{MODEL}.alpha", lambda a: a * 1e200)
    refuse(parts, tmp_path, "stream.scale", np.array([1e150]))


def test_arrays_that_are_named_very_often(parts, monkeypatch):
    """A short header may ask for any amount of memory and time."""
    for place, _ in places_in(parts[0]["model"]["stream"]["fitted"][0]["members"][0]):
        if f"{MEMBER}.{place}" in parts[1]:
            parts = edited(parts, f"{MEMBER}.{place}", f"{MEMBER}.{place}")
    header, arrays = edited(parts, "stream.fitted.0.members", lambda members: members[:1] * 200)
    monkeypatch.setattr(codec, "UNCHECKED", 1 << 20)
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 500 if name == "SC_PHYS_PAGES" else real(name))
    with pytest.raises(MemoryError, match="the model needs about"):
        unpack_model(header["model"], arrays, "Ensemble")


def test_a_model_of_another_estimator(parts_by_name, tmp_path):
    header, arrays = parts_by_name["forest"]
    header = header | {
        "estimator": "BinaryTreeGPRegressor",
        "parameters": parts_by_name["mixture"][0]["parameters"],
    }
    refused(write_parts(tmp_path / "m", header, arrays), "must hold a Ensemble")


def test_cells_have_no_noise_of_their_own(parts_by_name, tmp_path):
    cells, member = parts_by_name["cells"], f"{BASE}.members.0"
    n = array_at(cells, f"{member}.leaves.lcp").size
    refuse(cells, tmp_path, f"{member}.rows.0.noise", lambda a: np.repeat(a, n), "and one noise")


@pytest.mark.parametrize("n_neighbours", [513, 10**6, 10**18])
def test_too_many_neighbours_are_refused(parts_by_name, tmp_path, n_neighbours):
    place = f"{INDUCED}.n_neighbours"
    refuse(parts_by_name["forest"], tmp_path, place, n_neighbours, "at most 512 neighbours")


def test_too_many_inducing_rows_are_refused(parts_by_name, tmp_path, monkeypatch):
    parts = parts_by_name["forest"]
    monkeypatch.setattr(forest, "MOST_INDUCING", array_at(parts, f"{INDUCED}.inducing").size - 1)
    refused(write_parts(tmp_path / "m", *parts), "inducing rows, got")


@pytest.mark.parametrize(
    ("place", "change"),
    [("n_neighbours", 0), ("n_neighbours", 3), ("inducing", lambda a: a[:0])],
)
def test_other_smooth_parts_can_be_read(parts_by_name, tmp_path, place, change):
    parts = edited(parts_by_name["forest"], f"{INDUCED}.{place}", change)
    loaded = triegp.load(write_parts(tmp_path / "m", *parts))
    assert np.isfinite(loaded.predict([[0.5, 0.5]], return_std=True)).all()


def test_memory_that_is_never_written_is_not_checked(parts_by_name, tmp_path, monkeypatch):
    real = np.empty

    def full_of_nan(shape, dtype=float, **options):
        out = real(shape, dtype, **options)
        if out.dtype == np.float64:
            out.fill(np.nan)
        return out

    path = write_parts(tmp_path / "m", *parts_by_name["forest"])
    monkeypatch.setattr(np, "empty", full_of_nan)
    assert np.isfinite(triegp.load(path).predict([[0.5, 0.5]])).all()


def test_a_weight_of_minus_zero_is_zero(parts, tmp_path):
    """Its noise over its weight is infinite, not minus infinity."""
    found = []
    for zero in (0.0, -0.0):
        wrong = parts
        for k, t in itertools.product(range(3), range(2)):
            wrong = edited(wrong, f"stream.fitted.0.members.{k}.rows.{t}.weight", at(3, zero))
        path = write_parts(tmp_path / "m", *wrong)
        for load in (triegp.load, serving.load):
            found.append(load(path).predict(NEW, return_std=True))
    np.testing.assert_array_equal(found[2:], found[:2])
    assert np.isfinite(found).all()


def test_rows_with_the_same_key_must_be_in_their_order(parts, tmp_path):
    lcp = array_at(parts, f"{MEMBER}.leaves.lcp")
    twin = int(np.argmax(lcp))
    assert lcp[twin] == array_at(parts, f"{MEMBER}.trained.order.bits").size - 1
    refuse(parts, tmp_path, f"{MEMBER}.leaves.row_idx", swap(twin - 1, twin), "must increase")


def shared_bits(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


@pytest.mark.parametrize("n_levels", [0, 1, 31, 32, 33, 63, 64, 65, 128, 130])
def test_lcp_of_keys_against_bit_strings(n_levels):
    """What the checks take for the lcp, by comparing strings of 0 and 1."""
    draw = np.random.default_rng(n_levels)
    texts = ["".join(map(str, draw.integers(0, 2, n_levels))) for _ in range(40)]
    texts += [text[: n_levels // 2] + "1" * (n_levels - n_levels // 2) for text in texts[:20]]
    if n_levels:
        texts += [text[:-1] + "0" for text in texts[:20]] + ["0" * n_levels, "1" * n_levels]
    texts.sort()
    width = max(1, -(-n_levels // 64))
    words = [
        [int(text.ljust(64 * width, "0")[64 * w :][:64], 2) for w in range(width)] for text in texts
    ]
    lcp = np.array([-1] + [shared_bits(*pair) for pair in itertools.pairwise(texts)], np.int32)
    keys = np.array(words, dtype=np.uint64).reshape(len(texts), width)
    leaves = SortedKeys(np.arange(len(texts), dtype=np.int32), lcp, keys)
    check_leaves(leaves, len(texts), n_levels)
    for i in range(1, len(texts), 7):
        wrong = leaves._replace(lcp=at(i, lcp[i] + 1)(lcp.copy()))
        with pytest.raises(ValueError, match="lcp"):
            check_leaves(wrong, len(texts), n_levels)


# The header


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_newer_file(parts, tmp_path, version):
    header, arrays = parts
    refused(write_parts(tmp_path / "m", header | {"version": version}, arrays), "newer")


@pytest.mark.parametrize("version", [0, -1, "1", None, True, 1.0])
def test_a_file_of_no_version(parts, tmp_path, version):
    header, arrays = parts
    refused(write_parts(tmp_path / "m", header | {"version": version}, arrays), "version")


@pytest.mark.parametrize("estimator", ["Ridge", "", None, 3, ["BinaryTreeGPRegressor"], {}])
def test_an_unknown_estimator(parts, tmp_path, estimator):
    header, arrays = parts
    path = write_parts(tmp_path / "m", header | {"estimator": estimator}, arrays)
    refused(path, "expected one of BinaryTreeGPRegressor")


@pytest.mark.parametrize("key", ["parameters", "model"])
@pytest.mark.parametrize("value", [None, [], {"no_such": 1}, "missing"])
def test_a_header_that_says_nonsense(parts, tmp_path, key, value):
    rest = {name: part for name, part in parts[0].items() if name != key}
    header = rest if value == "missing" else rest | {key: value}
    refused(write_parts(tmp_path / "m", header, parts[1]))


@pytest.mark.parametrize("value", [[0] * 10**5, "x" * 10**6], ids=["list", "text"])
def test_an_error_is_short(parts, tmp_path, value):
    path = write_parts(tmp_path / "m", *edited(parts, f"{MEMBER}.noise", value))
    with pytest.raises(ModelFileError, match="noise must be a number") as caught:
        triegp.load(path)
    assert len(str(caught.value)) < 1000


PARAMETER_EDITS = {
    "n_members": [10**9, 0, "x", [[1]]],
    "n_candidates": [-1, 1.5],
    "max_iter": [0, float("nan")],
    "noise": [1e-400, -1.0, float("nan"), "x", 10**400],
    "tol": [float("nan"), float("inf"), "x" * 10**6],
    "temperature": [0.0],
    "time_budget": [-1, float("nan"), "soon"],
    "n_jobs": [0, 0.5, "all"],
    "verbose": [-1, "x"],
    "random_state": [-1, 2**32, 0.5, "x", [0] * 10**5],
    "engine": ["gpu", 3],
    "refit": ["never", 1],
    "keep_rows": [0],
    "outside": ["x", None],
    "weights": ["x"],
    "target_transform": ["x", None, []],
    "preset": ["x"],
    "no_such_parameter": [1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, some in PARAMETER_EDITS.items() for value in some]
)
def test_a_parameter_that_fit_would_refuse(parts, tmp_path, name, value):
    """A refit would fail long after the file was read."""
    header = parts[0] | {"parameters": parts[0]["parameters"] | {name: value}}
    path = write_parts(tmp_path / "m", header, parts[1])
    with pytest.raises(ModelFileError, match=name) as caught:
        triegp.load(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("name", "value"), [("outside", "x"), ("weights", 3), ("variance", None)])
def test_a_parameter_that_serving_reads(parts_by_name, tmp_path, name, value):
    header, arrays = copy.deepcopy(parts_by_name["forest"])
    header["parameters"][name] = value
    path = write_parts(tmp_path / "m", header, arrays)
    for load in (triegp.load, serving.load):
        with pytest.raises(ModelFileError, match=f"{name} must be one of"):
            load(path)


def test_a_file_for_an_engine_that_is_not_here_can_be_read(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("triegp.engines.choice.cuda_problem", lambda: "there is no device")
    header = parts[0] | {"parameters": parts[0]["parameters"] | {"engine": "cuda"}}
    model = triegp.load(write_parts(tmp_path / "m", header, parts[1]))
    model.save(tmp_path / "again")
    assert triegp.load(tmp_path / "again").engine == "cuda"


@pytest.mark.parametrize("depth", [300, 800, 900, 1100])
@pytest.mark.parametrize("place", ["encoders.0.outside", "columns", "mean", "plan.n_rows"])
def test_a_header_that_is_deeply_nested(parts, tmp_path, depth, place):
    """What json can read, repr may not."""
    header, arrays = edited(parts, f"stream.{place}", "nested")
    text = json.dumps({"version": VERSION, **header, "numbered": {}}, sort_keys=True)
    text = text.replace('"nested"', "[" * depth + "]" * depth)
    signed = f'{{"sha256": "{_digest(text, arrays)}", {text[1:]}'
    save_file(arrays, tmp_path / "m", {FORMAT: signed})
    refused(tmp_path / "m")


# Extreme models that are read


@pytest.mark.parametrize("size", [1e-300, 1e307])
def test_models_of_extreme_targets_are_read(tmp_path, size):
    rng = np.random.default_rng(0)
    features = rng.random((60, 2))
    y = features[:, 0] + 0.1 * rng.standard_normal(60)
    model = TrieGPRegressor(n_trees=3, max_iter=3, random_state=0)
    model.fit(features, y / np.abs(y).max() * size).save(tmp_path / "m")
    found = triegp.load(tmp_path / "m").predict(features)
    np.testing.assert_array_equal(found, model.predict(features))


def test_models_with_distant_added_targets_are_read(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.random((60, 2))
    model = TrieGPRegressor(n_trees=3, max_iter=3, random_state=0).fit(features, features[:, 0])
    with pytest.warns(UserWarning, match="over 1,000 times as far"):
        model.partial_fit(features[:1], [1e140])
    model.save(tmp_path / "m")
    found = triegp.load(tmp_path / "m").predict(features)
    np.testing.assert_array_equal(found, model.predict(features))
