"""Packed codes against bits written out one by one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triegp.encoding.codes import Codes, check_precision, pack_codes

INTEGER_TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def written_out(codes, precision):
    """The rows' bits as text, feature after feature, most significant bit first."""
    return [
        "".join(format(int(code), f"0{p}b") for code, p in zip(row, precision, strict=True))
        for row in codes
    ]


def read_back(packed, n_bits):
    """The first bits of packed rows as text; what is left over must be zero."""
    rows = ["".join(format(int(byte), "08b") for byte in row) for row in packed]
    assert all(set(row[n_bits:]) <= {"0"} for row in rows)
    return [row[:n_bits] for row in rows]


@pytest.mark.parametrize("width", range(1, 33))
def test_every_width_at_every_offset(width):
    rng = np.random.default_rng(width)
    for offset in range(1, 9):
        precision = [offset, width, 3]
        codes = np.stack([rng.integers(0, 2**p, size=20) for p in precision], axis=1)
        codes[0], codes[1] = 0, [2**p - 1 for p in precision]
        packed = pack_codes(codes, precision)
        assert packed.packed.dtype == np.uint8
        assert packed.packed.shape == (20, (sum(precision) + 7) // 8)
        assert read_back(packed.packed, sum(precision)) == written_out(codes, precision)
        assert packed.unrelated is None


@st.composite
def code_tables(draw):
    precision = draw(st.lists(st.integers(1, 32), min_size=1, max_size=12))
    row = st.tuples(*(st.integers(0, 2**p - 1) for p in precision))
    return draw(st.lists(row, min_size=1, max_size=5)), precision


@given(code_tables())
def test_mixed_widths(table):
    codes, precision = table
    packed = pack_codes(np.array(codes, dtype=np.uint64), precision)
    assert read_back(packed.packed, packed.n_bits) == written_out(codes, precision)
    assert (packed.n_rows, packed.n_bits) == (len(codes), sum(precision))
    np.testing.assert_array_equal(packed.precision, precision)
    assert packed.precision.dtype == np.int64


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
@pytest.mark.parametrize("width", [1, 7, 8, 16, 32])
def test_integer_types(dtype, width):
    largest = min(2**width - 1, np.iinfo(dtype).max)
    codes = np.array([[0, largest], [1, largest // 2]], dtype=dtype)
    packed = pack_codes(codes, width)
    assert packed.unrelated is None
    assert read_back(packed.packed, 2 * width) == written_out(codes, [width, width])


def test_lists_strides_and_read_only_codes():
    codes = np.arange(24, dtype=np.int64).reshape(4, 6)
    expected = pack_codes(codes, 5).packed
    padded = np.zeros((8, 12), dtype=np.int64)
    padded[::2, ::2] = codes
    read_only = codes.copy()
    read_only.setflags(write=False)
    for same in (codes.tolist(), padded[::2, ::2], np.asfortranarray(codes), read_only):
        np.testing.assert_array_equal(pack_codes(same, 5).packed, expected)


@pytest.mark.parametrize("width", range(1, 33))
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_one_past_the_largest_code_is_outside(width, dtype):
    codes = np.array([[0, 1], [2**width, 1], [2**width - 1, 1]], dtype=dtype)
    packed = pack_codes(codes, [width, 2])
    np.testing.assert_array_equal(packed.unrelated, [False, True, False])
    assert packed.unrelated.dtype == np.bool_
    inside = codes % np.array([2**width, 4], dtype=dtype)
    assert read_back(packed.packed, width + 2) == written_out(inside, [width, 2])


def test_outside_in_any_feature():
    codes = [[0, 0, 0], [4, 0, 0], [0, 0, 2], [4, 8, 2], [3, 7, 1]]
    packed = pack_codes(codes, [2, 3, 1])
    np.testing.assert_array_equal(packed.unrelated, [False, True, True, True, False])


@pytest.mark.parametrize("precision", [[32] * 3125, [1] * 100_000])
def test_as_many_bits_as_allowed(precision):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2 ** np.array(precision), size=(2, len(precision)))
    packed = pack_codes(codes, precision)
    assert packed.n_bits == 100_000
    assert read_back(packed.packed, 100_000) == written_out(codes, precision)


def test_no_rows():
    packed = pack_codes(np.zeros((0, 3), dtype=np.uint8), 5)
    assert packed.packed.shape == (0, 2)
    assert packed.n_rows == 0
    assert packed.unrelated is None


def test_record_is_frozen_and_precision_a_copy():
    precision = np.array([3, 4])
    packed = pack_codes([[1, 2]], precision)
    precision[:] = 9
    np.testing.assert_array_equal(packed.precision, [3, 4])
    assert isinstance(packed, Codes)
    with pytest.raises(dataclasses.FrozenInstanceError):
        packed.unrelated = None


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([1, 2], r"codes must be a two-dimensional integer array, got int64 \(2,\)"),
        ([[1.0, 2.0]], r"codes must be a two-dimensional integer array, got float64 \(1, 2\)"),
        ([[True, False]], "codes must be a two-dimensional integer array, got bool"),
        ([[0, -1]], r"codes of feature 1 must lie in \[0, 2\*\*3\], got -1"),
        ([[9, 0]], r"codes of feature 0 must lie in \[0, 2\*\*3\], got 9"),
        (np.array([[0, 200]], dtype=np.uint8), r"codes of feature 1 must lie .* got 200"),
        (np.array([[0, -128]], dtype=np.int8), r"codes of feature 1 must lie .* got -128"),
        (np.array([[2**64 - 1, 0]], dtype=np.uint64), "codes of feature 0 must lie .* got 1844674"),
    ],
)
def test_bad_codes(codes, message):
    with pytest.raises(ValueError, match=message):
        pack_codes(codes, 3)


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        (0, "precision must be between 1 and 32, got 0 for feature 0"),
        ([3, 33], "precision must be between 1 and 32, got 33 for feature 1"),
        ([3, -1], "precision must be between 1 and 32, got -1 for feature 1"),
        ([3], "precision must have 2 entries, got 1"),
        ([3, 4, 5], "precision must have 2 entries, got 3"),
        (3.0, "precision must be an integer or one integer per feature, got 3.0"),
        (True, "precision must be an integer or one integer per feature, got True"),
        (None, "precision must be an integer or one integer per feature, got None"),
        ("8", "precision must be an integer or one integer per feature, got '8'"),
        ([[3, 4]], r"precision must be an integer or one integer per feature, got \[\[3, 4\]\]"),
        ([[3], [4, 5]], "precision must be an integer or one integer per feature, got"),
        (10**30, "precision must be an integer or one integer per feature, got 1000"),
    ],
)
def test_bad_precision(precision, message):
    with pytest.raises(ValueError, match=message):
        check_precision(precision, 2)


def test_too_many_bits():
    with pytest.raises(ValueError, match="precision must sum to at most 100000 bits, got 100001"):
        check_precision(1, 100_001)
    with pytest.raises(ValueError, match="at most 100000 bits, got 100032"):
        check_precision(np.full(3126, 32, dtype=np.uint8), 3126)
    assert check_precision(np.full(3125, 32, dtype=np.uint8), 3125).sum() == 100_000
