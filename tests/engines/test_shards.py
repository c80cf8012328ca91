"""Everything again with shards of three rows, so that every small problem has several."""

import numpy as np
import pytest
from hypothesis import given

import oracle
from problems import problems
from tolerances import GRADIENT, VALUE
from triegp.engines import cuts
from triegp.tree import (
    build_trie,
    condition,
    dense_covariance,
    draw_samples,
    factorize,
    insert,
    inverse_diagonal,
    joint_mean,
    joint_posterior,
    leave_one_out,
    level_products,
    likelihood,
    predict,
    product,
    solve,
)


@pytest.fixture(autouse=True, scope="module")
def _small_shards():
    before = cuts.SHARD_ROWS, cuts.MAX_SHARDS
    cuts.SHARD_ROWS, cuts.MAX_SHARDS = 3, 1000
    yield
    cuts.SHARD_ROWS, cuts.MAX_SHARDS = before


def fit(problem):
    trie = build_trie(problem.codes, problem.order)
    return condition(
        trie, problem.codes, problem.order, problem.y, problem.noise, known_noise=problem.known
    )


@given(problems)
def test_likelihood_and_operators(problem):
    trie = build_trie(problem.codes, problem.order)
    covariance, kernel = problem.covariance(), problem.kernel()
    got = likelihood(
        trie, problem.order, problem.y, problem.noise, known_noise=problem.known, gradient=True
    )
    np.testing.assert_allclose(got.nll, oracle.nll(covariance, problem.y), **VALUE)
    by_noise = oracle.nll_gradient(covariance, problem.y, np.eye(problem.n))
    np.testing.assert_allclose(got.gradient.by_noise, by_noise, **GRADIENT)
    factor = factorize(trie, problem.order, problem.noise, known_noise=problem.known)
    inverse = np.linalg.inv(covariance)
    np.testing.assert_allclose(product(trie, problem.order.levels, problem.y), kernel @ problem.y)
    np.testing.assert_allclose(solve(factor, problem.y), inverse @ problem.y, **GRADIENT)
    np.testing.assert_allclose(inverse_diagonal(factor), np.diag(inverse), **GRADIENT)
    by_weight = problem.level_weights @ level_products(trie, problem.y)[1:]
    np.testing.assert_allclose(by_weight, problem.y @ kernel @ problem.y, **VALUE)


@given(problems)
def test_posterior_and_joint(problem):
    posterior = fit(problem)
    mean, covariance = oracle.posterior(
        problem.kernel(),
        problem.row_noise(),
        problem.kernel(problem.bits, problem.new_bits),
        problem.kernel(problem.new_bits),
        problem.y,
    )
    got = predict(posterior, problem.new)
    np.testing.assert_allclose(got.mean, mean, **VALUE)
    np.testing.assert_allclose(got.var, np.diag(covariance), **VALUE)
    joint = joint_posterior(posterior, problem.new)
    np.testing.assert_allclose(joint_mean(joint), mean, **VALUE)
    np.testing.assert_allclose(dense_covariance(joint), covariance, **VALUE)
    alone, var = oracle.leave_one_out(problem.kernel(), problem.row_noise(), problem.y)
    np.testing.assert_allclose(leave_one_out(posterior).mean, alone, **VALUE)
    np.testing.assert_allclose(leave_one_out(posterior).var, var, **VALUE)


@given(problems)
def test_insertion(problem):
    posterior = fit(problem)
    grown = insert(posterior, problem.new, np.arange(problem.new.n_rows) / 10)
    both = type(problem.codes)(
        np.vstack([problem.codes.packed, problem.new.packed]), problem.codes.precision
    )
    y = np.append(problem.y, np.arange(problem.new.n_rows) / 10)
    known = np.append(problem.known, np.zeros(problem.new.n_rows))
    trie = build_trie(both, problem.order)
    whole = condition(trie, both, problem.order, y, problem.noise, known_noise=known)
    np.testing.assert_array_equal(leave_one_out(grown).mean, leave_one_out(whole).mean)


def test_copies_of_one_point_are_drawn_as_one():
    from problems import make_problem, take

    problem = make_problem(0, n=20, precision=(6, 4), nugget="bit")
    copies = take(problem.new, np.zeros(7, int))
    samples = draw_samples(joint_posterior(fit(problem), copies), 5, np.random.default_rng(0))
    np.testing.assert_array_equal(samples, np.broadcast_to(samples[0], samples.shape))
    assert samples.std() > 0
