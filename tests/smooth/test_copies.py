"""Equal rows against a comparison of all pairs."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from triegp.smooth.copies import first_equal


@pytest.mark.parametrize("d", [1, 2, 5])
def test_first_equal_row(d):
    X = np.random.default_rng(d).integers(-2, 3, (200, d)) * 0.5
    X[X == 0] *= np.random.default_rng(0).choice([-1.0, 1.0], np.count_nonzero(X == 0))
    wanted = (X[:, None] == X).all(axis=2).argmax(axis=1)
    assert_array_equal(first_equal(X), wanted)


def test_small_integers_do_not_collide():
    grid = np.stack(np.meshgrid(np.arange(100.0), np.arange(100.0)), axis=-1).reshape(-1, 2)
    assert_array_equal(first_equal(np.vstack([grid, grid])), np.tile(np.arange(10_000), 2))


def test_no_rows():
    assert first_equal(np.empty((0, 3))).size == 0
