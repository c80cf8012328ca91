"""Model files with a fitting digest whose content does not fit together: a clear error."""

import copy
import itertools
import json

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
    Y,
    refused,
    small,
    write_parts,
)
from triegp import TrieGPRegressor, serving
from triegp.files.container import FORMAT, VERSION, ModelFileError, _digest, read_file
from triegp.files.contents import check_sorted_rows
from triegp.files.state import pack_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning"),
]


@pytest.fixture(scope="module")
def parts():
    """Header and arrays of a file with three members, two targets, training rows: to be edited."""
    model = small(multi_target="shared", mixture="softmax").fit(X, Y2, 0.5 * WEIGHT, KNOWN)
    named = {"estimator": type(model).__name__, "parameters": model.get_params()}
    header, arrays = pack_model(model._state(), model._format, True)
    return named | header, arrays


def test_the_parts_unchanged_are_a_model(parts, tmp_path):
    loaded = triegp.load(write_parts(tmp_path / "m", *parts))
    assert loaded.predict(NEW).shape == (50, 2)


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


def test_a_key_or_an_array_that_is_missing(parts, tmp_path):
    header, arrays = parts
    older = {"plan", "seeds", "fit_seconds", "training_curve", "divided"}  # older files lack them
    for key in header.keys() - older:
        rest = {name: value for name, value in header.items() if name != key}
        refused(write_parts(tmp_path / "m", rest, arrays))
    member = header["ensembles"][0]["members"][0]
    for key in member:
        edited = copy.deepcopy(header)
        del edited["ensembles"][0]["members"][0][key]
        refused(write_parts(tmp_path / "m", edited, arrays))
    optional = {
        "ensemble.0.row_weight",
        "ensemble.0.copies",  # without: as many as the weights
        "rows.index",
        "rows.standardised",  # as before format version 3
        "rows.counted",
        "rows.weight",
        "rows.known_noise",
    }
    rest = {name: value for name, value in arrays.items() if name != "ensemble.0.row_weight"}
    refused(write_parts(tmp_path / "m", header, rest), "require")
    for key in arrays.keys() - optional:
        rest = {name: value for name, value in arrays.items() if name != key}
        refused(write_parts(tmp_path / "m", header, rest))


HEADER_EDITS = {
    "parameters": [None, [], {"no_such": 1}],
    "one_dimensional": [True],  # with two targets
    "feature_names": [["a"], ["a", "b", 3], 5],
    "scalings": [[], ["minmax"], ["minmax", "minmax", "minmax"], ["rank", "ecdf"], 3],
    "margin": [-1.0, None, "wide"],
    "outside": ["nowhere", None],
    "ensembles": [[], None, [{}], [{"members": []}]],
    "fit_seconds": [-1.0, 3, "x", float("inf"), float("nan")],
    "training_curve": [
        {},
        [],
        "x",
        {"names": [], "held_out": False},
        {"names": "abc", "held_out": False},
        {"names": ["a", "b", 3], "held_out": False},
        {"names": ["a", "b", "c" * 100], "held_out": False},
        {"names": ["a", "b"], "held_out": False},  # there are three lines
        {"names": ["a", "b", "c"], "held_out": 1},
        {"names": ["a", "b", "c"], "held_out": True},
    ],
}
MEMBER_EDITS = {
    "encoder": [-1, 2, None, "0", True, 0.0],
    "nugget": ["both", None, 1],
    "noise": [0.0, -1.0, None, "x", float("nan"), float("inf"), 5e-324, 1e301],
    "dtype": ["int8", "float16", "object", None, "O8"],
    "nll_per_row": [None, "x"],
    "n_evaluations": [None, "x", float("inf")],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HEADER_EDITS.items() for value in values]
)
def test_a_header_that_says_nonsense(parts, tmp_path, key, value):
    header, arrays = parts
    refused(write_parts(tmp_path / "m", header | {key: value}, arrays))


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in MEMBER_EDITS.items() for value in values]
)
def test_a_member_that_says_nonsense(parts, tmp_path, key, value):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["ensembles"][0]["members"][1][key] = value
    refused(write_parts(tmp_path / "m", header, arrays))


@pytest.mark.parametrize("value", [[0] * 10**5, "x" * 10**6], ids=["list", "text"])
def test_an_error_is_short(parts, tmp_path, value):
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["ensembles"][0]["members"][1]["noise"] = value
    path = write_parts(tmp_path / "m", header, arrays)
    with pytest.raises(ModelFileError, match="noise must be a positive number") as caught:
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
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["parameters"][name] = value
    path = write_parts(tmp_path / "m", header, arrays)
    with pytest.raises(ModelFileError, match=name) as caught:
        triegp.load(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("name", "value"), [("outside", "x"), ("weights", 3), ("variance", None)])
def test_a_parameter_that_serving_reads(tmp_path, name, value):
    model = TrieGPRegressor(n_trees=2, max_iter=1, random_state=0).fit(X[:40], Y[:40])
    model.save(tmp_path / "m")
    header, arrays = read_file(tmp_path / "m")
    header["parameters"][name] = value
    path = write_parts(tmp_path / "m", header, arrays)
    for load in (triegp.load, serving.load):
        with pytest.raises(ModelFileError, match=f"{name} must be one of"):
            load(path)


def test_a_file_for_an_engine_that_is_not_here_can_be_read(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("triegp.engines.choice.cuda_problem", lambda: "there is no device")
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["parameters"]["engine"] = "cuda"
    model = triegp.load(write_parts(tmp_path / "m", header, arrays))
    model.save(tmp_path / "again")
    assert triegp.load(tmp_path / "again").engine == "cuda"


@pytest.mark.parametrize("depth", [300, 800, 900, 1100])
def test_a_header_that_is_deeply_nested(parts, tmp_path, depth):
    """What json can read, repr may not."""
    header, arrays = copy.deepcopy(parts[0]), parts[1]
    header["outside"] = "nested"
    text = json.dumps({"version": VERSION, **header, "numbered": {}}, sort_keys=True)
    text = text.replace('"nested"', "[" * depth + "]" * depth)
    signed = f'{{"sha256": "{_digest(text, arrays)}", {text[1:]}'
    path = tmp_path / "m"
    save_file(arrays, path, {FORMAT: signed})
    refused(path)


def at(place, value):
    def edit(array):
        array[place] = value
        return array

    return edit


def swap(i, j):
    def edit(array):
        array[[i, j]] = array[[j, i]]
        return array

    return edit


ARRAY_EDITS = {
    "bits that repeat": ("ensemble.0.0.bits", at(0, 1)),
    "bits out of range": ("ensemble.0.0.bits", at(0, 10_000)),
    "bits below 0": ("ensemble.0.0.bits", at(0, -1)),
    "bits of another type": ("ensemble.0.0.bits", lambda a: a.astype(np.int32)),
    "too few bits": ("ensemble.0.0.bits", lambda a: a[:-1]),
    "variance that rises": ("ensemble.0.0.remaining", swap(1, 2)),
    "variance not a number": ("ensemble.0.0.remaining", at(1, np.nan)),
    "variance that does not end in 0": ("ensemble.0.0.remaining", at(-1, 1e-3)),
    "no variance": ("ensemble.0.0.remaining", np.zeros_like),
    "rows that repeat": ("ensemble.0.1.row_idx", lambda a: np.zeros_like(a)),
    "rows out of range": ("ensemble.0.1.row_idx", at(3, 200)),
    "rows far out of range": ("ensemble.0.1.row_idx", at(3, 2**31 - 1)),
    "rows below 0": ("ensemble.0.1.row_idx", at(3, -1)),
    "too few rows": ("ensemble.0.1.row_idx", lambda a: a[:-1]),
    "lcp beyond the key": ("ensemble.0.1.lcp", at(3, 10_000)),
    "lcp below 0": ("ensemble.0.1.lcp", at(3, -1)),
    "lcp of other keys": ("ensemble.0.1.lcp", lambda a: np.append(a[:1], a[:0:-1])),
    "lcp without the first": ("ensemble.0.1.lcp", at(0, 0)),
    "keys that are not sorted": ("ensemble.0.1.keys", lambda a: a[::-1].copy()),
    "keys of another type": ("ensemble.0.1.keys", lambda a: a.view(np.int64)),
    "keys of no width": ("ensemble.0.1.keys", lambda a: a[:, :0]),
    "keys in one line": ("ensemble.0.1.keys", lambda a: a.ravel()),
    "keys with more bits": ("ensemble.0.1.keys", lambda a: a | np.uint64(1)),
    "keys all equal": ("ensemble.0.1.keys", np.zeros_like),
    "no rows": ("ensemble.0.targets", lambda a: a[:, :0]),
    "no targets": ("ensemble.0.targets", lambda a: a[:0]),
    "too few targets": ("ensemble.0.targets", lambda a: a[:1]),
    "targets not finite": ("ensemble.0.targets", at((0, 0), np.inf)),
    "targets of another type": ("ensemble.0.targets", lambda a: a.astype(np.float32)),
    "weights below 0": ("ensemble.0.row_weight", at(5, -1.0)),
    "weights all 0": ("ensemble.0.row_weight", np.zeros_like),
    "too few weights": ("ensemble.0.row_weight", lambda a: a[:1]),
    "noise of 0": ("ensemble.0.0.noise.0", at(0, 0.0)),
    "too few noises": ("ensemble.0.0.noise.1", lambda a: a[:2]),
    "noises of one member only": ("ensemble.0.0.noise.1", lambda a: a[:1]),
    "weights that are too small": ("ensemble.0.row_weight", at(0, 5e-324)),
    "variance out of range": ("ensemble.0.0.remaining", lambda a: a / a[0] * 1e305),
    "mixture weights that do not sum to 1": ("ensemble.0.weight", lambda a: 2 * a),
    "mixture weights whose sum overflows": ("ensemble.0.weight", lambda a: 0 * a + 1.7e308),
    "mixture weights below 0": ("ensemble.0.weight", at(0, [-1.0, 2.0, 0.0])),
    "mixture weights of fewer members": ("ensemble.0.weight", lambda a: a[:, :1] * 0 + 1),
    "variance times 0": ("ensemble.0.tempering", np.zeros_like),
    "means pushed apart": ("ensemble.0.tempering", at((0, 0), 1e300)),
    "variance times infinity, nearly": ("ensemble.0.tempering", at((0, 1), 1.7e308)),
    "outliers without variance, nearly": ("ensemble.0.tempering", at((0, 3), 1e-300)),
    "tempering of one target": ("ensemble.0.tempering", lambda a: a[:1]),
    "shift beyond 1": ("ensemble.0.0.shift", at(0, 1.5)),
    "shift of other features": ("ensemble.0.0.shift", lambda a: a[:2]),
    "shift of one feature": ("ensemble.0.0.shift", lambda a: a[:1]),  # kernels read all three
    "a box inside out": ("encoder.0.low", lambda a: a + 100),
    "a box not finite": ("encoder.0.high", at(0, np.nan)),
    "a box of fewer features": ("encoder.0.low", lambda a: a[:2]),
    "precision of 0": ("encoder.0.precision", at(0, 0)),
    "precision of 99": ("encoder.0.precision", at(0, 99)),
    "other precision": ("encoder.0.precision", lambda a: a + 1),
    "knots that fall": ("encoder.1.knots", lambda a: a[:, ::-1].copy()),
    "too few knots": ("encoder.1.knots", lambda a: a[:, :5]),
    "knots above the box": ("encoder.1.knots", lambda a: a + 1.0),
    "knots below the box": ("encoder.1.knots", lambda a: a - 1.0),
    "a scale of 0": ("target_scale", np.zeros_like),
    "a mean that is not finite": ("target_mean", at(0, np.inf)),
    "means of fewer targets": ("target_mean", lambda a: a[:1]),
    "fewer training rows": ("rows.X", lambda a: a[:-1]),
    "training rows not finite": ("rows.X", at((0, 0), np.inf)),
    "training rows of text": ("rows.X", lambda a: a.astype(np.int8)),
    "fewer training targets": ("rows.targets", lambda a: a[:-1]),
    "fewer training weights": ("rows.weight", lambda a: a[:-1]),
    "known noise below 0": ("rows.known_noise", at(0, -1.0)),
    "copies below 0": ("ensemble.0.copies", at(0, -1.0)),
    "too few copies": ("ensemble.0.copies", lambda a: a[:-1]),
    "observations of no row": ("rows.index", at(0, 10_000)),
    "observations below no row": ("rows.index", at(0, -2)),
    "fewer observations": ("rows.index", lambda a: a[:-1]),
    "observations of fewer targets": ("rows.standardised", lambda a: a[:, :1]),
    "observations not finite": ("rows.standardised", at((0, 0), np.nan)),
    "observations without squares": ("rows.standardised", at((0, 0), 1e300)),
    "observations counted below 0": ("rows.counted", at(0, -1.0)),
    "observations hardly counted": ("rows.counted", at(0, 5e-324)),
    "observations counted too often": ("rows.counted", at(0, 1e200)),
}


@pytest.mark.parametrize(("name", "edit"), ARRAY_EDITS.values(), ids=ARRAY_EDITS)
def test_arrays_that_do_not_fit(parts, tmp_path, name, edit):
    """The digest fits, the arrays do not: no crash, nothing read out of bounds."""
    header, arrays = parts
    edited = arrays | {name: edit(arrays[name].copy())}
    refused(write_parts(tmp_path / "m", header, edited), "does not hold a complete model")


def test_a_weight_of_minus_zero_is_zero(parts, tmp_path):
    """Its noise over its weight is infinite, not minus infinity."""
    header, arrays = parts
    found = []
    for zero in (0.0, -0.0):
        weight = at(3, zero)(arrays["ensemble.0.row_weight"].copy())
        path = write_parts(tmp_path / "m", header, arrays | {"ensemble.0.row_weight": weight})
        for load in (triegp.load, serving.load):
            found.append(load(path).predict(NEW, return_std=True))
    np.testing.assert_array_equal(found[2:], found[:2])
    assert np.isfinite(found).all()


@pytest.mark.parametrize("unit", [5e-324, 1.7e308, 0.0, float("nan"), None])
def test_a_unit_of_weights_that_is_out_of_range(parts, tmp_path, unit):
    header, arrays = parts
    path = write_parts(tmp_path / "m", header | {"weight_unit": unit}, arrays)
    refused(path, "weight_unit must be")


def test_rows_with_the_same_key_must_be_in_their_order(parts, tmp_path):
    header, arrays = parts
    lcp = arrays["ensemble.0.0.lcp"]
    twin = int(np.argmax(lcp))
    assert lcp[twin] == arrays["ensemble.0.0.bits"].size - 1  # the row nugget leaves one unread
    name = "ensemble.0.0.row_idx"
    edited = arrays | {name: swap(twin - 1, twin)(arrays[name].copy())}
    refused(write_parts(tmp_path / "m", header, edited), "must increase")


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
    lcp = [-1] + [shared_bits(*pair) for pair in itertools.pairwise(texts)]
    arrays = {
        "m.row_idx": np.arange(len(texts), dtype=np.int32),
        "m.lcp": np.array(lcp, dtype=np.int32),
        "m.keys": np.array(words, dtype=np.uint64).reshape(len(texts), width),
    }
    check_sorted_rows(arrays, "m", len(texts), n_levels)
    for i in range(1, len(texts), 7):
        edited = arrays | {"m.lcp": at(i, lcp[i] + 1)(arrays["m.lcp"].copy())}
        with pytest.raises(ValueError, match=r"m\.lcp"):
            check_sorted_rows(edited, "m", len(texts), n_levels)


# Calibration, border, plan and seeds


@pytest.fixture(scope="module")
def calibrated():
    """Header and arrays of a calibrated file whose twins have a calibration of their own."""
    model = small().fit(X, Y2[:, 0])
    named = {"estimator": type(model).__name__, "parameters": model.get_params()}
    header, arrays = pack_model(model._state(), model._format, False)
    return named | header, arrays


CALIBRATION_EDITS = {
    "slope of the border < 0": ("ensemble.0.slope", lambda a: -np.abs(a) - 1.0),
    "slope of the border too steep": ("ensemble.0.slope", lambda a: a + 1e40),
    "slope of the border of another shape": ("ensemble.0.slope", lambda a: a[:, :1]),
    "inputs not sorted": ("ensemble.0.inputs", lambda a: a[::-1].copy()),
    "inputs of another type": ("ensemble.0.inputs", lambda a: a.astype(np.int64)),
    "no inputs": ("ensemble.0.inputs", lambda a: a[:0]),
    "tails that do not sum to 1": ("ensemble.0.stage.0.tails", lambda a: a * [[0.9], [1.0], [1.0]]),
    "tails whose sum overflows": (
        "ensemble.0.stage.0.tails",
        lambda a: np.tile([[1.7e308], [1.0], [0.0]], (1, 3)),
    ),
    "tails of another mean": (
        "ensemble.0.stage.0.tails",
        lambda a: a + np.array([[0.0], [0.0], [0.1]]),
    ),
    "tails of four rows": ("ensemble.0.stage.0.tails", lambda a: np.vstack([a, a[:1]])),
    "tails of repeats": ("ensemble.0.stage.0.repeats", lambda a: a * [[0.9], [1.0], [1.0]]),
    "factors of repeats": ("ensemble.0.stage.0.repeats", lambda a: a * [[1.0], [1e9], [1.0]]),
    "observations of another input": ("ensemble.0.stage.0.seen.mean", lambda a: a[1:]),
    "observations as they were in version 6": (
        "ensemble.0.stage.0.seen",
        lambda a: np.ones((4, 3)),
    ),
    "negative squares": ("ensemble.0.stage.0.seen.spread", lambda a: a - 9.0),
    "too few logarithms": ("ensemble.0.stage.0.logs", lambda a: a[1:]),
    "large logarithms": ("ensemble.0.stage.0.logs", lambda a: a + 1e3),
    "a box of the plan that is too small": ("plan.highest", lambda a: a - 10.0),
    "a level for each row": ("plan.level", lambda a: np.zeros(200)),
}


def test_calibrated_parts_unchanged_are_a_model(calibrated, tmp_path):
    edited = {name for name, _ in CALIBRATION_EDITS.values()}
    assert edited - calibrated[1].keys() == {"ensemble.0.stage.0.seen"}  # of version 6
    loaded = triegp.load(write_parts(tmp_path / "m", *calibrated))
    assert loaded.predict(NEW).shape == (50,)


@pytest.mark.parametrize("edit", CALIBRATION_EDITS.values(), ids=CALIBRATION_EDITS)
def test_a_calibration_that_cannot_be(calibrated, tmp_path, edit):
    header, arrays = calibrated
    name, change = edit
    path = write_parts(tmp_path / "m", header, arrays | {name: change(arrays.get(name))})
    refused(path, "does not hold a complete model")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scale", 0.0),
        ("scale", 1e30),
        ("slope", -1.0),
        ("slope", 11.0),
        ("slope", float("nan")),
        ("repeats", 0.0),
        ("repeats", 1e-30),
        ("repeats", "wide"),
    ],
)
def test_a_stage_that_says_nonsense(calibrated, tmp_path, key, value):
    header, arrays = copy.deepcopy(calibrated[0]), calibrated[1]
    header["ensembles"][0]["stages"][0][key] = value
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


@pytest.mark.parametrize(
    "edit",
    [
        {"n_rows": 199},
        {"n_fit": -1, "n_model": -1},
        {"n_fit": 100, "n_model": 101},
        {"n_fit": 201},
        {"n_calibrated": 201},
        {"n_aside": -1},
        {"n_aside": 200},
        {"n_newest": -1},
        {"n_newest": 1.5},
        {"varied": []},
        {"varied_at_fit": [True, True]},
    ],
    ids=str,
)
def test_a_plan_that_says_nonsense(calibrated, tmp_path, edit):
    header, arrays = calibrated
    header = header | {"plan": header["plan"] | edit}
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


@pytest.mark.parametrize("seeds", [[], [[[1], [-2]]], [[[1]]], [3], [[[1], [2]], [[1], [2]]]])
def test_seeds_that_are_none(calibrated, tmp_path, seeds):
    header, arrays = calibrated
    refused(write_parts(tmp_path / "m", header | {"seeds": seeds}, arrays))


def test_a_file_without_plan_and_seeds_is_of_a_model_that_is_not_due(calibrated, tmp_path):
    header, arrays = calibrated
    rest = {name: value for name, value in header.items() if name not in ("plan", "seeds")}
    loaded = triegp.load(write_parts(tmp_path / "m", rest, arrays))
    whole = triegp.load(write_parts(tmp_path / "n", header, arrays))
    np.testing.assert_array_equal(loaded.predict(NEW), whole.predict(NEW))
