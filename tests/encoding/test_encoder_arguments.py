"""Rows of all kinds, and input and parameters that are refused by name."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import triegp.encoding.encoder
import triegp.encoding.grids
import triegp.encoding.precision
import triegp.encoding.reading
from encoder_problems import LARGEST, SCALINGS, fitted
from triegp.encoding.encoder import BitEncoder

# ---------------------------------------------------------------- what comes in


def test_input_of_any_real_type(tmp_path):
    base = np.random.default_rng(0).integers(0, 100, size=(50, 3)).astype(np.int8)
    expected = fitted(base.astype(np.float64)).encode(base.astype(np.float64)).packed
    on_disk = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=base.shape)
    on_disk[:] = base
    on_disk.flush()
    read_only = base.astype(np.float64)
    read_only.setflags(write=False)
    wide = np.zeros((100, 6), dtype=np.float32)
    wide[::2, ::2] = base
    inputs = [base.astype(t) for t in ("u1", "i2", "u8", "f2", "f4", "f8", "g", "O", ">f4", ">i4")]
    inputs += [base.tolist(), np.asfortranarray(base), read_only, wide[::2, ::2]]
    inputs += [np.memmap(tmp_path / "X", dtype=np.float32, mode="r", shape=base.shape)]
    for X in inputs:
        for y in inputs[::5]:
            np.testing.assert_array_equal(BitEncoder().fit(y).encode(X).packed, expected)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_input_is_not_changed(scaling):
    X = np.random.default_rng(0).normal(size=(40, 3))
    before = X.copy()
    encoder = BitEncoder(scaling=scaling, shift="random").fit(X[:20], sample_weight=[2.0] * 20)
    encoder.transform(X)
    encoder.encode(X)
    np.testing.assert_array_equal(X, before)


def test_bool_input():
    X = np.array([[True, False], [False, False]])
    assert fitted(X, precision=2).transform(X).tolist() == [[3, 0], [0, 0]]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_second_copy_of_the_rows(dtype, scaling):
    X = np.random.default_rng(0).uniform(size=(200_000, 20)).astype(dtype)
    encoder = fitted(X[:1000], scaling=scaling, precision=8)
    tracemalloc.start()
    fitted(X, precision=8)
    _, fit_peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    encoder.encode(X)
    _, encode_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n_codes = X.size  # one byte each, as codes and once more as packed bits
    blocks = 12 * 8 * triegp.encoding.reading.BLOCK_ENTRIES
    assert fit_peak < blocks
    assert encode_peak < 2 * n_codes + blocks


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("method", ["fit", "transform", "encode"])
def test_nonfinite_values_are_named(value, method):
    X = np.random.default_rng(0).normal(size=(3000, 60))
    encoder = fitted(X)
    X[2987, 41] = value
    with pytest.raises(ValueError, match=f"X must be finite, got {value} in column 41 at row 2987"):
        getattr(encoder, method)(X)


def test_numbers_beyond_float64_are_named():
    if np.finfo(np.longdouble).max > LARGEST:
        with pytest.raises(ValueError, match="X must be finite, got inf in column 0 at row 1"):
            BitEncoder().fit(np.array([[1], ["1e400"]], dtype=np.longdouble))
    with pytest.raises(ValueError, match=r"X must hold real numbers, got 10+ in column 0 at row 1"):
        BitEncoder().fit([[1], [10**400]])


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([[1, "a"], [2, 3]], TypeError, "got 'a' and then 3 in column 1 at row 1"),
        ([[1, "a"], ["b", "c"]], TypeError, "got 1 and then 'b' in column 0 at row 1"),
        (np.array([[1, {}]], dtype=object), TypeError, "got {} in column 1 at row 0: .*argument"),
        ([[1, 2j]], ValueError, "Complex data not supported"),
        ([[1, 2], [3]], ValueError, "X must have rows of equal length, got 2 values in row 0"),
        (np.zeros((0, 3)), ValueError, "0 sample.*minimum of 1 is required by BitEncoder"),
        (np.zeros((3, 0)), ValueError, "0 feature.*minimum of 1 is required by BitEncoder"),
        (np.zeros(3), ValueError, "Expected 2D array, got 1D array"),
        (np.zeros((2, 2, 2)), ValueError, "dim 3"),
        (scipy.sparse.csr_array(np.eye(2)), TypeError, "dense data is required"),
    ],
)
def test_hostile_input(X, error, message):
    with pytest.raises(error, match=message):
        BitEncoder().fit(X)


def test_hostile_input_after_fit():
    encoder = fitted(np.eye(3))
    for method in (encoder.transform, encoder.encode):
        with pytest.raises(ValueError, match="2 features, but BitEncoder is expecting 3 features"):
            method(np.eye(2))
        with pytest.raises(ValueError, match="0 sample"):
            method(np.zeros((0, 3)))
        with pytest.raises(TypeError, match="dense data is required"):
            method(scipy.sparse.csr_array(np.eye(3)))
    for method in (BitEncoder().transform, BitEncoder().encode):
        with pytest.raises(NotFittedError):
            method(np.eye(3))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scaling": "log"}, "scaling must be one of 'minmax', 'ecdf', got 'log'"),
        ({"outside": 0}, "outside must be one of 'clip', 'unrelated', 'error', got 0"),
        ({"precision": "max"}, "precision must be 'auto', 'paper', an integer or one .* got 'max'"),
        ({"precision": 0}, "precision must be between 1 and 32, got 0 for feature 0"),
        ({"precision": [8, 8, 33]}, "precision must be between 1 and 32, got 33 for feature 2"),
        ({"precision": [8, 8]}, "precision must have 3 entries, got 2"),
        ({"precision": 8.0}, "precision must be an integer or one integer per feature, got 8.0"),
        ({"precision": None}, "precision must be an integer or one integer per feature, got None"),
        (
            {"precision": [8, 32, 8], "shift": "random"},
            "precision must be at most 31 with a shift, which adds a bit, got 32 for feature 1",
        ),
        ({"shift": "none"}, "shift must be None, 'random' or one number per feature, got 'none'"),
        ({"shift": [0, 0.5, 1]}, r"shift must lie in \[0, 1\), got 1.0 for feature 2"),
        ({"shift": [0, -0.5, 0]}, r"shift must lie in \[0, 1\), got -0.5 for feature 1"),
        ({"shift": [0, np.nan, 0]}, "shift must be finite, got nan at position 1"),
        ({"shift": [0, 0.5]}, "shift must have 3 entries, got 2"),
        ({"shift": [["a"]]}, "shift must be an array of real numbers"),
    ],
)
def test_bad_parameters(parameters, message):
    encoder = BitEncoder(**parameters)
    with pytest.raises(ValueError, match=message):
        encoder.fit(np.eye(3))


def test_parameters_changed_after_fit_are_checked():
    encoder = fitted(np.eye(3)).set_params(outside="drop")
    with pytest.raises(ValueError, match=r"outside must be one of .* got 'drop'"):
        encoder.transform(np.eye(3))


def test_too_many_features():
    with pytest.raises(ValueError, match="precision must sum to at most 100000 bits, got 100001"):
        BitEncoder().fit(np.zeros((1, 100_001)))
    with pytest.raises(ValueError, match="precision must sum to at most 100000 bits, got 100002"):
        BitEncoder(shift="random").fit(np.zeros((1, 50_001)))
    with pytest.raises(ValueError, match="precision must sum to at most 100000 bits, got 100032"):
        BitEncoder(precision=32).fit(np.zeros((1, 3126)))


def test_as_many_bits_as_allowed():
    X = np.random.default_rng(0).uniform(size=(3, 3125))
    codes = fitted(X, precision=32).encode(X)
    assert codes.n_bits == 100_000
    wide = fitted(np.tile(X, (1, 32)))
    assert wide.n_bits_ == 100_000
    assert wide.transform(np.tile(X, (1, 32))).max() == 1


@pytest.mark.parametrize("two_valued", [False, True])
@pytest.mark.parametrize("shift", [[0.5], [0.5, 0.5], [0.5] * 4, [np.nan], [[0.5] * 3]])
def test_another_shift_has_one_number_per_feature(shift, two_valued):
    """A single number must not stand for all features: kernels read one for each."""
    data = np.random.default_rng(0).random((40, 3))
    if two_valued:
        data[:, 1] = np.arange(40) % 2
    with pytest.raises(ValueError, match="shift must"):
        BitEncoder().fit(data).with_shift(shift)
