"""Features as inputs of the smooth part: standardised, and by rank if that differs."""

import numpy as np
import pytest

from tolerances import ROUNDING
from triegp.smooth.coordinates import coordinates_of, fit_coordinates

rng = np.random.default_rng(0)
X = np.column_stack(
    [rng.random(5_000), np.exp(3.0 * rng.standard_normal(5_000)), np.full(5_000, 2.5)]
)


def test_features_that_vary_are_standardised():
    found = fit_coordinates(X)
    np.testing.assert_array_equal(found.features, [0, 1])
    np.testing.assert_array_equal(found.feature_of, [0, 1, 1])
    inputs = coordinates_of(found, X)
    assert inputs.shape == (5_000, found.n_coordinates)
    expected = (X[:, :2] - X[:, :2].mean(axis=0)) / X[:, :2].std(axis=0)
    np.testing.assert_allclose(inputs[:, :2], expected, rtol=ROUNDING, atol=ROUNDING)


def test_ranks_are_uniform_and_of_variance_one():
    found = fit_coordinates(X)
    np.testing.assert_array_equal(found.ranked, [1])  # the others are uniform, or constant
    ranks = coordinates_of(found, X)[:, 2]
    exact = np.sqrt(12.0) * ((np.argsort(np.argsort(X[:, 1])) + 0.5) / 5_000 - 0.5)
    np.testing.assert_allclose(ranks, exact, atol=0.02)
    assert ranks.std() == pytest.approx(1.0, abs=0.01)
    order = np.argsort(X[:, 1])
    assert (np.diff(ranks[order]) >= 0).all()


def test_ranks_end_at_the_border_and_values_go_on():
    found = fit_coordinates(X)
    far = coordinates_of(found, np.array([[0.5, 1e9, 2.5], [0.5, -1e9, 2.5]]))
    edge = coordinates_of(found, np.array([[0.5, X[:, 1].max(), 2.5], [0.5, 0.0, 2.5]]))
    np.testing.assert_array_equal(far[:, 2], edge[:, 2])
    assert far[0, 1] > 1e3
    assert far[1, 1] < -1e3


def test_values_that_repeat_have_the_middle_of_their_ranks():
    column = np.repeat([0.0, 1.0, 10.0], [500, 300, 200])[:, None]
    found = fit_coordinates(column)
    ranks = coordinates_of(found, np.array([[0.0], [1.0], [10.0]]))[:, 1]
    np.testing.assert_allclose(ranks, np.sqrt(12.0) * (np.array([0.25, 0.65, 0.9]) - 0.5))


@pytest.mark.parametrize("rows", [np.ones((5, 3)), np.ones((1, 2)), np.full((4, 1), 1e300)])
def test_without_features_that_vary_there_are_no_coordinates(rows):
    found = fit_coordinates(rows)
    assert found.n_coordinates == 0
    assert coordinates_of(found, rows).shape == (len(rows), 0)


@pytest.mark.parametrize("power", [-1000, 900])
def test_the_size_of_a_feature_does_not_matter(power):
    """Squares of such values are 0 or infinite."""
    found, same = fit_coordinates(np.ldexp(X, power)), fit_coordinates(X)
    np.testing.assert_array_equal(found.features, same.features)
    np.testing.assert_array_equal(found.ranked, same.ranked)
    np.testing.assert_array_equal(
        coordinates_of(found, np.ldexp(X, power)), coordinates_of(same, X)
    )


@pytest.mark.parametrize("value", [1e307, 1.7e308, -1.7e308])
def test_one_huge_value_leaves_all_coordinates_finite(value):
    """Beside it the differences of the others are subnormal numbers."""
    X = np.random.default_rng(0).random((60, 2))
    X[3, 0] = value
    found = coordinates_of(fit_coordinates(X), X)
    assert np.isfinite(found).all()
