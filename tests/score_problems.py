"""Predictive distributions of every shape, to be scored."""

import numpy as np

from triegp import PredictiveDistribution


def random_mixture(seed=0, m=9, k=4, *, one_mean=False, by_row=False):
    """k Gaussians at m rows; one_mean: broadcast means; by_row: weights of every row."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k), m if by_row else None)
    means = rng.standard_normal((k, m))
    if one_mean:
        means = np.broadcast_to(means[0], (k, m))
    return PredictiveDistribution(weights.T.copy(), means, rng.gamma(2.0, 0.5, (k, m)) + 1e-2)


SHAPES = {
    "one component": {"k": 1},
    "own means": {},
    "one mean": {"one_mean": True},
    "weights by row": {"by_row": True},
    "one mean, weights by row": {"one_mean": True, "by_row": True},
    "many": {"k": 25, "m": 40},
}


def targets(m, seed=1):
    return 2.0 * np.random.default_rng(seed).standard_normal(m)
