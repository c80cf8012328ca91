"""Layers of more rows than a model holds: the rest sums them up by cell."""

import numpy as np
import pytest

from triegp import TrieGPRegressor, load
from triegp.calibration.model import base_of
from triegp.estimators.pieces import table_pieces

N = 3_000


@pytest.fixture(autouse=True, scope="module")
def few_rows():
    """Cells from 1,000 rows on: a sample of 1,500, of which 300 are held and 500 for the base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triegp.estimators.trie_regressor.HELD_ROWS", 500)
        patch.setattr("triegp.estimators.pieces.SAMPLE_ROWS", 1_500)
        patch.setattr("triegp.estimators.pieces.HELD_ROWS", 300)
        patch.setattr("triegp.layers.train.BASE_ROWS", 500)
        patch.setattr("triegp.layers.train.COMPARED_ROWS", 200)
        yield


def draw(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def make(**given):
    parameters = {"n_trees": 8, "max_iter": 8, "max_cells": 1_000, "random_state": 0}
    return TrieGPRegressor(**parameters | given)


@pytest.fixture(scope="module")
def model(few_rows):
    return make().fit(*draw())


def test_no_row_is_in_two_layers(model):
    found = base_of(model._stream.fitted[0])
    assert found.n_base == 0
    assert found.base.n_rows == 500
    assert found.rest.held.n_rows == found.n_rows == found.n_rows + found.n_base
    assert 200 < found.n_rows < 400
    cells = found.rest.members[0].posteriors[0].rows
    assert cells.count == N - 500
    assert cells.n_rows <= 1_000
    assert model.n_rows_ == N


def test_predictions_are_accurate_and_calibrated(model):
    X, y = draw(2_000, 1)
    truth = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2]
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.06
    low, high = model.predict_interval(X, coverage=0.9).T
    assert 0.84 < np.mean((low <= y) & (y <= high)) < 0.95
    assert np.isfinite(model.loo_score_)


@pytest.mark.parametrize("piece_rows", [N, 700])
def test_any_pieces_give_the_same_bits(model, piece_rows):
    X, y = draw()
    some = draw(50, 1)[0]
    other = make().fit_pieces(table_pieces(X, y, None, 2, piece_rows))
    for one, two in zip(
        model.predict(some, return_std=True), other.predict(some, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_files_hold_all_layers(model, tmp_path):
    some = draw(50, 1)[0]
    model.save(tmp_path / "model.triegp")
    found = load(tmp_path / "model.triegp").predict(some, return_std=True)
    np.testing.assert_array_equal(found, model.predict(some, return_std=True))


def test_added_rows_are_summed_up_too(few_rows):
    model = make(refit=False).fit(*draw())
    X, y = draw(40, 5)
    before = model.predict(X)
    after = model.partial_fit(X, y).predict(X)
    assert np.mean((after - y) ** 2) < np.mean((before - y) ** 2)
    with pytest.raises(ValueError, match="holds"):
        model.loo_predict()
