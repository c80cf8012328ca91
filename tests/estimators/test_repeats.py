"""Rows that share their features are folded into one row each."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from tolerances import HANDFUL, ROUNDING
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.encoding.precision import hash_rows
from triegp.estimators.repeats import fold_rows
from triegp.models.repeats import hash_inputs
from triegp.tree.rows import Rows


def make_rows(n=40, n_targets=1, seed=0, weight=None, noise=False, differ=True):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, 2)).astype(float)  # many rows are equal
    y = rng.standard_normal((n, n_targets)) if differ else X @ rng.random((2, n_targets))
    known = 0.5 + X[:, 1] if noise else None
    if weight == "fractions":
        weight = 0.5 * rng.integers(0, 4, n)
    elif weight == "integers":
        weight = rng.integers(0, 4, n).astype(float)
    return Rows(y, known, weight, X)


def groups_by_hand(rows):
    """Rows of weight > 0 by their features, in the order of their hashes with the known noise."""
    found = {}
    for i in range(rows.n_rows):
        if rows.weight is None or rows.weight[i] > 0:
            found.setdefault(tuple(rows.X[i]), []).append(i)
    first = [group[0] for group in found.values()]
    hashes = hash_inputs(rows.X[first].astype(np.float32))
    if rows.known_noise is not None:
        hashes = hash_rows(np.stack([hashes, rows.known_noise[first].view(np.uint64)]))
    return {key: found[key] for _, key in sorted(zip(hashes, found, strict=True))}


@pytest.mark.parametrize("weight", [None, "integers", "fractions"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_repeated_measurements_are_means_weights_and_scatter(weight, n_targets):
    rows = make_rows(n_targets=n_targets, weight=weight, noise=True)
    folded = fold_rows(rows, "frequency")
    groups = groups_by_hand(rows)
    count = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    found = folded.rows
    np.testing.assert_array_equal(found.X, list(groups))
    assert not folded.copies
    assert folded.n_copies == 0
    for k, some in enumerate(groups.values()):
        total = count[some].sum()
        mean = count[some] @ rows.y[some] / total
        np.testing.assert_allclose(found.y[k], mean, atol=HANDFUL)
        np.testing.assert_allclose(found.weight[k], total)
        np.testing.assert_allclose(found.copies[k], total)
        scatter = count[some] @ np.square(rows.y[some] - mean)
        np.testing.assert_allclose(found.scatter[k], scatter, rtol=ROUNDING, atol=HANDFUL)
        assert found.known_noise[k] == rows.known_noise[some[0]]
        np.testing.assert_array_equal(folded.index[some], k)
    np.testing.assert_array_equal(folded.index == -1, count == 0)
    np.testing.assert_array_equal(folded.weight[count > 0], count[count > 0])


@pytest.mark.parametrize("weight", [None, "integers"])
def test_copies_are_one_observation_of_relative_weight(weight):
    rows = make_rows(weight=weight, differ=False)
    folded = fold_rows(rows, "frequency")
    count = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    totals = np.array([count[some].sum() for some in groups_by_hand(rows).values()])
    assert folded.copies
    assert folded.n_copies == totals.sum() - totals.size
    np.testing.assert_allclose(folded.rows.weight, totals / totals.mean())
    assert folded.rows.weight.mean() == pytest.approx(1.0)
    np.testing.assert_array_equal(folded.rows.copies, 1.0)
    assert folded.rows.scatter is None
    assert folded.rows.count == totals.size
    np.testing.assert_array_equal(folded.rows.y[folded.index[count > 0]], rows.y[count > 0])


def test_precision_divides_the_noise_of_one_observation():
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((20, 1)), None, rng.uniform(1, 9, 20), rng.random((20, 2)))
    folded = fold_rows(rows, "precision")
    assert not folded.copies
    assert folded.n_copies == 0
    np.testing.assert_allclose(
        folded.rows.weight[folded.index], rows.weight / rows.weight.mean(), rtol=ROUNDING
    )
    np.testing.assert_array_equal(folded.rows.copies, 1.0)
    twice = fold_rows(replace(rows, weight=7.0 * rows.weight), "precision")
    np.testing.assert_allclose(twice.rows.weight, folded.rows.weight, rtol=ROUNDING)


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("weight", [None, "integers", "fractions"])
def test_the_order_of_the_rows_does_not_matter(weight, differ):
    rows = make_rows(noise=True, weight=weight, differ=differ)
    mixed = np.random.default_rng(1).permutation(rows.n_rows)
    one, two = fold_rows(rows, "frequency"), fold_rows(rows.select(mixed), "frequency")
    for name in ("X", "known_noise", "copies"):
        np.testing.assert_array_equal(getattr(one.rows, name), getattr(two.rows, name))
    for name in ("y", "weight", "scatter"):
        a, b = getattr(one.rows, name), getattr(two.rows, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=HANDFUL)
    np.testing.assert_array_equal(one.index[mixed], two.index)


@pytest.mark.parametrize("differ", [False, True])
def test_weights_are_repetitions(differ):
    rows = make_rows(weight="integers", differ=differ)
    source = np.repeat(np.arange(rows.n_rows), rows.weight.astype(int))
    one = fold_rows(rows, "frequency")
    two = fold_rows(replace(rows, weight=None).select(source), "frequency")
    assert (one.copies, one.n_copies) == (two.copies, two.n_copies)
    np.testing.assert_array_equal(one.rows.X, two.rows.X)
    np.testing.assert_allclose(one.rows.y, two.rows.y, atol=HANDFUL)
    np.testing.assert_allclose(one.rows.weight, two.rows.weight, rtol=ROUNDING)
    np.testing.assert_allclose(one.rows.copies, two.rows.copies, rtol=ROUNDING)
    if differ:
        np.testing.assert_allclose(one.rows.scatter, two.rows.scatter, atol=ROUNDING)


@pytest.mark.parametrize("weight", [None, np.ones(20), np.repeat([1.0, 0.0], 10)])
def test_distinct_rows_are_ordered_by_their_hashes(weight):
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((20, 1)), None, weight, rng.random((20, 3)))
    folded = fold_rows(rows, "frequency")
    used = np.flatnonzero(np.ones(20) if weight is None else weight)
    order = used[np.argsort(hash_inputs(rows.X[used].astype(np.float32)))]
    assert folded.rows.weight is None
    assert folded.weight is None
    np.testing.assert_array_equal(folded.rows.X, rows.X[order])
    np.testing.assert_array_equal(folded.rows.y, rows.y[order])
    np.testing.assert_array_equal(folded.index[order], np.arange(order.size))
    np.testing.assert_array_equal(np.flatnonzero(folded.index >= 0), used)
    assert folded.observations(rows.y).plain


def test_hashes_that_agree_by_chance_change_nothing():
    """Integers beyond 2^53 become the same float64, and so have the same hash."""
    X = np.array([[2**53], [2**53 + 1]])
    folded = fold_rows(Rows(np.zeros((2, 1)), None, None, X), "frequency")
    np.testing.assert_array_equal(folded.rows.X[folded.index], X)


def test_minus_zero_is_zero():
    rows = Rows(np.zeros((2, 1)), None, np.array([0.5, 1.5]), np.array([[0.0], [-0.0]]))
    np.testing.assert_array_equal(fold_rows(rows, "frequency").index, [0, 0])


def test_other_known_noise_is_another_row():
    rows = Rows(np.array([[0.0], [1.0], [2.0]]), np.array([0.1, 0.2, 0.1]), None, np.ones((3, 1)))
    folded = fold_rows(rows, "frequency")
    first, other, again = folded.index
    assert first == again != other
    np.testing.assert_array_equal(folded.rows.y[:, 0], [1.0, 1.0])
    np.testing.assert_array_equal(folded.rows.scatter[[first, other], 0], [2.0, 0.0])


def test_scatter_is_in_units_and_extreme_targets_do_not_overflow():
    y = np.array([1.0, -1.0, 0.5, 0.25])[:, None]
    X = np.array([0.0, 0.0, 1.0, 1.0])[:, None]
    plain = fold_rows(Rows(y, None, None, X), "frequency").rows
    for size in (1e300, 1.7e308, 1e-300):
        large = fold_rows(Rows(size * y, None, None, X), "frequency", np.array([size])).rows
        np.testing.assert_allclose(large.y / size, plain.y, rtol=ROUNDING)
        np.testing.assert_allclose(large.scatter, plain.scatter, rtol=ROUNDING)


def twins(n=100, shift=1e-6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    y = np.sin(5 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return np.vstack([X, X[:40] + shift * rng.standard_normal((40, 3))]), np.append(y, y[:40])


def test_near_twins_with_the_same_target_are_copies():
    X, y = twins()
    folded = fold_rows(Rows(y[:, None], None, None, X), "frequency", y.std())
    assert folded.copies
    assert folded.n_copies == 40
    np.testing.assert_array_equal(folded.index[100:], folded.index[:40])
    assert len(np.unique(folded.index)) == 100


@pytest.mark.parametrize("change", ["targets", "distance", "few rows"])
def test_rows_that_are_no_twins_stay_apart(change):
    X, y = twins(shift=0.1 if change == "distance" else 1e-6)
    if change == "targets":
        y = np.append(y[:100], np.random.default_rng(1).permutation(y[100:]))
    if change == "few rows":
        X, y = X[80:120], y[80:120]
    folded = fold_rows(Rows(y[:, None], None, None, X), "frequency", y.std())
    assert folded.observations(y[:, None]).plain


QUICK = {
    "mixture": BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=3, random_state=0),
    "forest": TrieGPRegressor(n_trees=3, max_iter=2, random_state=0),
}


@pytest.mark.parametrize("name", QUICK)
def test_copies_are_reported_and_measurements_are_not(name):
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 2)), rng.standard_normal(30)
    both = np.vstack([X, X[:10]])
    with pytest.warns(UserWarning, match="10 of the observations are copies of others") as told:
        QUICK[name].fit(both, np.append(y, y[:10]))
    assert told[0].filename == __file__
    QUICK[name].fit(both, np.append(y, y[:10] + 0.1))  # warnings are errors here
    assert QUICK[name].loo_predict()[0].shape == (40,)


@pytest.mark.parametrize("name", QUICK)
def test_order_and_rows_of_weight_0_change_no_bit(name):
    rng = np.random.default_rng(3)
    X, y = rng.random((120, 3)), rng.standard_normal(120)
    more, others = rng.uniform(0.2, 0.8, (300, 3)), 9.0 + rng.standard_normal(300)
    mixed = rng.permutation(420)
    weight = np.repeat([1.0, 0.0], [120, 300])[mixed]
    both = np.vstack([X, more])[mixed], np.append(y, others)[mixed]
    models = [clone(QUICK[name]).fit(X, y), clone(QUICK[name]).fit(*both, sample_weight=weight)]
    for one, two in zip(*(model.predict(more, return_std=True) for model in models), strict=True):
        np.testing.assert_array_equal(one, two)
    place = np.argsort(mixed)[:120]
    for one, two in zip(*(model.loo_predict() for model in models), strict=True):
        np.testing.assert_array_equal(one, two[place])
