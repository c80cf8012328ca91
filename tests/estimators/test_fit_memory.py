"""Memory that a fit takes, in bytes that numpy allocates."""

import tracemalloc

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor

N_ROWS = 20_000
OPTIONS = {"n_members": 16, "n_candidates": 1, "max_iter": 1, "engine": "cpu", "n_jobs": 2}


def draw(n_rows):
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n_rows)


@pytest.fixture(scope="module")
def fitted():
    """A model, the bytes that it added to memory, and those at the peak of its fit."""
    model = BinaryTreeGPRegressor(**OPTIONS, random_state=0).fit(*draw(2_000))  # compiles
    X, y = draw(N_ROWS)
    tracemalloc.start()
    model.fit(X, y)
    traced = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return model, *traced


def test_a_fit_takes_little_more_than_its_model(fitted):
    _, stays, peak = fitted
    assert peak < 1.3 * stays  # more than 3 times, where all messages are held twice


def test_a_model_takes_96_bytes_per_row_and_member(fitted):
    model, stays, _ = fitted
    n_members = len(model.ensembles_[0].members)
    assert n_members > 8
    assert stays < N_ROWS * (100 * n_members + 150)  # and rows, targets and their places
