"""Rows of models that forget, and their posterior by dense algebra."""

import numpy as np

import oracle
from regressor_problems import dense_kernel
from tolerances import VALUE
from triegp.tree import predict

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 3, "random_state": 0}
PLAIN = {**QUICK, "mixture": "stacking", "refit": False}


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    X[-2:] = [[0.0, 0.0], [1.0, 1.0]]
    return X, np.sin(5 * X[:, 0]) + (0.1 + X[:, 1]) * rng.standard_normal(n)


def dense(model, X, y, weight, new):
    """Each member's mean and variance of f, given weighted rows, by dense algebra."""
    shift, unit = model.target_mean_[0], model.target_scale_[0]
    found = []
    for member in model.ensembles_[0].members:
        noise = member.posteriors[0].new_noise / weight
        given = dense_kernel(member, X, X), noise, dense_kernel(member, X, new)
        mean, cov = oracle.posterior(*given, dense_kernel(member, new, new), (y - shift) / unit)
        found.append((mean, np.diag(cov)))
    return found


def assert_dense(model, X, y, weight, new):
    ensemble = model.ensembles_[0]
    points = ensemble.read(new, var=True)
    for member, codes, (mean, var) in zip(
        ensemble.members, points, dense(model, X, y, weight, new), strict=True
    ):
        got = predict(member.posteriors[0], codes)
        np.testing.assert_allclose(got.mean, mean, **VALUE)
        np.testing.assert_allclose(got.var, var, **VALUE)
