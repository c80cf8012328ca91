"""Leave-one-out among observations that share a row, against dense algebra."""

import numpy as np
import pytest

from tolerances import FITTED, VALUE
from triegp.models.repeats import Observations, Others, add_others, find_others


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
            expected = np.average(seen.y[rest, column], weights=weight[rest])
            np.testing.assert_allclose(found.mean[i], expected, **VALUE)


def test_copies_have_no_others():
    found = find_others(some_observations(copies=True), 0)
    assert not any(part.any() for part in (found.mean, found.weight, found.count))


def test_large_targets_keep_their_accuracy():
    seen = some_observations()
    shifted = Observations(seen.index, seen.y + 1e9, seen.weight, False)
    one, two = find_others(seen, 0), find_others(shifted, 0)
    some = one.count > 0
    np.testing.assert_allclose(two.mean[some] - 1e9, one.mean[some], atol=FITTED)


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
    )
    parts = (np.array([part]) for part in (mean, var, run, noise))
    np.testing.assert_allclose(np.ravel(add_others(*parts, others)), expected, **VALUE)
