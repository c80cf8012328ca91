"""Orders learned from growing parts of the rows."""

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor
from triegp.mixture import learning, parts
from triegp.mixture.parts import Parts, part_sizes
from triegp.mixture.settings import members_for, settings_of
from triegp.tree.rows import Rows

FEW = {"n_members": 3, "n_candidates": 2, "random_state": 0}


def smooth_rows(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of at least 50 rows; returns the sizes and grids of each training."""
    seen = []
    real = learning._train_orders

    def note(starts, problems, *given):
        seen.append((next(iter(problems.values())).codes.n_rows, [grid for grid, _ in starts]))
        return real(starts, problems, *given)

    monkeypatch.setattr(parts, "LEAST_ROWS", 50)
    monkeypatch.setattr(learning, "_train_orders", note)
    return seen


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [
        (1, [1]),
        (39_999, [39_999]),
        (40_000, [10_000, 40_000]),
        (1_000_000, [15_625, 62_500, 250_000, 1_000_000]),
    ],
)
def test_each_part_is_a_quarter_of_the_next(n_rows, sizes):
    assert part_sizes(n_rows) == sizes


def test_parts_are_nested_and_keep_the_order_of_the_rows():
    y = np.arange(100.0)[:, None]
    found = Parts(Rows(y, X=2 * y), [6, 25, 100], np.random.default_rng(0))
    few, more, every = (found.rows(k) for k in range(3))
    assert set(few.y[:, 0]) < set(more.y[:, 0]) < set(every.y[:, 0])
    for some in (few, more, every):
        assert (np.diff(some.y[:, 0]) > 0).all()
        np.testing.assert_array_equal(some.features, 2 * some.y)
    np.testing.assert_array_equal(every.y, y)


def test_orders_that_gain_nothing_are_not_trained_on_more_rows(small_parts, monkeypatch):
    X, y = smooth_rows(900)
    model = BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [size for size, _ in small_parts] == [56, 225, 900]
    assert model.ensembles_[0].n_rows == 900
    small_parts.clear()
    monkeypatch.setattr(learning, "LEAST_GAIN", np.inf)
    BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [size for size, _ in small_parts] == [56]


def test_members_go_on_independently_of_each_other(small_parts):
    """A member's order does not depend on how many others there are."""
    X, y = smooth_rows(900)
    few = {**FEW, "mixture": "stacking"}
    three = BinaryTreeGPRegressor(**few).fit(X, y)
    both = BinaryTreeGPRegressor(**{**few, "n_members": 2}).fit(X, y)
    for one in both.ensembles_[0].members:
        same = [
            other
            for other in three.ensembles_[0].members
            if np.array_equal(one.encoder.shift_, other.encoder.shift_)
        ]
        assert len(same) <= 1  # a member of weight 0 is left out
        for other in same:
            assert one.trained.n_iter == other.trained.n_iter


def test_parts_are_as_good_as_all_rows(small_parts, monkeypatch):
    X, y = smooth_rows(2_000)
    new, truth = smooth_rows(500, seed=1)
    by_parts = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y)
    assert len(small_parts) > 1
    monkeypatch.setattr(parts, "LEAST_ROWS", 10_000)
    whole = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y)
    scores = [model.log_density(new, truth).mean() for model in (by_parts, whole)]
    assert scores[0] > scores[1] - 0.05


def test_threads_make_no_difference(small_parts):
    X, y = smooth_rows(900)
    one, two = (BinaryTreeGPRegressor(**FEW, n_jobs=k).fit(X, y) for k in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_weights_of_softmax_compare_all_rows():
    assert settings_of("default", {}).by_parts
    assert not settings_of("default", {"mixture": "best"}).by_parts
    assert not settings_of("paper-bte", {}).by_parts


@pytest.mark.parametrize(
    ("n_rows", "members"), [(0, 24), (2_000_000, 24), (3_000_000, 16), (6_000_000, 8), (10**8, 8)]
)
def test_very_many_rows_have_fewer_members(n_rows, members):
    assert members_for(n_rows, 24) == members
    assert members_for(n_rows, 3) == 3


def test_fewer_members_only_by_default(monkeypatch):
    monkeypatch.setattr("triegp.mixture.settings.MANY_ROWS", 100)
    monkeypatch.setattr("triegp.mixture.settings.LEAST_MEMBERS", 2)
    X, y = smooth_rows(1_200)
    seen = []
    real = learning.learn_orders

    def note(grids, *given):
        seen.append(len(grids))
        return real(grids, *given)

    monkeypatch.setattr("triegp.mixture.train.learn_orders", note)
    quick = {"n_candidates": 1, "max_iter": 3, "random_state": 0}
    BinaryTreeGPRegressor(**quick).fit(X, y)
    assert seen[0] == 2
    seen.clear()
    BinaryTreeGPRegressor(**quick, n_members=5).fit(X, y)
    assert seen[0] == 5


def test_messages_of_very_many_rows_are_float32(monkeypatch):
    X, y = smooth_rows(1_200)
    quick = {"n_candidates": 1, "max_iter": 10, "random_state": 0, "n_members": 3}
    exact = BinaryTreeGPRegressor(**quick).fit(X, y)
    monkeypatch.setattr("triegp.mixture.train.MANY_ROWS", 1_000)
    short = BinaryTreeGPRegressor(**quick).fit(X, y)
    part = short.ensembles_[0].members[0].posteriors[0]
    assert part.inside[0].dtype == part.outside[0].dtype == np.float32
    for one, two in zip(exact.predict(X, True), short.predict(X, True), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    grown = short.partial_fit(X[:5] + 1e-3, y[:5])
    assert grown.ensembles_[0].members[0].posteriors[0].inside[0].dtype == np.float32


def test_members_share_their_targets():
    X, y = smooth_rows(300)
    members = BinaryTreeGPRegressor(**FEW).fit(X, y).ensembles_[0].members
    first = members[0].posteriors[0].rows.y
    assert all(member.posteriors[0].rows.y is first for member in members)
    assert not np.shares_memory(first, y)
