"""Where a forest's trees begin: their grids, orders and scales."""

import numpy as np
import pytest
from scipy.stats import qmc

from forest_problems import make_problem
from tolerances import VALUE
from triegp import BitEncoder
from triegp.additive.start import (
    Parameters,
    depths_of,
    draw_grids,
    features_of,
    rescale,
    start_even,
    start_random,
)


@pytest.mark.parametrize("n_trees", [1, 2, 5, 16])
def test_grids_are_spread_evenly(n_trees):
    rng = np.random.default_rng(0)
    X = rng.random((50, 3))
    encoders = [BitEncoder(precision=4, scaling=s).fit(X) for s in ("minmax", "ecdf")]
    grids = draw_grids(encoders, n_trees, rng)
    assert [grid.scaling for grid in grids] == [("minmax", "ecdf")[t % 2] for t in range(n_trees)]
    shifts = np.array([grid.shift_ for grid in grids])
    assert ((shifts >= 0) & (shifts < 1)).all()
    for grid in grids:
        np.testing.assert_array_equal(grid.precision_, [5, 5, 5])
    if n_trees == 16:
        for column in shifts.T:  # one shift in each sixteenth
            np.testing.assert_array_equal(np.sort((16 * column).astype(int)), np.arange(16))
        at_random = [qmc.discrepancy(rng.random((16, 3))) for _ in range(20)]
        assert qmc.discrepancy(shifts) < 0.5 * np.median(at_random)


def test_every_encoder_has_evenly_spread_grids():
    X = np.random.default_rng(0).random((50, 7))
    encoders = [BitEncoder(precision=4, scaling=s).fit(X) for s in ("minmax", "ecdf")]
    grids = draw_grids(encoders, 16, np.random.default_rng(0))
    for first in (0, 1):
        shifts = np.array([grid.shift_ for grid in grids[first::2]])
        np.testing.assert_array_equal((shifts < 0.5).sum(axis=0), np.full(7, 4))


def test_grids_of_very_many_features(monkeypatch):
    monkeypatch.setattr("triegp.additive.start.MAX_SOBOL", 2)
    X = np.random.default_rng(0).random((20, 3))
    grids = draw_grids([BitEncoder(precision=2).fit(X)], 4, np.random.default_rng(0))
    shifts = np.array([grid.shift_ for grid in grids])
    assert ((shifts >= 0) & (shifts < 1)).all()
    assert np.unique(shifts).size == 12


@pytest.mark.parametrize("start", [lambda e, rng: start_even(e, 0.7, rng), start_random])
def test_starts_take_a_features_bits_in_turn(start):
    rng = np.random.default_rng(0)
    encoder = BitEncoder(precision=[3, 5, 1], shift="random", random_state=0)
    encoder.fit(rng.random((40, 3)))
    np.testing.assert_array_equal(encoder.precision_, [4, 6, 2])
    np.testing.assert_array_equal(features_of(encoder), [0] * 4 + [1] * 6 + [2] * 2)
    np.testing.assert_array_equal(depths_of(encoder), [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1])
    seen = set()
    for _ in range(20):
        phi = start(encoder, rng)
        orders = Parameters((phi,), np.zeros(1), 0.0).orders()
        assert orders[0].scale == 1
        rank = np.argsort(orders[0].bits)
        for j in range(3):
            assert (np.diff(rank[features_of(encoder) == j]) > 0).all()
        assert (np.diff(orders[0].levels) < 0).all()
        seen.add(tuple(orders[0].bits.tolist()))
    assert len(seen) > 3  # trees differ


def test_the_starts_profiles():
    encoder = BitEncoder(precision=6).fit(np.random.default_rng(0).random((40, 2)))
    rng = np.random.default_rng(1)
    order = Parameters((start_random(encoder, rng),), np.log([3.0]), 0.0).orders()[0]
    np.testing.assert_allclose(order.levels, 3.0 * np.exp(-np.arange(12) / 2), **VALUE)
    theta = np.exp(start_even(encoder, 0.7, rng)).reshape(2, 6)
    np.testing.assert_allclose(theta[:, 1:] / theta[:, :-1], 0.5**0.7, **VALUE)


def test_rescaling_multiplies_every_variance():
    problem = make_problem()
    other = rescale(problem.parameters, 2.5)
    assert other.noise == pytest.approx(2.5 * problem.parameters.noise)
    for a, b in zip(other.orders(), problem.orders, strict=True):
        np.testing.assert_allclose(a.remaining, 2.5 * b.remaining, **VALUE)
    np.testing.assert_allclose(problem.kernel(parameters=other), 2.5 * problem.kernel(), **VALUE)
