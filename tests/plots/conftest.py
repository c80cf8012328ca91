"""Small fitted models that several tests draw."""

import numpy as np
import pytest

from plot_problems import mixed_frame, problem, quick_forest, quick_mixture


@pytest.fixture(scope="session")
def mixture():
    return quick_mixture().fit(*problem())


@pytest.fixture(scope="session")
def forest():
    return quick_forest().fit(*problem())


@pytest.fixture(scope="session")
def both(mixture, forest):
    return {"mixture": mixture, "forest": forest}


@pytest.fixture(scope="session")
def line():
    """A model of one feature."""
    return quick_mixture().fit(*problem(60, 1))


@pytest.fixture(scope="session")
def table():
    """A model of columns of many kinds, with its frame and targets."""
    frame, y = mixed_frame()
    return quick_mixture().fit(frame, y), frame, y


@pytest.fixture(scope="session")
def two_targets():
    X, y = problem()
    Y = np.column_stack([y, -3 * y + 1])
    return quick_mixture().fit(X, Y), X, Y
