"""Features of two values: one bit each, never shifted."""

import numpy as np
import pytest

import triegp
from encoder_problems import SCALINGS, fitted
from triegp import BinaryTreeGPRegressor, BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.encoding.precision import find_two_valued
from triegp.engines import CpuEngine


def table(n=400, seed=0):
    """Two values, a constant, a number, three values, two values of which one is rare."""
    rng = np.random.default_rng(seed)
    rare = np.where(np.arange(n) == n - 1, 5.0, -1.0)
    number = rng.normal(size=n).round(1)
    columns = [rng.integers(0, 2, n), np.full(n, 3.0), number, rng.integers(0, 3, n)]
    return np.column_stack([*columns, rare]).astype(np.float64)


FEW = [True, True, False, False, True]


def marked(X, kept=None):
    used = X if kept is None else X[kept]
    return find_two_valued(X, used.min(axis=0), used.max(axis=0), kept).tolist()


def test_two_values_are_found_in_any_type_and_in_any_row():
    X = table()
    assert marked(X) == FEW
    for dtype in (np.float32, np.float16):
        assert marked(X.astype(dtype)) == FEW
    large = np.tile(X, (6, 1))
    large[-1, 0] = 0.5  # a third value, in the last block of rows
    assert marked(large) == [False, *FEW[1:]]
    large[0, 4] = 2.0
    assert marked(large) == [False, True, False, False, False]


def test_few_rows_say_nothing_about_values_to_come():
    assert marked(table(100)) == FEW
    assert marked(table(99)) == [False] * 5
    assert marked(table(400), np.arange(99)) == [False] * 5


def test_rows_of_weight_0_do_not_count():
    X = table()
    X[:50, 0] = np.linspace(0, 1, 50)
    weight = np.r_[np.zeros(50), np.ones(350)]
    encoder = BitEncoder(shift="random", random_state=0).fit(X, sample_weight=weight)
    assert encoder.two_valued_.tolist() == FEW
    assert encoder.precision_.tolist() == [1, 1, 9, 9, 1]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_one_bit_separates_two_values(scaling):
    X = table()
    plain = fitted(X, scaling=scaling)
    assert plain.precision_.tolist() == [1, 1, 8, 8, 1]
    shifted = plain.with_shift([0.1, 0.2, 0.3, 0.4, 0.5])
    assert shifted.precision_.tolist() == [1, 1, 9, 9, 1]
    np.testing.assert_array_equal(shifted.shift_, [np.nan, np.nan, 0.3, 0.4, np.nan])
    for encoder in (plain, shifted):
        codes = encoder.transform(X)
        np.testing.assert_array_equal(codes[:, 0], X[:, 0])
        np.testing.assert_array_equal(codes[:, 4], X[:, 4] == 5.0)
        assert not codes[:, 1].any()
    at_once = fitted(X, scaling=scaling, shift=[0.1, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_array_equal(at_once.transform(X), shifted.transform(X))
    assert plain.with_shift(None).precision_.tolist() == plain.precision_.tolist()
    assert shifted.with_shift(None).precision_.tolist() == plain.precision_.tolist()


def test_a_new_value_in_the_box_is_the_nearer_of_the_two():
    encoder = fitted(table())
    new = np.tile(table()[:1], (4, 1))
    new[:, 4] = [-1.0, 1.9, 2.1, 5.0]
    assert encoder.transform(new)[:, 4].tolist() == [0, 0, 1, 1]


def test_given_precision_is_kept_and_gets_no_bit_of_a_shift():
    encoder = fitted(table(), precision=32 * np.ones(5, int) - [0, 0, 1, 1, 0])
    assert encoder.with_shift(np.zeros(5)).precision_.tolist() == [32] * 5
    with pytest.raises(ValueError, match="at most 31 with a shift"):
        fitted(table(), precision=32).with_shift(np.zeros(5))


def test_a_stored_shift_says_which_features_are_not_shifted():
    """Model files store the shift alone. Those of earlier versions shift all features."""
    X = table()
    plain = fitted(X)
    shifted = plain.with_shift(np.full(5, 0.25))
    plain.two_valued_ = None
    again = plain.with_shift(shifted.shift_)
    np.testing.assert_array_equal(again.transform(X), shifted.transform(X))
    assert plain.with_shift(np.full(5, 0.25)).precision_.tolist() == [2, 2, 9, 9, 2]


@pytest.mark.parametrize("outside", ["clip", "unrelated"])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("margin", [0.0, 1.5])
def test_many_grids_agree_with_one_at_a_time(scaling, outside, margin):
    X = table()
    plain = fitted(X, scaling=scaling, outside=outside, margin=margin)
    rng = np.random.default_rng(1)
    grids = [plain, *(plain.with_shift(rng.random(5)) for _ in range(3))]
    new = np.vstack([X, X + rng.normal(size=X.shape)])
    for dtype in (np.float64, np.float32):
        data = new.astype(dtype)
        for grid, found in zip(grids, encode_grids(grids, data, CpuEngine()), strict=True):
            alone = grid.encode_array(data)
            np.testing.assert_array_equal(found.packed, alone.packed)
            if outside == "unrelated":
                np.testing.assert_array_equal(found.unrelated, alone.unrelated)


def test_a_model_of_two_valued_features(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.integers(0, 2, (500, 6)).astype(np.float64)
    X[:, 5] = rng.normal(size=500)
    y = X[:, 0] - 2.0 * X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=500)
    model = BinaryTreeGPRegressor(n_members=4, random_state=0).fit(X[:400], y[:400])
    for member in model.ensembles_[0].members:
        assert member.encoder.precision_[:5].tolist() == [1] * 5
    mean, std = model.predict(X[400:], return_std=True)
    assert np.sqrt(np.mean((mean - y[400:]) ** 2)) < 0.25 * y.std()
    model.save(tmp_path / "m")
    again = triegp.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(X[400:], return_std=True), (mean, std))
    for one in (model, again):
        one.partial_fit(X[400:450], y[400:450])
    np.testing.assert_array_equal(model.predict(X[450:]), again.predict(X[450:]))
