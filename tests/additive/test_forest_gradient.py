"""The gradient of a forest's likelihood, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import make_problem
from tolerances import DIFFERENCE, VALUE
from triegp.additive.forest import build_forest
from triegp.additive.gradient import forest_gradient
from triegp.additive.start import row_noise
from triegp.engines import CpuEngine


def exact_gradient(problem, targets=None):
    """The gradient with exact solves, and probes whose mean z z' is I."""
    n = problem.rows.y.size
    targets = problem.rows.y[:, None] if targets is None else targets
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).noise
    weight = problem.rows.weight
    dense = problem.kernel() + np.diag(noise if weight is None else noise / weight)
    probes = np.sqrt(n) * np.eye(n)
    return forest_gradient(
        forest,
        problem.orders,
        np.linalg.solve(dense, targets),
        probes,
        np.linalg.solve(dense, probes),
        weight,
        noise,
    )


def difference(value, at, step=1e-5):
    """Central differences of value(x) by every entry of x."""
    out = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        out[i] = (value(at + move) - value(at - move)) / (2.0 * step)
    return out


@pytest.mark.parametrize(
    ("weighted", "known"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_the_gradient_is_that_of_the_dense_nll(weighted, known):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known)
    found, start = exact_gradient(problem), problem.parameters

    def by_phi(t):
        def value(phi):
            parts = (*start.phi[:t], phi, *start.phi[t + 1 :])
            return problem.nll(replace(start, phi=parts))

        return difference(value, start.phi[t])

    for t in range(3):
        np.testing.assert_allclose(found.phi[t], by_phi(t), **DIFFERENCE)
    by_scale = difference(lambda s: problem.nll(replace(start, log_scale=s)), start.log_scale)
    np.testing.assert_allclose(found.log_scale, by_scale, **DIFFERENCE)
    by_noise = difference(
        lambda v: problem.nll(replace(start, log_noise=float(np.log(v[0])))),
        np.array([start.noise]),
    )
    np.testing.assert_allclose(found.noise, by_noise[0], **DIFFERENCE)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_several_targets_is_their_sum(weighted):
    problem = make_problem(n=40, n_trees=3, weighted=weighted)
    targets = np.random.default_rng(1).standard_normal((40, 3))
    both = exact_gradient(problem, targets)
    parts = [exact_gradient(problem, targets[:, [k]]) for k in range(3)]
    np.testing.assert_allclose(both.log_scale, sum(p.log_scale for p in parts), **VALUE)
    np.testing.assert_allclose(both.noise, sum(p.noise for p in parts), **VALUE)
    for t in range(3):
        np.testing.assert_allclose(both.phi[t], sum(p.phi[t] for p in parts), **VALUE)


def test_random_probes_give_the_gradient_on_average():
    problem = make_problem(n=40, n_trees=3)
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    dense = problem.kernel() + np.diag(row_noise(problem.rows, problem.orders, 0.1).noise)
    alpha = np.linalg.solve(dense, problem.rows.y[:, None])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        z = rng.choice([-1.0, 1.0], size=(40, 4))
        solved = np.linalg.solve(dense, z)
        part = forest_gradient(forest, problem.orders, alpha, z, solved)
        found.append(np.concatenate([*part.phi, part.log_scale, [part.noise]]))
    exact = exact_gradient(problem)
    exact = np.concatenate([*exact.phi, exact.log_scale, [exact.noise]])
    bar = np.std(found, axis=0, ddof=1) / np.sqrt(200)
    assert (np.abs(np.mean(found, axis=0) - exact) < 4.5 * bar + 1e-12).all()
