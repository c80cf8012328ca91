"""Distributions at some of their rows: what the whole says there."""

import numpy as np
import pytest

from tolerances import ROUNDING
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transformed import TransformedDistribution
from triegp.models.transforms import Log

RNG = np.random.default_rng(0)
MEANS, VARIANCES = RNG.standard_normal((3, 6)), RNG.random((3, 6)) + 0.1
SHARED = np.broadcast_to(MEANS[:1], (3, 6))
BY_ROW = RNG.dirichlet(np.ones(3), 6).T
ROWS = [slice(1, 4), np.array([4, 0, 4]), np.arange(6) % 2 == 0]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("weights", [np.array([0.2, 0.3, 0.5]), BY_ROW])
@pytest.mark.parametrize("means", [MEANS, SHARED])
@pytest.mark.parametrize("transformed", [False, True])
def test_rows_that_are_selected_keep_their_distribution(rows, weights, means, transformed):
    whole = PredictiveDistribution(weights, means, VARIANCES)
    assert whole.select(rows)._one_mean == whole._one_mean
    if transformed:
        whole = TransformedDistribution(whole, Log(0.0))
    some = whole.select(rows)
    np.testing.assert_allclose(some.mean(), whole.mean()[rows], rtol=ROUNDING)
    np.testing.assert_allclose(some.std(), whole.std()[rows], rtol=ROUNDING)
    np.testing.assert_allclose(some.cdf(0.7), whole.cdf(0.7)[rows], rtol=ROUNDING)
