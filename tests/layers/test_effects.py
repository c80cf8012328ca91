"""Main effects against dense Gaussian processes and central differences."""

from dataclasses import replace

import numpy as np
import pytest

from triegp.layers.effects import fit_effects, solve_ridge
from triegp.tree.rows import Rows


def make_rows(n=400, seed=0, weight=None):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.random(n), rng.integers(0, 5, n), np.ones(n), rng.normal(size=n)])
    X = np.round(np.clip(X, -2, 5), 1)
    y = np.sin(6 * X[:, 0]) + (X[:, 1] > 2) + 0.1 * rng.normal(size=n)
    return Rows(y[:, None], X=X, weight=weight)


def ramps(x, knots):
    return np.clip((x[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)


def dense_ramps(rows, effects):
    """Centred ramps of all rows, and the function of each, by their definition."""
    parts = [
        ramps(rows.X[:, j], effects.knots[lo:hi])
        for j, lo, hi in zip(effects.features, effects.starts[:-1], effects.starts[1:], strict=True)
    ]
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    design = np.concatenate(parts, axis=1)
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    return design - np.average(design, axis=0, weights=weight), owner


@pytest.mark.parametrize("weighted", [False, True])
def test_posterior_mean_is_that_of_the_dense_process(weighted):
    weight = np.random.default_rng(1).integers(1, 4, 400).astype(float) if weighted else None
    rows = make_rows(weight=weight)
    effects = fit_effects(rows)
    design, owner = dense_ramps(rows, effects)
    counts = np.ones(400) if weight is None else weight
    left = rows.y[:, 0] - np.average(rows.y[:, 0], weights=counts)
    gram, moment = design.T @ (counts[:, None] * design), design.T @ (counts * left)
    square = float(counts @ left**2)
    _, variance, noise = solve_ridge(gram, moment, square, float(counts.sum()), owner)
    kernel = (design * variance[owner]) @ design.T
    dense = kernel @ np.linalg.solve(kernel + np.diag(noise / counts), left)
    found = effects.at(rows.X)[:, 0] - np.average(rows.y[:, 0], weights=counts)
    np.testing.assert_allclose(found, dense, atol=1e-8)
    assert list(effects.features) == [0, 1, 3]  # a constant feature has no function


def test_variances_are_where_the_evidence_is_flat():
    rows = make_rows()
    design, owner = dense_ramps(rows, fit_effects(rows))
    left = rows.y[:, 0] - rows.y[:, 0].mean()
    given = (design.T @ design, design.T @ left, float(left @ left), 400.0, owner)
    _, variance, noise = solve_ridge(*given, n_rounds=400)

    def nll(logs):
        own = np.exp(logs)
        matrix = (design * own[owner]) @ design.T + own[-1] * np.eye(400)
        return 0.5 * (np.linalg.slogdet(matrix)[1] + left @ np.linalg.solve(matrix, left))

    logs, step = np.log(np.append(variance, noise)), 1e-4
    for k in (0, 1, 3):  # the third function has no variance: its evidence is flat there, too
        change = step * np.eye(4)[k]
        slope = (nll(logs + change) - nll(logs - change)) / (2 * step)
        assert abs(slope) < 0.02 * 400**0.5


def test_weights_are_repeated_rows():
    weight = np.random.default_rng(2).integers(1, 4, 400).astype(float)
    rows = make_rows(weight=weight)
    rows = replace(rows, X=np.round(rows.X))  # knots are all values, repeated or not
    again = np.repeat(np.arange(400), weight.astype(int))
    repeated = fit_effects(Rows(rows.y[again], X=rows.X[again]))
    np.testing.assert_allclose(fit_effects(rows).at(rows.X), repeated.at(rows.X), rtol=1e-9)


@pytest.mark.parametrize("weight", [1e-3, 1.0])
def test_small_weights_do_not_make_few_rows(weight):
    rng = np.random.default_rng(0)
    X = rng.random((3_000, 4))
    rows = Rows(np.sin(6 * X[:, :1]) + rng.normal(size=(3_000, 1)), X=X)
    found = fit_effects(replace(rows, weight=np.full(3_000, weight)))
    np.testing.assert_allclose(found.at(X), fit_effects(rows).at(X), rtol=1e-6)


def test_rows_of_large_known_noise_count_little():
    rng = np.random.default_rng(0)
    X, known = rng.random((2_000, 2)), np.where(np.arange(2_000) % 5, 1e4, 0.0)
    truth = np.sin(6 * X[:, 0])
    y = truth + np.sqrt(0.01 + known) * rng.normal(size=2_000)
    found = fit_effects(Rows(y[:, None], known_noise=known, X=X)).at(X)[:, 0]
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.3


def test_several_targets_are_fitted_one_by_one():
    rows = make_rows()
    both = fit_effects(Rows(np.column_stack([rows.y, -2 * rows.y]), X=rows.X)).at(rows.X)
    np.testing.assert_allclose(both[:, 1], -2 * both[:, 0], atol=1e-10)


@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_constant_targets_and_features(constant):
    X = np.ones((20, 2))
    effects = fit_effects(Rows(np.full((20, 1), constant), X=X))
    np.testing.assert_array_equal(effects.at(X), constant)
    X[:10] = 0
    np.testing.assert_allclose(fit_effects(Rows(np.full((20, 1), constant), X=X)).at(X), constant)


def test_of_many_features_those_that_explain_most_are_taken():
    X = np.random.default_rng(0).integers(0, 3, (300, 300)).astype(float)
    effects = fit_effects(Rows(X[:, 250:251] ** 2, X=X))
    assert effects.features.size == 64
    assert 250 in effects.features
    np.testing.assert_allclose(effects.at(X)[:, 0], X[:, 250] ** 2, atol=0.05)
