"""Rows as users pass them: weighted and repeated rows become one form, others stay."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from triegp import BinaryTreeGPRegressor, ForestGPRegressor
from triegp.estimators import inputs
from triegp.estimators.inputs import unify_rows
from triegp.tree.rows import Rows

DEFAULTS = {
    "mixture": BinaryTreeGPRegressor(random_state=0),
    "forest": ForestGPRegressor(random_state=0),
}


def make_rows(n=30, n_targets=1, seed=0, weight=True, noise=False):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, 2)).astype(float)  # many rows are equal
    y = rng.integers(0, 2, (n, n_targets)).astype(float)
    return Rows(
        y,
        rng.integers(1, 3, n).astype(float) if noise else None,
        rng.integers(0, 4, n).astype(float) if weight else None,
        X,
    )


def by_hand(rows):
    """Sum of the weights of every distinct row whose weight is not 0."""
    found = {}
    for i in range(rows.n_rows):
        weight = 1.0 if rows.weight is None else rows.weight[i]
        noise = () if rows.known_noise is None else (rows.known_noise[i],)
        if weight:
            key = (*rows.X[i], *rows.y[i], *noise)
            found[key] = found.get(key, 0.0) + weight
    return dict(sorted(found.items()))


def keys_of(rows):
    parts = [rows.X, rows.y] + ([] if rows.known_noise is None else [rows.known_noise[:, None]])
    return [tuple(row) for row in np.hstack(parts).tolist()]


@pytest.mark.parametrize("form", ["weights", "copies", "fractions"])
@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_one_form_for_weights_and_copies(form, noise, n_targets, monkeypatch):
    rows = make_rows(n_targets=n_targets, weight=form != "copies", noise=noise)
    if form == "fractions":
        rows = replace(rows, weight=0.5 * rows.weight)
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    unified, index = unify_rows(rows)
    expected = by_hand(rows)
    if form == "fractions":
        assert dict(zip(keys_of(unified), unified.weight.tolist(), strict=True)) == expected
        assert keys_of(unified) == list(expected)
    else:
        assert unified.weight is None
        assert keys_of(unified) == [key for key, c in expected.items() for _ in range(int(c))]
        monkeypatch.setattr(inputs, "MAX_COPIES", 1)  # then copies are folded
        few, place = unify_rows(rows)
        assert dict(zip(keys_of(few), few.weight.tolist(), strict=True)) == expected
        np.testing.assert_array_equal(place >= 0, index >= 0)
    for i, k in enumerate(index):
        if weight[i] == 0:
            assert k == -1
        else:
            np.testing.assert_array_equal(unified.X[k], rows.X[i])
            np.testing.assert_array_equal(unified.y[k], rows.y[i])


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_order_of_the_rows_does_not_matter(share):
    rows = make_rows(noise=True)
    rows = replace(rows, weight=share * rows.weight)
    mixed = np.random.default_rng(1).permutation(rows.n_rows)
    (one, _), (two, _) = unify_rows(rows), unify_rows(rows.select(mixed))
    for name in ("X", "y", "known_noise", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("weight", [None, np.ones(20)])
def test_distinct_rows_without_weights_stay_as_they_are(weight):
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((20, 1)), None, weight, rng.random((20, 3)))
    unified, index = unify_rows(rows)
    assert index is None
    assert unified.weight is None
    assert unified.X is rows.X
    assert unified.y is rows.y


def test_rows_that_differ_in_the_target_alone_stay_apart():
    rows = Rows(np.array([[0.0], [1.0], [0.0]]), None, None, np.ones((3, 1)))
    unified, index = unify_rows(rows)
    np.testing.assert_array_equal(unified.y[:, 0], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(index, [0, 2, 0])


def test_hashes_that_agree_by_chance_change_nothing():
    """Integers beyond 2^53 become the same float64, and so have the same hash."""
    X = np.array([[2**53], [2**53 + 1]])
    rows = Rows(np.zeros((2, 1)), None, None, X)
    unified, index = unify_rows(rows)
    assert index is None
    assert unified.X is X
    assert unified.weight is None


def test_minus_zero_is_zero():
    rows = Rows(np.zeros((2, 1)), None, np.array([0.5, 1.0]), np.array([[0.0], [-0.0]]))
    unified, _ = unify_rows(rows)
    np.testing.assert_array_equal(unified.weight, [1.5])


def problem(n=24, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n), rng.integers(0, 3, n)


@pytest.mark.parametrize("model", DEFAULTS.values(), ids=DEFAULTS)
def test_with_default_settings_weights_are_copies_to_the_last_bit(model):
    model = clone(model)
    X, y, weight = problem()
    mixed = np.random.default_rng(1).permutation(len(y))
    model.fit(X[mixed], y[mixed], sample_weight=weight[mixed])
    weighted, loo = model.predict(X, return_std=True), model.loo_predict()[0]
    model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_array_equal(model.predict(X, return_std=True), weighted)
    expected = np.full(len(y), np.nan)  # rows of weight 0 have no leave-one-out prediction
    expected[np.repeat(np.arange(len(y)), weight)] = model.loo_predict()[0]
    np.testing.assert_array_equal(loo, expected[mixed])


@pytest.mark.parametrize("model", DEFAULTS.values(), ids=DEFAULTS)
def test_models_of_weighted_rows_keep_rows_and_files_as_they_came(model, tmp_path):
    model = clone(model)
    import triegp

    X, y, weight = problem()
    model.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.rows_.X, X)
    np.testing.assert_array_equal(model.rows_.weight, weight)
    model.partial_fit(X[:2], y[:2])
    model.save(tmp_path / "model", training_data=True)
    loaded = triegp.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.loo_predict(), model.loo_predict())
    assert loaded.loo_predict()[0].shape == (len(y) + 2,)
    assert f"{len(y) + 2} rows" in repr(loaded)
    np.testing.assert_array_equal(loaded.refresh().predict(X), model.refresh().predict(X))
