"""What fitted estimators print, odd ones included: numbers that mean something."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import triegp
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=2, n_candidates=4, max_iter=5, random_state=0),
    "forest": TrieGPRegressor(n_trees=2, max_iter=3, random_state=0),
}
RNG = np.random.default_rng(0)
X = RNG.random((40, 2))
Y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(40)


@pytest.fixture(params=MODELS)
def model(request):
    return clone(MODELS[request.param])


def described(model):
    """The part of the text after the parameters."""
    text = repr(model)
    assert "nan" not in text
    assert "inf" not in text
    return re.search(r" fitted: (.*)>$", text)[1]


def test_one_row(model):
    assert re.match(r"1 row, .*, constant y$", described(model.fit(X[:1], Y[:1])))


@pytest.mark.parametrize("value", [0.0, 0.3, 1e300])
def test_constant_targets(model, value):
    text = described(model.fit(X, np.full(40, value)))
    assert re.match(r"40 rows, .*, constant y$", text)
    assert "variance" not in text  # there is none


def test_targets_of_deviation_1_are_not_constant(model):
    y = (Y - Y.mean()) / np.std(Y, ddof=1)
    text = described(model.fit(X, y))
    assert re.match(r"40 rows, .*, noise \S+ of the variance$", text)
    # As it is if no rounding error is left.
    model._stream = replace(model._stream, scale=np.ones(1))
    assert described(model) == text


def test_several_targets(model, tmp_path):
    text = described(model.fit(X, np.stack([Y, 1e3 * Y], axis=1)))
    assert re.match(r"40 rows, 2 targets, .* each, noise \S+, \S+ of the variance$", text)
    model.save(tmp_path / "m")
    assert described(triegp.load(tmp_path / "m")) == text
    text = described(model.fit(X, np.stack([Y] * 5 + [0 * Y], axis=1)))
    expected = r"6 targets, .* noise \S+, \S+, \S+, \.\.\. of the variance, 1 of them constant$"
    assert re.search(expected, text)


def test_targets_that_share_members():
    model = clone(MODELS["mixture"]).set_params(multi_target="shared")
    text = described(model.fit(X, np.stack([Y, 1e3 * Y], axis=1)))
    assert re.match(r"40 rows, 2 targets, .* 2 members, noise \S+, \S+ of the variance$", text)
    model = clone(MODELS["forest"]).set_params(multi_target="shared")
    text = described(model.fit(X, np.stack([Y, 1e3 * Y], axis=1)))
    assert re.match(r"40 rows, 2 targets, \d+ trees?, noise \S+, \S+ of the variance$", text)
