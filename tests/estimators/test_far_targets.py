"""Targets far from all others are told about, long tails are not."""

import warnings

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.estimators.far_targets import find_far

QUICK = [
    (BinaryTreeGPRegressor, {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}),
    (TrieGPRegressor, {"n_trees": 4, "max_iter": 2, "smooth": False, "random_state": 0}),
]


@pytest.mark.parametrize(("kind", "options"), QUICK, ids=["mixture", "trie"])
def test_a_typo_is_named_by_its_row(kind, options):
    X, y = np.random.default_rng(0).random((2, 80, 2))
    y[17, 1] = 1e30
    with pytest.warns(UserWarning, match=r"y is 1e\+30 at row 17: over 1,000 times as far"):
        kind(**options).fit(X, y[:, 1])
    with pytest.warns(UserWarning, match="at row 17 in column 1: over"):
        kind(**options).fit(X, y)
    weight = np.ones(80)
    weight[17] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(**options).fit(X, y[:, 1], sample_weight=weight)


@pytest.mark.parametrize("transform", ["identity", "log"])
@pytest.mark.parametrize(("kind", "options"), QUICK, ids=["mixture", "trie"])
def test_a_typo_among_added_rows_is_named(kind, options, transform):
    X, y = np.random.default_rng(0).random((2, 80, 2))
    X, y = 0.1 + 0.8 * X, 1.0 + y
    X[:2] = [[0.0, 0.0], [1.0, 1.0]]
    model = kind(**options, target_transform=transform, refit=False).fit(X, y[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[5:8], [1.0, 20.0, 3.0])
        model.partial_fit(X[5:7], [1.0, 1e30], sample_weight=[1.0, 0.0])
    with pytest.warns(UserWarning, match=r"y is 1e\+30 at row 1 of the added rows: over 1,000"):
        model.partial_fit(X[5:8], [1.0, 1e30, 2.0])
    both = kind(**options, refit=False).fit(X, y)
    with pytest.warns(UserWarning, match=r"y is 1e\+08 at row 2 in column 1 of the added rows"):
        both.partial_fit(X[5:8], [[1.0, 1.0], [2.0, 1.0], [1.0, 1e8]])


def test_a_constant_target_that_begins_to_vary_is_no_typo():
    X = np.random.default_rng(0).random((60, 2))
    model = BinaryTreeGPRegressor(**QUICK[0][1], refit=False).fit(X, np.full(60, 3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:1], [4.0])


def test_several_typos_do_not_hide_each_other():
    y = np.random.default_rng(1).standard_normal(500)
    y[[3, 5, 7]] = 1e30, -2e30, 1e25
    assert find_far(y).tolist() == [5, 3, 7]
    y[[3, 5, 7]] = 0.0
    assert find_far(y * 1e300).size == 0


LONG_TAILS = {
    "log-normal": lambda rng: np.exp(2 * rng.standard_normal(2_000)),
    "very wide log-normal": lambda rng: np.exp(20 * rng.standard_normal(2_000)),
    "t with 2 degrees": lambda rng: rng.standard_t(2, 2_000),
    "mostly zeros": lambda rng: np.exp(2 * rng.standard_normal(2_000)) * (rng.random(2_000) < 0.05),
    "counts": lambda rng: rng.poisson(0.01, 2_000).astype(float),
}


@pytest.mark.parametrize("name", LONG_TAILS)
def test_long_tails_are_no_typos(name):
    """The chance of one false alarm in 100 sets is below 1e-3 for each of them."""
    rng = np.random.default_rng(2)
    assert not any(find_far(LONG_TAILS[name](rng)).size for _ in range(100))
