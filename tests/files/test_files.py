"""Model files: the same bits after loading, and a clear error for whatever is not a model file."""

import copy
import io
import itertools
import json
import os
import pickle
import stat

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import triegp
from triegp import BinaryTreeGPRegressor
from triegp.files.container import FORMAT, VERSION, ModelFileError, read_file, write_file
from triegp.files.contents import check_rows
from triegp.files.model import pack_model

rng = np.random.default_rng(0)
X = rng.random((200, 3))
X[:20] = X[20:40]  # twins
Y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
Y2 = np.stack([Y, Y**2 + 0.1 * rng.standard_normal(200)], axis=1)
NEW = 1.2 * rng.random((50, 3)) - 0.1  # some outside the box
MORE = X[:7] * 0.9 + 0.05
WEIGHT = rng.integers(0, 4, 200).astype(float)
KNOWN = rng.exponential(0.1, 200)


def small(**options):
    settings = {"n_members": 3, "n_candidates": 3, "max_iter": 5, "random_state": 0, "n_jobs": 1}
    return BinaryTreeGPRegressor(**(settings | options))


def fit_named():
    return small().fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)


MODELS = {
    "plain": lambda: small().fit(X, Y),
    "weights": lambda: small().fit(X, Y, sample_weight=WEIGHT),
    "known noise": lambda: small().fit(X, Y, known_noise=KNOWN),
    "both": lambda: small().fit(X, Y, sample_weight=WEIGHT, known_noise=KNOWN),
    "two targets": lambda: small().fit(X, Y2, known_noise=KNOWN),
    "shared targets": lambda: small(multi_target="shared").fit(X, Y2, sample_weight=WEIGHT),
    "one column": lambda: small().fit(X, Y[:, None]),
    "float32": lambda: small().fit(X.astype(np.float32), Y),
    "added to": lambda: small().fit(X, Y).partial_fit(MORE, Y[:7]),
    "added to, weighted": lambda: (
        small()
        .fit(X, Y)
        .partial_fit(MORE, Y[:7], sample_weight=np.arange(7.0), known_noise=np.arange(7.0))
    ),
    "unrelated outside": lambda: small(outside="unrelated").fit(X, Y),
    "bit nugget": lambda: small(nugget="bit", scaling="ecdf", mixture="stacking").fit(X, Y),
    "one grid": lambda: small(preset="paper-bte", n_candidates=6, max_iter=3).fit(X, Y),
    "many bits": lambda: small(precision=[31, 30, 29]).fit(X, Y),
    "one bit": lambda: small(shift=False, precision=1, scaling="minmax").fit(X[:, :1], Y),
    "one row": lambda: small(n_members=2).fit(X[:1], Y[:1]),
    "no rows kept": lambda: small(keep_rows=False).fit(X, Y),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def plain():
    return MODELS["plain"]()


@pytest.fixture(scope="module")
def parts():
    """Header and arrays of a file with three members, two targets, training rows: to be edited."""
    model = small(multi_target="shared", mixture="softmax").fit(X, Y2, WEIGHT, KNOWN)
    return pack_model(model, True)


@pytest.fixture(scope="module")
def whole(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.triegp"
    plain.save(path)
    return path.read_bytes()


def new_rows(model):
    return NEW[:, : model.n_features_in_]


def answers(model):
    """Everything that a model says, as arrays."""
    new = new_rows(model)
    return [
        *model.predict(new, return_std=True),
        *model.predict(new, return_std=True, latent=True),
        model.predict_quantiles(new, (1e-3, 0.5, 0.9)),
        *model.loo_predict(),
        model.loo_log_density(),
        model.sample_y(new, 3, random_state=1),
        model.feature_importances_,
        np.array(model.log_marginal_likelihood_),
        np.array(model.loo_score_),
        np.array(model.n_evaluations_),
    ]


def assert_same(a, b):
    for one, two in zip(answers(a), answers(b), strict=True):
        np.testing.assert_array_equal(one, two, strict=True)


def through_file(model, path, **options):
    model.save(path, **options)
    return triegp.load(path)


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
    assert not any(name.startswith("rows.") for name in read_file(tmp_path / "a")[1])


def test_feature_names_survive(tmp_path):
    model = fit_named()
    loaded = through_file(model, tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    frame = pd.DataFrame(NEW, columns=["a", "b", "c"])
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c"]])
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


# Writing


def test_a_file_is_replaced_whole(plain, whole, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    plain.save(str(path))
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("fails", ["os.fsync", "os.replace", "safetensors.numpy.save"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    plain, tmp_path, monkeypatch, fails
):
    path = tmp_path / "m"
    path.write_bytes(b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(fails, fail)
    with pytest.raises(OSError, match="disk full"):
        plain.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_that_is_not_there(plain, tmp_path):
    with pytest.raises(FileNotFoundError):
        plain.save(tmp_path / "no" / "m")


@pytest.mark.skipif(os.name != "posix", reason="modes are posix")
def test_a_file_is_as_readable_as_any_new_file(plain, tmp_path):
    plain.save(tmp_path / "m")
    (tmp_path / "other").write_bytes(b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m", "other")}
    assert len(modes) == 1


# What is no model file


def refused(path, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        triegp.load(path)
    assert str(path) in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        triegp.load(tmp_path / "m")


def test_truncated_at_any_length(whole, tmp_path):
    path = tmp_path / "m"
    lengths = {*range(40), *range(40, len(whole), 97), len(whole) - 8, len(whole) - 1}
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole + b"\0")
    refused(path)


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_flipped_bit_anywhere(whole, tmp_path, flip):
    path = tmp_path / "m"
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for place in [*range(0, header_end, 23), *range(header_end, len(whole), 151)]:
        edited = bytearray(whole)
        edited[place] ^= flip
        path.write_bytes(edited)
        refused(path)


class Bomb:
    """Says so when it is unpickled."""

    gone_off = False

    def __reduce__(self):
        return setattr, (Bomb, "gone_off", True)


def test_a_pickle_is_refused_and_not_executed(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps(Bomb()))
    refused(path, "no model file")
    assert not Bomb.gone_off
    pickle.loads(path.read_bytes())
    assert Bomb.gone_off


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"{}", b"\xff" * 64, b"PK\x03\x04" * 50, (2).to_bytes(8, "little") + b"{}"],
)
def test_foreign_bytes(tmp_path, content):
    path = tmp_path / "m"
    path.write_bytes(content)
    refused(path)


def test_other_safetensors_files(tmp_path):
    path = tmp_path / "m"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)
    refused(path, "not one of triegp")
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, {"format": "pt"})
    refused(path, "not one of triegp")
    text = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)
    refused(path, "not one of triegp")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "3", "{}", '"version"', "[" * 100_000, '{"version": 1e999}']
)
def test_headers_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "m"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, {FORMAT: text})
    refused(path)


def write_parts(path, header, arrays):
    """A file with a fitting digest, whatever it says."""
    write_file(path, header, arrays)
    return path


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
    for key in header:
        rest = {name: value for name, value in header.items() if name != key}
        refused(write_parts(tmp_path / "m", rest, arrays))
    member = header["ensembles"][0]["members"][0]
    for key in member:
        edited = copy.deepcopy(header)
        del edited["ensembles"][0]["members"][0][key]
        refused(write_parts(tmp_path / "m", edited, arrays))
    optional = {"ensemble.0.row_weight", "rows.weight", "rows.known_noise"}
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
}
MEMBER_EDITS = {
    "encoder": [-1, 2, None, "0", True, 0.0],
    "nugget": ["both", None, 1],
    "noise": [0.0, -1.0, None, "x", float("nan"), float("inf")],
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
    "mixture weights that do not sum to 1": ("ensemble.0.weight", lambda a: 2 * a),
    "mixture weights below 0": ("ensemble.0.weight", at(0, [-1.0, 2.0, 0.0])),
    "mixture weights of fewer members": ("ensemble.0.weight", lambda a: a[:, :1] * 0 + 1),
    "variance times 0": ("ensemble.0.tempering", np.zeros_like),
    "means pushed apart": ("ensemble.0.tempering", at((0, 0), 1e300)),
    "tempering of one target": ("ensemble.0.tempering", lambda a: a[:1]),
    "shift beyond 1": ("ensemble.0.0.shift", at(0, 1.5)),
    "shift of other features": ("ensemble.0.0.shift", lambda a: a[:2]),
    "a box inside out": ("encoder.0.low", lambda a: a + 100),
    "a box not finite": ("encoder.0.high", at(0, np.nan)),
    "a box of fewer features": ("encoder.0.low", lambda a: a[:2]),
    "precision of 0": ("encoder.0.precision", at(0, 0)),
    "precision of 99": ("encoder.0.precision", at(0, 99)),
    "other precision": ("encoder.0.precision", lambda a: a + 1),
    "knots that fall": ("encoder.1.knots", lambda a: a[:, ::-1].copy()),
    "too few knots": ("encoder.1.knots", lambda a: a[:, :5]),
    "a scale of 0": ("target_scale", np.zeros_like),
    "a mean that is not finite": ("target_mean", at(0, np.inf)),
    "means of fewer targets": ("target_mean", lambda a: a[:1]),
    "fewer training rows": ("rows.X", lambda a: a[:-1]),
    "training rows not finite": ("rows.X", at((0, 0), np.nan)),
    "training rows of text": ("rows.X", lambda a: a.astype(np.int8)),
    "fewer training targets": ("rows.targets", lambda a: a[:-1]),
    "fewer training weights": ("rows.weight", lambda a: a[:-1]),
    "known noise below 0": ("rows.known_noise", at(0, -1.0)),
}


@pytest.mark.parametrize(("name", "edit"), ARRAY_EDITS.values(), ids=ARRAY_EDITS)
def test_arrays_that_do_not_fit(parts, tmp_path, name, edit):
    """The digest fits, the arrays do not: no crash, nothing read out of bounds."""
    header, arrays = parts
    edited = arrays | {name: edit(arrays[name].copy())}
    refused(write_parts(tmp_path / "m", header, edited), "does not hold a whole model")


def test_rows_with_the_same_key_must_be_in_their_order(parts, tmp_path):
    header, arrays = parts
    lcp = arrays["ensemble.0.0.lcp"]
    twin = int(np.argmax(lcp))
    assert lcp[twin] == arrays["ensemble.0.0.bits"].size - 1  # the row nugget leaves one unread
    name = "ensemble.0.0.row_idx"
    edited = arrays | {name: swap(twin - 1, twin)(arrays[name].copy())}
    refused(write_parts(tmp_path / "m", header, edited), "must rise")


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
    check_rows(arrays, "m", len(texts), n_levels)
    for i in range(1, len(texts), 7):
        edited = arrays | {"m.lcp": at(i, lcp[i] + 1)(arrays["m.lcp"].copy())}
        with pytest.raises(ValueError, match=r"m\.lcp"):
            check_rows(edited, "m", len(texts), n_levels)
