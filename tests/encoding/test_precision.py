"""Automatic precision against numpy.unique and against greedy choice by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triegp.encoding.encoder
import triegp.encoding.grids
import triegp.encoding.precision
from encoder_problems import SCALINGS, column, fitted, n_unique
from profiles import examples
from triegp.encoding.precision import paper_precision, separating_precision

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
    """Add a bit to the feature that separates most pairs; on a tie, fewest bits, then the first."""
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


@settings(max_examples=examples(50))
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
    separable = n_unique(fitted(X, precision=31).transform(X))
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
