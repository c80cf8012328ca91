"""The encoder against exact arithmetic value by value, numpy.percentile and numpy.unique."""

import math
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import triegp.encoding.encoder
import triegp.encoding.grids
import triegp.encoding.precision
from triegp.encoding.codes import pack_codes
from triegp.encoding.encoder import BitEncoder, row_blocks
from triegp.encoding.grids import encode_grids
from triegp.encoding.precision import paper_precision, separating_precision
from triegp.encoding.scaling import Grid, cut, positions, weighted_percentiles
from triegp.engines import CpuEngine

ALL_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALINGS = ["minmax", "ecdf"]
LARGEST = np.finfo(np.float64).max
SMALLEST = np.finfo(np.float64).smallest_subnormal


def fitted(X, **parameters):
    return BitEncoder(**parameters).fit(np.asarray(X))


def column(values):
    return np.asarray(values, dtype=np.float64)[:, None]


def ecdf_positions(values, at):
    """Where the ECDF of `values` puts the points `at`."""
    values, at = np.asarray(values, dtype=float), np.asarray(at, dtype=float)
    knots = weighted_percentiles(values)
    grid = Grid(values.min(keepdims=True), values.max(keepdims=True), knots[None])
    return positions(at[None].copy(), grid)[0]


def n_unique(rows):
    return len(np.unique(rows, axis=0))


# ---------------------------------------------------------------- min-max


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-(2**19), 2**19), min_size=1, max_size=20),
    width=st.integers(1, 20),
    shift=st.none() | st.integers(0, 2**10 - 1).map(lambda k: Fraction(k, 2**10)),
)
def test_minmax_is_floor_in_exact_arithmetic(values, width, shift):
    encoder = fitted(
        column(values), precision=width, shift=None if shift is None else [float(shift)]
    )
    low, high = min(values), max(values)
    expected = []
    for value in values:
        u = Fraction(value - low, high - low) if high > low else Fraction(0)
        if shift is None:
            expected.append(min(math.floor(u * 2**width), 2**width - 1))
        else:
            cells = 2 ** (width + 1)
            expected.append(min(math.floor((u + shift) / 2 * cells), cells - 1))
    assert encoder.transform(column(values)).ravel().tolist() == expected


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("width", range(1, 33))
def test_ends_of_the_box_take_the_first_and_the_last_code(scaling, width):
    X = column([3.0, -1.0, 0.1, 2.5, 0.7])
    codes = fitted(X, scaling=scaling, precision=width).transform(X).ravel()
    assert codes[1] == 0
    assert codes[0] == 2**width - 1


@pytest.mark.parametrize("scaling", SCALINGS)
def test_each_feature_has_its_own_precision(scaling):
    X = np.random.default_rng(0).normal(size=(50, 4))
    widths = [1, 9, 17, 32]
    codes = fitted(X, scaling=scaling, precision=widths).transform(X)
    for j, width in enumerate(widths):
        alone = fitted(X[:, [j]], scaling=scaling, precision=width).transform(X[:, [j]])
        np.testing.assert_array_equal(codes[:, j], alone.ravel())


# ---------------------------------------------------------------- properties of every scaling


@settings(deadline=None, max_examples=300)
@given(
    values=st.lists(ALL_FLOATS, min_size=1, max_size=25),
    queries=st.lists(ALL_FLOATS, max_size=25),
    width=st.integers(1, 31),
    scaling=st.sampled_from(SCALINGS),
    shift=st.none() | st.floats(0, 1, exclude_max=True),
)
def test_codes_are_monotone_and_in_range(values, queries, width, scaling, shift):
    encoder = fitted(
        column(values),
        precision=width,
        scaling=scaling,
        shift=None if shift is None else [shift],
    )
    ordered = np.sort(values + queries)
    codes = encoder.transform(column(ordered)).ravel().astype(np.int64)
    assert (np.diff(codes) >= 0).all()
    assert codes[0] >= 0
    assert codes[-1] < 2 ** int(encoder.precision_[0])


@settings(deadline=None)
@given(
    values=st.lists(ALL_FLOATS, min_size=2, max_size=25),
    width=st.integers(1, 30),
    scaling=st.sampled_from(SCALINGS),
    shift=st.none() | st.floats(0, 1, exclude_max=True),
)
def test_a_coarser_code_is_a_prefix(values, width, scaling, shift):
    X = column(values)
    settings = {"scaling": scaling, "shift": None if shift is None else [shift]}
    coarse = fitted(X, precision=width, **settings).transform(X)
    fine = fitted(X, precision=width + 1, **settings).transform(X)
    np.testing.assert_array_equal(coarse, fine >> 1)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-LARGEST, 0.0, LARGEST], [0, 128, 255]),
        ([-LARGEST, LARGEST], [0, 255]),
        ([0.0, 8 * SMALLEST, 16 * SMALLEST], [0, 128, 255]),
        ([0.0, SMALLEST], [0, 255]),
        ([1.0, np.nextafter(1.0, 2.0)], [0, 255]),
        ([-0.0, 0.0], [0, 0]),
        ([5.0], [0]),
        ([-LARGEST, -LARGEST], [0, 0]),
    ],
)
def test_extreme_boxes(values, expected, scaling):
    X = column(values)
    codes = fitted(X, scaling=scaling, precision=8).transform(X)
    assert codes.ravel().tolist() == expected


@pytest.mark.parametrize("scaling", SCALINGS)
def test_far_outside_is_clipped_and_does_not_wrap(scaling):
    encoder = fitted(column([0.0, 1e-300, 3e-300]), scaling=scaling, precision=32)
    codes = encoder.transform(column([-LARGEST, LARGEST, -1e-300, 1e19]))
    assert codes.ravel().tolist() == [0, 2**32 - 1, 0, 2**32 - 1]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("shift", [None, [0.75]])
def test_constant_feature(scaling, shift):
    encoder = fitted(column([7.0, 7.0]), scaling=scaling, precision=3, shift=shift)
    codes = encoder.transform(column([7.0, 6.0, 8.0, -LARGEST]))
    assert codes.ravel().tolist() == [0 if shift is None else 6] * 4


# ---------------------------------------------------------------- ECDF and percentiles


@pytest.mark.parametrize("n_rows", [1, 2, 3, 10, 11, 12, 91, 1000])
def test_knots_are_numpy_percentiles(n_rows):
    X = np.random.default_rng(n_rows).normal(size=(n_rows, 3))
    encoder = fitted(X, scaling="ecdf", precision=8)
    expected = np.percentile(X, range(0, 101, 10), axis=0).T
    np.testing.assert_allclose(encoder.knots_, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(encoder.low_, X.min(axis=0))
    np.testing.assert_array_equal(encoder.high_, X.max(axis=0))


def test_ecdf_interpolates_between_knots():
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=500)
    at = np.concatenate([values, rng.uniform(values.min(), values.max(), size=500)])
    knots = np.percentile(values, range(0, 101, 10))
    expected = np.interp(at, knots, np.arange(11) / 10)
    np.testing.assert_allclose(ecdf_positions(values, at), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        ecdf_positions(values, weighted_percentiles(values)), np.arange(11) / 10
    )


def test_ecdf_spreads_rows_evenly():
    X = np.random.default_rng(1).lognormal(sigma=3, size=(10_001, 1))
    codes = fitted(X, scaling="ecdf", precision=1).transform(X)
    assert codes.sum() == 5001  # the median and what is above it


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # percentiles 30, 40, ..., 70 are 5: the map jumps from 0.3 to 0.7
        ([1, 3, 4, 5, 5, 5, 5, 5, 6, 8, 9], {4: 0.2, 4.5: 0.25, 5: 0.5, 5.5: 0.75, 6: 0.8, 9: 1}),
        # percentiles 0 to 50 are 0: the smallest value goes to 0, what is above it above 0.5
        ([0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5], {0: 0, 0.5: 0.55, 1: 0.6, 5: 1}),
        # percentiles 50 to 100 are 9: the largest value goes to 1, what is below it below 0.5
        ([4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9], {4: 0, 8: 0.4, 8.5: 0.45, 9: 1}),
        ([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1], {0: 0, 0.5: 0.75, 1: 1}),
        ([3, 3, 3], {3: 0}),
    ],
)
def test_a_tie_becomes_a_jump(values, expected):
    at = list(expected)
    np.testing.assert_allclose(ecdf_positions(values, at), list(expected.values()), atol=1e-12)


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=60))
def test_ecdf_is_strictly_increasing_and_symmetric(values):
    at = np.unique(np.array(values + [value + 0.5 for value in values], dtype=float))
    at = at[at <= max(values)]
    up = ecdf_positions(values, at)
    assert (np.diff(up) > 0).all()
    down = ecdf_positions(-np.array(values), -at)
    if len(set(values)) > 1:
        np.testing.assert_allclose(down, 1 - up, rtol=0, atol=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.tuples(ALL_FLOATS, st.integers(1, 6)), min_size=1, max_size=20),
)
def test_whole_weights_are_repetitions_in_percentiles(pairs):
    values = np.array([value for value, _ in pairs])
    counts = np.array([count for _, count in pairs])
    repeated = weighted_percentiles(np.repeat(values, counts))
    np.testing.assert_array_equal(weighted_percentiles(values, counts.astype(float)), repeated)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(1e-300, 1e6)),
        min_size=1,
        max_size=20,
    ),
    st.floats(1e-6, 1.0),
)
def test_fractional_weights(pairs, factor):
    values = np.array([value for value, _ in pairs])
    weights = np.array([weight for _, weight in pairs])
    knots = weighted_percentiles(values, weights)
    assert (np.diff(knots) >= 0).all()
    assert (knots[0], knots[-1]) == (values.min(), values.max())
    equal = weighted_percentiles(values, np.full(values.size, factor))
    span = max(1.0, float(np.abs(values).max()))
    np.testing.assert_allclose(equal, weighted_percentiles(values), rtol=0, atol=1e-9 * span)


def test_fractional_weights_by_hand():
    # weights 0.5, 0.5, 1.5: a line of length 2.5, ramps of 0.5, read up to 2.0
    knots = weighted_percentiles(np.array([0.0, 10.0, 20.0]), np.array([0.5, 0.5, 1.5]))
    np.testing.assert_allclose(knots, [0, 4, 8, 12, 16, 20, 20, 20, 20, 20, 20], atol=1e-12)


@pytest.mark.parametrize(("n_values", "weight"), [(3, 0.3), (11, 0.1), (20, 0.7), (7, 1 / 3)])
def test_outer_percentiles_are_exact_though_sums_round(n_values, weight):
    knots = weighted_percentiles(np.arange(float(n_values)), np.full(n_values, weight))
    assert (knots[0], knots[-1]) == (0, n_values - 1)


# ---------------------------------------------------------------- sample weights


@settings(deadline=None)
@given(
    data=st.data(),
    n_rows=st.integers(1, 12),
    scaling=st.sampled_from(SCALINGS),
    precision=st.sampled_from(["auto", 5]),
)
def test_whole_weights_are_repetitions(data, n_rows, scaling, precision):
    value = st.sampled_from([0.0, 1e-4, 2e-4, 0.5, 1.0, 3.0])
    rows = st.lists(st.tuples(value, value), min_size=n_rows, max_size=n_rows)
    X = np.array(data.draw(rows))
    counts = data.draw(st.lists(st.integers(0, 4), min_size=n_rows, max_size=n_rows))
    if sum(counts) == 0:
        counts[0] = 1
    weighted = BitEncoder(scaling=scaling, precision=precision).fit(X, sample_weight=counts)
    repeated = BitEncoder(scaling=scaling, precision=precision).fit(np.repeat(X, counts, axis=0))
    for name in ("low_", "high_", "knots_", "precision_"):
        np.testing.assert_array_equal(getattr(weighted, name), getattr(repeated, name))
    np.testing.assert_array_equal(weighted.transform(X), repeated.transform(X))


def test_rows_of_weight_zero_are_outside_unless_the_others_surround_them():
    X = column([0.0, 1.0, 100.0, 0.5])
    encoder = BitEncoder(precision=4, outside="unrelated").fit(X, sample_weight=[1, 1, 0, 0])
    assert encoder.transform(X).ravel().tolist() == [0, 15, 16, 8]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0, 0.0], "sample_weight must not be negative, got -1.0 at position 1"),
        ([1.0, np.nan, 0.0], "sample_weight must be finite, got nan at position 1"),
        ([1.0], "sample_weight must have 3 entries, got 1"),
        ([[1.0], [1.0], [1.0]], "sample_weight must be one-dimensional"),
        ([0, 0, 0], "sample_weight must have a positive entry, got zeros only"),
        ([1e308, 1e308, 1e308], "sample_weight must have a finite sum, got inf"),
        (["a", "b", "c"], "sample_weight must be an array of real numbers"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        BitEncoder().fit(np.eye(3), sample_weight=weights)


# ---------------------------------------------------------------- shift


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_shift_moves_the_grid_and_keeps_the_width_of_cells(scaling):
    X = np.random.default_rng(0).normal(size=(200, 3))
    shift = np.array([0.0, 0.3, 0.99])
    plain = fitted(X, scaling=scaling, precision=6)
    shifted = fitted(X, scaling=scaling, precision=6, shift=shift)
    assert plain.shift_ is None
    np.testing.assert_array_equal(shifted.precision_, plain.precision_ + 1)
    u = positions(X.T.copy(), Grid(plain.low_, plain.high_, plain.knots_))
    expected = np.floor((u + shift[:, None]) * 2**6)
    np.testing.assert_array_equal(shifted.transform(X), np.minimum(expected, 127).T)


def test_random_shift_is_drawn_from_the_random_state():
    X = np.eye(4)
    one = fitted(X, shift="random", random_state=0).shift_
    assert one.shape == (4,)
    assert ((one >= 0) & (one < 1)).all()
    np.testing.assert_array_equal(one, fitted(X, shift="random", random_state=0).shift_)
    generator = np.random.RandomState(0)
    np.testing.assert_array_equal(one, fitted(X, shift="random", random_state=generator).shift_)
    assert (one != fitted(X, shift="random", random_state=generator).shift_).all()


def test_shift_is_copied():
    shift = np.array([0.5, 0.25])
    encoder = fitted(np.eye(2), shift=shift)
    shift[:] = 0
    np.testing.assert_array_equal(encoder.shift_, [0.5, 0.25])


# ---------------------------------------------------------------- automatic precision


@pytest.mark.parametrize(
    ("n_features", "expected"),
    [(26, 6), (18, 8), (17, 8), (8, 8), (9, 8), (20, 8), (385, 1), (27, 6), (3, 8), (90, 2)],
)
def test_rule_of_the_paper(n_features, expected):
    assert paper_precision(n_features) == expected
    X = np.random.default_rng(0).uniform(size=(3, n_features))
    X[0], X[1] = 0, 1
    assert fitted(X).precision_.tolist() == [expected] * n_features


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 300),
    n_features=st.integers(1, 6),
    scaling=st.sampled_from(SCALINGS),
    shift=st.sampled_from([None, "random"]),
)
def test_bit_strings_become_as_unique_as_rows(seed, n_rows, n_features, scaling, shift):
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 4, size=(n_rows, n_features))
    X = np.array([0.0, 1e-4, 0.5, 1.0])[levels] * rng.choice([1.0, 50.0], n_features)
    encoder = fitted(X, scaling=scaling, shift=shift, random_state=seed)
    assert n_unique(encoder.transform(X)) == n_unique(X)
    assert n_unique(encoder.encode(X).packed) == n_unique(X)
    start = np.where(np.ptp(X, axis=0) == 0, 1, 8) + (shift is not None)
    assert (encoder.precision_ >= start).all()
    assert encoder.n_bits_ == encoder.precision_.sum()


def test_a_regular_grid_needs_one_cell_a_value():
    longitude, latitude = np.meshgrid(np.arange(1080.0), np.arange(50.0))
    X = np.stack([longitude.ravel(), latitude.ravel()], axis=1)
    encoder = fitted(X)
    assert encoder.precision_.tolist() == [11, 8]
    assert n_unique(encoder.transform(X)) == len(X)


def test_only_features_that_separate_are_raised():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 3, size=(2000, 3)).astype(float)
    fine = rng.uniform(size=2000) ** 6
    constant = np.full(2000, 3.0)
    X = np.column_stack([coarse, fine, constant])
    precision = fitted(X).precision_
    assert precision[[0, 1, 2, 4]].tolist() == [8, 8, 8, 1]
    assert precision[3] > 8


def test_features_already_unique_are_left_alone():
    X = np.column_stack([np.arange(256.0), np.arange(256.0) ** 8])
    assert fitted(X).precision_.tolist() == [8, 8]


def test_what_no_precision_separates_costs_no_bits():
    X = np.column_stack([[0.0, 1e-12, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    assert fitted(X).precision_.tolist() == [8, 8]
    assert fitted(np.ones((5, 2))).precision_.tolist() == [1, 1]
    assert fitted(np.ones((5, 2)), shift="random").precision_.tolist() == [2, 2]


def test_precision_stops_at_32_bits():
    X = column([0.0, 2.0**-31, 2.0**-40, 1.0])
    assert fitted(X).precision_.tolist() == [31]
    assert fitted(X, shift=[0.0]).precision_.tolist() == [32]
    assert fitted(X / [[1], [2], [1], [1]], shift=[0.0]).precision_.tolist() == [9]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_order_and_repetition_of_rows_do_not_matter(scaling):
    rng = np.random.default_rng(3)
    X = rng.standard_t(1, size=(3000, 5)).round(1)
    X *= [1.0, 1.0, 1e-3, 10.0, 1.0]
    permuted = X[rng.permutation(len(X))]
    precision = fitted(X, scaling=scaling).precision_
    np.testing.assert_array_equal(fitted(permuted, scaling=scaling).precision_, precision)
    if scaling == "minmax":
        np.testing.assert_array_equal(fitted(np.tile(X, (2, 1))).precision_, precision)
    assert n_unique(fitted(X, scaling=scaling).transform(X)) == n_unique(X)


def greedy_by_hand(pairs, precision):
    """Raise the feature that separates most pairs a bit, fewest bits and first feature on a tie."""
    precision, pairs = list(precision), list(pairs)
    while pairs:
        options = []
        for j, width in enumerate(precision):
            for new in range(width + 1, 33):
                separated = sum(a[j] >> (32 - new) != b[j] >> (32 - new) for a, b in pairs)
                options.append((Fraction(separated, new - width), -j, -new))
        ratio, j, new = max(options)
        if ratio == 0:
            break
        j, new = -j, -new
        precision[j] = new
        pairs = [(a, b) for a, b in pairs if a[j] >> (32 - new) == b[j] >> (32 - new)]
    return precision


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), n_pairs=st.integers(1, 16), n_features=st.integers(1, 4))
def test_choice_of_features_by_hand(seed, n_pairs, n_features):
    rng = np.random.default_rng(seed)
    # The first four bits of feature 0 number the pairs, all other features begin with the same bit.
    left = rng.integers(0, 2**26, size=(n_pairs, n_features), dtype=np.uint32)
    right = left ^ (rng.integers(0, 2, left.shape) << rng.integers(0, 27, left.shape)).astype(
        np.uint32
    )
    for side in (left, right):
        side[:, 0] |= np.arange(n_pairs, dtype=np.uint32) << 28
    full = np.concatenate([left, right]).T
    start = np.array([4] + [1] * (n_features - 1))
    chosen = separating_precision(lambda rows: full[:, rows], [slice(0, 2 * n_pairs)], start)
    distinct = [(a, b) for a, b in zip(left.tolist(), right.tolist(), strict=True) if a != b]
    assert chosen.tolist() == greedy_by_hand(distinct, start)


def test_few_sampled_pairs_take_more_rounds_to_the_same_end(monkeypatch):
    X = np.random.default_rng(4).uniform(size=(4000, 3)) ** 12
    separable = n_unique(fitted(X, precision=32).transform(X))
    assert n_unique(fitted(X).transform(X)) == separable
    monkeypatch.setattr(triegp.encoding.precision, "MAX_PAIRS", 3)
    assert n_unique(fitted(X).transform(X)) == separable


def test_bits_in_all_are_bounded(monkeypatch):
    X = np.random.default_rng(5).uniform(size=(4000, 3)) ** 12
    unbounded = fitted(X)
    assert unbounded.n_bits_ > 30
    for most in range(24, 36):
        monkeypatch.setattr(triegp.encoding.precision, "MAX_BITS", most)
        assert fitted(X).n_bits_ <= most
    bounded = fitted(X)
    unique = [
        n_unique(encoder.transform(X)) for encoder in (fitted(X, precision=8), bounded, unbounded)
    ]
    assert unique[0] < unique[1] < unique[2]


@pytest.mark.parametrize(
    ("most", "expected"), [(6, [2, 2]), (8, [2, 2]), (9, [2, 7]), (20, [2, 7])]
)
def test_a_step_that_no_longer_fits_is_not_taken(monkeypatch, most, expected):
    full = np.array([[0, 0], [0, 1 << 25]], dtype=np.uint32)  # apart at bit 7 of feature 1
    monkeypatch.setattr(triegp.encoding.precision, "MAX_BITS", most)
    chosen = separating_precision(lambda rows: full[:, rows], [slice(0, 2)], np.array([2, 2]))
    assert chosen.tolist() == expected


def test_wide_data():
    X = np.zeros((200, 2000))
    X[np.arange(200), np.arange(200)] = np.linspace(0.01, 0.3, 200)
    X[0] = 1.0
    encoder = fitted(X)
    assert n_unique(encoder.transform(X)) == 200
    assert (encoder.precision_[200:] == 1).all()


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
    assert clip.encode(new).outside is None
    unrelated = fitted(X, outside="unrelated", **settings)
    expected = np.where(is_outside, 2**unrelated.precision_, clip.transform(new))
    np.testing.assert_array_equal(unrelated.transform(new), expected)
    np.testing.assert_array_equal(unrelated.encode(new).outside, is_outside.any(axis=1))
    assert unrelated.encode(X).outside is None
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
    monkeypatch.setattr(triegp.encoding.encoder, "PACK_ENTRIES", 60 * 700)
    blocks = encoder.encode(X)
    np.testing.assert_array_equal(blocks.packed, whole.packed)
    np.testing.assert_array_equal(blocks.precision, whole.precision)
    np.testing.assert_array_equal(blocks.outside, whole.outside)
    row_by_row = np.concatenate([encoder.transform(row[None]) for row in X[::250]])
    np.testing.assert_array_equal(row_by_row, codes[::250])


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("n_features", [1, 7, 10**6])
def test_blocks_cover_rows_once(n_rows, n_features):
    blocks = row_blocks(n_rows, n_features, 2**10)
    covered = np.concatenate([np.arange(n_rows)[block] for block in blocks])
    np.testing.assert_array_equal(covered, np.arange(n_rows))


def test_positions_and_cut():
    grid = Grid(low=np.array([0.0]), high=np.array([8.0]), shift=np.array([0.5]))
    at = positions(np.array([[-1.0, 0.0, 4.0, 8.0]]), grid)
    np.testing.assert_array_equal(at, [[0.25, 0.25, 0.5, 0.75]])
    np.testing.assert_array_equal(cut(at.copy(), np.array([3])), [[2, 2, 4, 6]])
    np.testing.assert_array_equal(cut(np.array([[0.0, 1.0]]), np.array([3])), [[0, 7]])


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
    blocks = 12 * 8 * triegp.encoding.encoder.BLOCK_ENTRIES
    assert fit_peak < blocks
    assert encode_peak < 2 * n_codes + blocks


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["fit", "transform", "encode"])
def test_nonfinite_values_are_named(value, method):
    X = np.random.default_rng(0).normal(size=(3000, 60))
    encoder = fitted(X)
    X[2987, 41] = value
    text = "NaN" if np.isnan(value) else str(value)
    with pytest.raises(ValueError, match=f"X must be finite, got {text} in column 41 at row 2987"):
        getattr(encoder, method)(X)


def test_missing_values_in_lists_are_named():
    with pytest.raises(ValueError, match="X must be finite, got NaN in column 1 at row 0"):
        BitEncoder().fit([[1, None], [2, 3]])


def test_numbers_beyond_float64_are_named():
    if np.finfo(np.longdouble).max > LARGEST:
        with pytest.raises(ValueError, match="X must be finite, got inf in column 0 at row 1"):
            BitEncoder().fit(np.array([[1], ["1e400"]], dtype=np.longdouble))
    with pytest.raises(ValueError, match=r"X must hold real numbers, got 10+ in column 0 at row 1"):
        BitEncoder().fit([[1], [10**400]])


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            [[1, "a"], [2, "b"]],
            ValueError,
            "X must hold real numbers, got 'a' in column 1 at row 0",
        ),
        (np.array([["x", "1"]]), ValueError, "X must hold real numbers, got 'x' in column 0"),
        (np.array([["1", "2"]]), ValueError, "not compatible with arrays of bytes/strings"),
        (np.array([[1, {}]], dtype=object), TypeError, "got {} in column 1 at row 0: .*argument"),
        ([[1, 2j]], ValueError, "Complex data not supported"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), ValueError, "got dtype datetime64"),
        ([[1, 2], [3]], ValueError, "inhomogeneous"),
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
        ({"precision": 8.0}, "precision must be an integer or one integer a feature, got 8.0"),
        ({"precision": None}, "precision must be an integer or one integer a feature, got None"),
        (
            {"precision": [8, 32, 8], "shift": "random"},
            "precision must be at most 31 with a shift, which adds a bit, got 32 for feature 1",
        ),
        ({"shift": "none"}, "shift must be None, 'random' or one number a feature, got 'none'"),
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


# ---------------------------------------------------------------- scikit-learn


@parametrize_with_checks([BitEncoder(), BitEncoder(scaling="ecdf", shift="random", random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_clone_and_parameters():
    encoder = BitEncoder(scaling="ecdf", precision=[3, 4], shift=[0.0, 0.5], outside="error")
    copy = clone(encoder)
    assert copy.get_params() == encoder.get_params()
    assert sorted(copy.get_params()) == [
        "margin",
        "outside",
        "precision",
        "random_state",
        "scaling",
        "shift",
    ]
    with pytest.raises(TypeError, match="positional"):
        BitEncoder("ecdf")
    assert not hasattr(copy, "precision_")


def test_in_a_pipeline_with_weights():
    X = np.random.default_rng(0).normal(size=(30, 2))
    pipeline = make_pipeline(StandardScaler(), BitEncoder(precision=5))
    codes = pipeline.fit_transform(X, bitencoder__sample_weight=np.arange(30) % 2)
    assert codes.shape == (30, 2)
    assert codes.dtype == np.uint8
    assert pipeline.get_feature_names_out(["a", "b"]).tolist() == ["a", "b"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    frames = pytest.importorskip(library)
    numbers = {"age": [30.0, 40.5, 51.0], "n": [1, 5, 9], "flag": [True, False, True]}
    frame = frames.DataFrame(numbers)
    X = np.array(list(numbers.values()), dtype=float).T
    encoder = BitEncoder(precision=4, outside="error").fit(frame)
    assert encoder.feature_names_in_.tolist() == ["age", "n", "flag"]
    assert encoder.get_feature_names_out().tolist() == ["age", "n", "flag"]
    expected = fitted(X, precision=4)
    np.testing.assert_array_equal(encoder.transform(frame), expected.transform(X))
    np.testing.assert_array_equal(encoder.encode(frame).packed, expected.encode(X).packed)

    framed = encoder.set_output(transform=library).transform(frame)
    assert isinstance(framed, frames.DataFrame)
    assert list(framed.columns) == ["age", "n", "flag"]
    np.testing.assert_array_equal(framed, expected.transform(X))
    np.testing.assert_array_equal(encoder.encode(frame).packed, expected.encode(X).packed)

    with pytest.raises(
        ValueError,
        match=r"X must lie in the training box, got 77.0 in column 'n' \(1\) at row 2, "
        r"expected 1.0 to 9.0",
    ):
        encoder.transform(frames.DataFrame(numbers | {"n": [1, 5, 77]}))
    missing = frames.DataFrame(numbers | {"age": [30.0, 40.5, None]})
    for method in (encoder.transform, clone(encoder).fit):
        with pytest.raises(
            ValueError, match=r"X must be finite, got NaN in column 'age' \(0\) at row 2"
        ):
            method(missing)
    text = frames.DataFrame(numbers | {"n": ["1", "five", "9"]})
    with pytest.raises(ValueError, match=r"got 'five' in column 'n' \(1\) at row 1"):
        encoder.transform(text)
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(frame[["n", "age", "flag"]])


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
            assert (found.outside is None) == (alone.outside is None)
            if alone.outside is not None:
                np.testing.assert_array_equal(found.outside, alone.outside)
    assert (encode_grids([made[0]], X, CpuEngine())[0].outside is None) == (outside == "clip")
    assert encode_grids(made, X[:0], CpuEngine())[0].n_rows == 0


def test_many_grids_refuse_what_one_refuses():
    X = np.random.default_rng(0).normal(size=(500, 3))
    strict = fitted(X[:100], outside="error")
    grids = [strict, strict.with_shift(np.zeros(3))]
    for bad, text in ((X, "X must lie in the training box"), (X * np.nan, "X must be finite")):
        with pytest.raises(ValueError, match=text):
            encode_grids(grids, bad, CpuEngine())
