"""Memory that a fit takes, in bytes that numpy allocates."""

import tracemalloc

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor

N_ROWS = 60_000
OPTIONS = {"n_members": 16, "n_candidates": 1, "max_iter": 1, "engine": "cpu", "n_jobs": 2}


def draw(n_rows):
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n_rows)


@pytest.fixture(scope="module")
def fitted():
    """Members of a model, and bytes per row: that it takes, at the peak of its fit, and once it
    has predicted.
    """
    model = BinaryTreeGPRegressor(**OPTIONS, random_state=0).fit(*draw(2_000))  # compiles
    X, y = draw(N_ROWS)
    tracemalloc.start()
    model.fit(X, y)
    stays, peak = tracemalloc.get_traced_memory()
    model.predict(X[:10])
    uses, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n_members = len(model.ensembles_[0].members)
    assert n_members >= 8
    return n_members, stays / N_ROWS, peak / N_ROWS, uses / N_ROWS


def test_a_fit_holds_tries_keys_and_one_prediction_per_member(fitted):
    n_members, _, peak, _ = fitted
    assert peak < 48 * n_members + 480  # and the messages of two members, and rows


def test_a_model_takes_32_bytes_per_row_and_member_and_messages_once_it_predicts(fitted):
    n_members, stays, _, uses = fitted
    assert stays < 36 * n_members + 150  # and rows, targets and their places
    assert uses < 100 * n_members + 150
