"""Leave-one-out among observations that share a row, against dense algebra."""

import numpy as np
import pytest

from tolerances import FITTED, VALUE
from triegp.models.repeats import (
    Observations,
    Others,
    add_others,
    append_others,
    find_observed,
    find_others,
    sort_inputs,
)


def some_observations(copies=False, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    index = np.array([0, 2, 0, 1, -1, 0, 2])
    weight = rng.uniform(0.5, 3.0, 7) if weighted else None
    return Observations(index, rng.standard_normal((7, 2)), weight, copies)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("column", [0, 1])
def test_the_others_are_summed_by_hand(weighted, column):
    seen = some_observations(weighted=weighted)
    weight = seen.weight if weighted else np.ones(7)
    found = find_others(seen, column)
    for i in np.flatnonzero(seen.index >= 0):
        rest = [j for j in range(7) if j != i and seen.index[j] == seen.index[i]]
        assert found.count[i] == len(rest)
        np.testing.assert_allclose(found.weight[i], weight[rest].sum(), **VALUE)
        if rest:
            y = seen.y[rest, column]
            expected = np.average(y, weights=weight[rest])
            np.testing.assert_allclose(found.mean[i], expected, **VALUE)
            spread = np.average(np.square(y - expected), weights=weight[rest])
            np.testing.assert_allclose(found.spread[i], spread, **VALUE)
            away = np.average(np.square(y - 0.7), weights=weight[rest]) * len(rest)
            np.testing.assert_allclose(found.squares(np.full(7, 0.7))[i], away, **VALUE)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_new_observation_has_all_as_its_others(weighted):
    """Its others are those of an observation of weight 0, which is of no row itself."""
    seen = some_observations(weighted=weighted)
    found = find_observed(seen, 1, 4)
    weight = seen.weight if weighted else np.ones(7)
    for row in range(3):
        own = np.flatnonzero(seen.index == row)
        mean = np.average(seen.y[own, 1], weights=weight[own])
        spread = np.average(np.square(seen.y[own, 1] - mean), weights=weight[own])
        told = (found.mean[row], found.weight[row], found.count[row], found.spread[row])
        expected = (mean, weight[own].sum(), own.size, spread)
        np.testing.assert_allclose(told, expected, **VALUE)
    assert (found.weight[3], found.count[3], found.spread[3]) == (0.0, 0.0, 0.0)


def test_inputs_that_come_twice_are_joined():
    """Summaries of parts, joined, are those of all observations."""
    seen = some_observations()
    whole = find_observed(seen, 0, 3)
    parts = []
    for some in (np.arange(3), np.arange(3, 7)):
        y, weight = seen.y[some], seen.weight[some]
        parts.append(find_observed(Observations(seen.index[some], y, weight, False), 0, 3))
    both = append_others(*parts)
    hashes = np.array([5, 9, 7, 5, 9, 7], np.uint64)
    used = both.count > 0
    inputs, (found,) = sort_inputs(hashes[used], (both.select(used),))
    np.testing.assert_array_equal(inputs, [5, 7, 9])
    for name in ("mean", "weight", "count", "spread"):
        expected = getattr(whole, name)[[0, 2, 1]]
        np.testing.assert_allclose(getattr(found, name), expected, **VALUE)


def test_copies_have_no_others():
    found = find_others(some_observations(copies=True), 0)
    parts = (found.mean, found.weight, found.count, found.spread)
    assert not any(part.any() for part in parts)


def test_large_targets_keep_their_accuracy():
    seen = some_observations()
    shifted = Observations(seen.index, seen.y + 1e9, seen.weight, False)
    one, two = find_others(seen, 0), find_others(shifted, 0)
    some = one.count > 0
    np.testing.assert_allclose(two.mean[some] - 1e9, one.mean[some], atol=FITTED)
    np.testing.assert_allclose(two.spread, one.spread, atol=FITTED)
    np.testing.assert_allclose(
        find_observed(shifted, 0, 3).spread, find_observed(seen, 0, 3).spread, atol=FITTED
    )


@pytest.mark.parametrize("n_others", [0, 1, 3])
@pytest.mark.parametrize("run", [0.0, 0.2])
def test_conditioning_on_the_others_is_that_of_gaussians(n_others, run):
    """f = g + run; one other observation has a run of its own, several share it with f."""
    mean, var, noise = 0.4, 0.7, 0.3
    rng = np.random.default_rng(0)
    y, weight = rng.standard_normal(n_others), rng.uniform(0.5, 2.0, n_others)
    own = run if n_others == 1 else 0.0
    cov = np.full((n_others, n_others), var) + np.diag(noise / weight)
    cross = np.full(n_others, var - own)
    gain = np.linalg.solve(cov, cross)
    expected = mean + gain @ (y - mean), var - gain @ cross
    total = weight.sum()
    others = Others(
        np.array([np.average(y, weights=weight) if n_others else 0.0]),
        np.array([total]),
        np.array([float(n_others)]),
        np.zeros(1),
    )
    parts = (np.array([part]) for part in (mean, var, run, noise))
    np.testing.assert_allclose(np.ravel(add_others(*parts, others)), expected, **VALUE)


@pytest.mark.parametrize("large", [1e30, 1e150, 1e300])
def test_weights_of_very_different_size(large):
    """Beside a large weight a small one is rounded away: then there are no others, and no inf."""
    weight = np.array([large, 0.05, 1.0])
    y = np.array([[0.3], [-1.7], [2.0]])
    found = find_others(Observations(np.array([0, 0, 1]), y, weight, False), 0)
    np.testing.assert_array_equal(found.weight, [0.0, large, 0.0])
    np.testing.assert_allclose(found.mean, [0.0, 0.3, 0.0], **VALUE)
    assert np.isfinite(found.spread).all()
