"""Min-max and ECDF scaling, weights and shifts against exact arithmetic and numpy.percentile."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_problems import ALL_FLOATS, LARGEST, SCALINGS, SMALLEST, column, ecdf_positions, fitted
from profiles import examples
from tolerances import CHAINED, ROUNDING
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.scaling import FeatureMap, positions, weighted_percentiles

# ---------------------------------------------------------------- min-max


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


@settings(max_examples=examples(300))
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
    np.testing.assert_allclose(encoder.knots_, expected, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_array_equal(encoder.low_, X.min(axis=0))
    np.testing.assert_array_equal(encoder.high_, X.max(axis=0))


def test_ecdf_interpolates_between_knots():
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=500)
    at = np.concatenate([values, rng.uniform(values.min(), values.max(), size=500)])
    knots = np.percentile(values, range(0, 101, 10))
    expected = np.interp(at, knots, np.arange(11) / 10)
    np.testing.assert_allclose(ecdf_positions(values, at), expected, rtol=0, atol=ROUNDING)
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
    np.testing.assert_allclose(ecdf_positions(values, at), list(expected.values()), atol=ROUNDING)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=60))
def test_ecdf_is_strictly_increasing_and_symmetric(values):
    at = np.unique(np.array(values + [value + 0.5 for value in values], dtype=float))
    at = at[at <= max(values)]
    up = ecdf_positions(values, at)
    assert (np.diff(up) > 0).all()
    down = ecdf_positions(-np.array(values), -at)
    if len(set(values)) > 1:
        np.testing.assert_allclose(down, 1 - up, rtol=0, atol=ROUNDING)


@given(
    st.lists(st.tuples(ALL_FLOATS, st.integers(1, 6)), min_size=1, max_size=20),
)
def test_whole_weights_are_repetitions_in_percentiles(pairs):
    values = np.array([value for value, _ in pairs])
    counts = np.array([count for _, count in pairs])
    repeated = weighted_percentiles(np.repeat(values, counts))
    np.testing.assert_array_equal(weighted_percentiles(values, counts.astype(float)), repeated)


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
    np.testing.assert_allclose(equal, weighted_percentiles(values), rtol=0, atol=CHAINED * span)


def test_fractional_weights_by_hand():
    # weights 0.5, 0.5, 1.5: a line of length 2.5, ramps of 0.5, read up to 2.0
    knots = weighted_percentiles(np.array([0.0, 10.0, 20.0]), np.array([0.5, 0.5, 1.5]))
    np.testing.assert_allclose(knots, [0, 4, 8, 12, 16, 20, 20, 20, 20, 20, 20], atol=ROUNDING)


@pytest.mark.parametrize(("n_values", "weight"), [(3, 0.3), (11, 0.1), (20, 0.7), (7, 1 / 3)])
def test_outer_percentiles_are_exact_though_sums_round(n_values, weight):
    knots = weighted_percentiles(np.arange(float(n_values)), np.full(n_values, weight))
    assert (knots[0], knots[-1]) == (0, n_values - 1)


# ---------------------------------------------------------------- sample weights


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
    u = positions(X.T.copy(), FeatureMap(plain.low_, plain.high_, plain.knots_))
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
