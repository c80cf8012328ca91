"""Every table of the corpus gets its answer, and leaves a fitted model as it was."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from hostile_tables import CORPUS, FRAME, NEW, NEW_FRAME, X, Y
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=2, random_state=0),
    "forest": TrieGPRegressor(n_trees=2, max_iter=1, random_state=0),
}
ADDED = [name for name in CORPUS if name != "sample_weight, all zero"]  # they do nothing


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return clone(MODELS[request.param]).fit(X, Y)


@pytest.fixture(scope="module", params=MODELS)
def fitted_to_a_table(request):
    return clone(MODELS[request.param]).fit(NEW_FRAME, Y)


def arguments(name):
    bad = CORPUS[name]
    return {"X": X, "y": Y} | bad.given, bad


@pytest.mark.parametrize("name", CORPUS)
def test_fit_says_what_is_wrong(fitted, name):
    given, bad = arguments(name)
    before = fitted.predict(X)
    with pytest.raises(bad.error, match=bad.message):
        fitted.fit(**given)
    np.testing.assert_array_equal(fitted.predict(X), before)
    assert fitted.n_rows_ == X.shape[0]


@pytest.mark.filterwarnings("ignore:X has feature names, but")
@pytest.mark.parametrize("name", ADDED)
def test_rows_that_cannot_be_added_leave_the_model(fitted, name):
    given, _ = arguments(name)
    before = fitted.predict(X)
    with pytest.raises((ValueError, TypeError)) as caught:
        fitted.partial_fit(**given)
    assert len(str(caught.value)) > 10
    assert fitted.n_rows_ == X.shape[0]
    np.testing.assert_array_equal(fitted.predict(X), before)


@pytest.mark.parametrize("name", NEW)
def test_predictions_of_wrong_rows(fitted_to_a_table, name):
    rows, message, error = NEW[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        for ask in (fitted_to_a_table.predict, fitted_to_a_table.predict_interval):
            with pytest.raises(error, match=message):
                ask(rows)


def test_the_good_rows_are_good():
    for model in MODELS.values():
        clone(model).fit(FRAME, Y, np.ones(len(Y)), np.zeros(len(Y))).predict(FRAME)


def test_the_corpus_is_large():
    assert len(CORPUS) + len(NEW) > 120
