"""Codes in blocks, outside the box, and of many grids at once."""

import pickle

import numpy as np
import pytest

import triegp.encoding.grids
import triegp.encoding.precision
import triegp.encoding.quantiser
from encoder_problems import SCALINGS, fitted
from triegp.encoding.codes import pack_codes
from triegp.encoding.grids import encode_grids
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import FeatureMap, cut, positions
from triegp.engines import CpuEngine

# ---------------------------------------------------------------- transform and encode


@pytest.mark.parametrize(
    ("width", "outside", "dtype"),
    [
        (1, "clip", "uint8"),
        (8, "clip", "uint8"),
        (9, "error", "uint16"),
        (16, "clip", "uint16"),
        (17, "clip", "uint32"),
        (32, "clip", "uint32"),
        (7, "unrelated", "uint8"),
        (8, "unrelated", "uint16"),
        (16, "unrelated", "uint32"),
        (31, "unrelated", "uint32"),
        (32, "unrelated", "uint64"),
    ],
)
def test_type_of_the_codes(width, outside, dtype):
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    codes = fitted(X, precision=[1, width], outside=outside).transform(X)
    assert codes.dtype == dtype
    assert codes.tolist() == [[0, 0], [1, 2**width - 1]]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("shift", [None, [0.5, 0.5]])
def test_outside_the_box(scaling, shift):
    X = np.array([[0.0, 10.0], [1.0, 30.0], [0.5, 20.0]])
    new = np.array([[0.0, 30.0], [-1e-9, 20.0], [0.5, 30.1], [2.0, 0.0], [1.0, 10.0]])
    is_outside = (new < [0, 10]) | (new > [1, 30])
    settings = {"scaling": scaling, "shift": shift, "precision": [4, 32 if shift is None else 31]}
    clip = fitted(X, outside="clip", **settings)
    np.testing.assert_array_equal(
        clip.transform(new), clip.transform(np.clip(new, [0, 10], [1, 30]))
    )
    assert clip.encode(new).unrelated is None
    unrelated = fitted(X, outside="unrelated", **settings)
    expected = np.where(is_outside, 2**unrelated.precision_, clip.transform(new))
    np.testing.assert_array_equal(unrelated.transform(new), expected)
    np.testing.assert_array_equal(unrelated.encode(new).unrelated, is_outside.any(axis=1))
    assert unrelated.encode(X).unrelated is None
    error = fitted(X, outside="error", **settings)
    np.testing.assert_array_equal(error.transform(X), clip.transform(X))
    for method in (error.transform, error.encode):
        with pytest.raises(
            ValueError,
            match=r"X must lie in the training box, got -1e-09 in column 0 at row 1, "
            r"expected 0\.0 to 1\.0",
        ):
            method(new)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("outside", ["clip", "unrelated"])
def test_encode_is_transform_and_pack_in_blocks(scaling, outside, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 60))
    encoder = fitted(X[:1000], scaling=scaling, outside=outside, precision=rng.integers(1, 33, 60))
    codes = encoder.transform(X)
    whole = pack_codes(codes, encoder.precision_)
    monkeypatch.setattr(triegp.encoding.quantiser, "PACK_ENTRIES", 60 * 700)
    blocks = encoder.encode(X)
    np.testing.assert_array_equal(blocks.packed, whole.packed)
    np.testing.assert_array_equal(blocks.precision, whole.precision)
    np.testing.assert_array_equal(blocks.unrelated, whole.unrelated)
    row_by_row = np.concatenate([encoder.transform(row[None]) for row in X[::250]])
    np.testing.assert_array_equal(row_by_row, codes[::250])


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("n_features", [1, 7, 10**6])
def test_blocks_cover_rows_once(n_rows, n_features):
    blocks = row_blocks(n_rows, n_features, 2**10)
    covered = np.concatenate([np.arange(n_rows)[block] for block in blocks])
    np.testing.assert_array_equal(covered, np.arange(n_rows))


def test_positions_and_cut():
    grid = FeatureMap(low=np.array([0.0]), high=np.array([8.0]), shift=np.array([0.5]))
    at = positions(np.array([[-1.0, 0.0, 4.0, 8.0]]), grid)
    np.testing.assert_array_equal(at, [[0.25, 0.25, 0.5, 0.75]])
    np.testing.assert_array_equal(cut(at.copy(), np.array([3])), [[2, 2, 4, 6]])
    np.testing.assert_array_equal(cut(np.array([[0.0, 1.0]]), np.array([3])), [[0, 7]])


@pytest.mark.parametrize("outside", ["clip", "unrelated"])
def test_many_grids_at_once_are_each_alone(outside, monkeypatch):
    """Shared maps, different shifts, precisions, boxes, and encoders that came from files."""
    monkeypatch.setattr(triegp.encoding.grids, "ENTRIES", 5 * 64)  # several blocks
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)).round(1)
    wide = fitted(3.0 * X, outside=outside)
    made = [
        fitted(X[:300], scaling=scaling, outside=outside, precision=precision)
        for scaling in SCALINGS
        for precision in (8, rng.integers(1, 32, 5))
    ]
    made += [one.with_shift(rng.random(5)) for one in made for _ in range(2)]
    made += [wide, pickle.loads(pickle.dumps(made[-1]))]
    for engine in (CpuEngine(), CpuEngine(n_threads=1)):
        for encoder, found in zip(made, encode_grids(made, X, engine), strict=True):
            alone = encoder.encode_array(X)
            np.testing.assert_array_equal(found.packed, alone.packed)
            np.testing.assert_array_equal(found.precision, alone.precision)
            assert (found.unrelated is None) == (alone.unrelated is None)
            if alone.unrelated is not None:
                np.testing.assert_array_equal(found.unrelated, alone.unrelated)
    assert (encode_grids([made[0]], X, CpuEngine())[0].unrelated is None) == (outside == "clip")
    assert encode_grids(made, X[:0], CpuEngine())[0].n_rows == 0


def test_many_grids_refuse_what_one_refuses():
    X = np.random.default_rng(0).normal(size=(500, 3))
    strict = fitted(X[:100], outside="error")
    grids = [strict, strict.with_shift(np.zeros(3))]
    for bad, text in ((X, "X must lie in the training box"), (X * np.nan, "X must be finite")):
        with pytest.raises(ValueError, match=text):
            encode_grids(grids, bad, CpuEngine())
