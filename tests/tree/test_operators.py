import numpy as np
import pytest
from hypothesis import given
from scipy.sparse.linalg import cg

import oracle
from problems import make_problem, problems
from tolerances import GRADIENT, VALUE
from triegp.tree import (
    build_trie,
    factorize,
    inverse_diagonal,
    inverse_operator,
    kernel_operator,
    leave_one_out,
    level_products,
    product,
    solve,
    whiten,
)
from triegp.tree import condition as fit_posterior


def prepare(problem, **options):
    trie = build_trie(problem.codes, problem.order)
    factor = factorize(trie, problem.order, problem.noise, known_noise=problem.known, **options)
    return trie, factor


@given(problems)
def test_operators_against_dense_algebra(problem):
    trie, factor = prepare(problem)
    kernel, covariance = problem.kernel(), problem.covariance()
    inverse = np.linalg.inv(covariance)
    x = problem.rng.standard_normal((problem.n, 3))
    levels = problem.order.levels
    np.testing.assert_allclose(product(trie, levels, x), kernel @ x, **VALUE)
    np.testing.assert_allclose(solve(factor, x), inverse @ x, **GRADIENT)
    np.testing.assert_allclose(factor.log_det, np.linalg.slogdet(covariance)[1], **VALUE)
    np.testing.assert_allclose(inverse_diagonal(factor), np.diag(inverse), **GRADIENT)
    root = whiten(factor, np.eye(problem.n))
    np.testing.assert_allclose(root.T @ root, inverse, **GRADIENT)
    for multiply in (
        lambda v: product(trie, levels, v),
        lambda v: solve(factor, v),
        lambda v: whiten(factor, v),
    ):
        np.testing.assert_allclose(multiply(x[:, 0]), multiply(x)[:, 0], **VALUE)


@given(problems)
def test_level_products_against_level_matrices(problem):
    trie, _ = prepare(problem)
    x, z = problem.rng.standard_normal((2, problem.n, 2))
    levels = [np.ones((problem.n, problem.n))]
    if problem.order.n_levels:
        levels.extend(oracle.level_matrices(problem.bits))
    expected = [np.einsum("nk,nm,mk->k", x, level, z) for level in levels]
    np.testing.assert_allclose(level_products(trie, x, z), expected, **VALUE)
    np.testing.assert_allclose(
        level_products(trie, x[:, 0], z[:, 0]), np.array(expected)[:, 0], **VALUE
    )
    by_weight = problem.level_weights @ level_products(trie, x)[1:]
    np.testing.assert_allclose(by_weight, np.diag(x.T @ problem.kernel() @ x), **VALUE)


@given(problems)
def test_diagonal_of_the_inverse_is_the_leave_one_out_precision(problem):
    trie, factor = prepare(problem)
    posterior = fit_posterior(
        trie, problem.codes, problem.order, problem.y, problem.noise, known_noise=problem.known
    )
    alone = leave_one_out(posterior)
    precision = 1 / (alone.var + problem.row_noise())
    np.testing.assert_allclose(inverse_diagonal(factor), precision, **VALUE)
    alpha = solve(factor, problem.y)
    np.testing.assert_allclose(problem.y - alone.mean, alpha / precision, **VALUE)


def test_innovations_of_data_from_the_model_are_standard_normal():
    problem = make_problem(3, n=400, precision=(8, 8))
    _, factor = prepare(problem)
    y = np.linalg.cholesky(problem.covariance()) @ problem.rng.standard_normal((400, 50))
    z = whiten(factor, y)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)


def test_rows_of_weight_zero_are_left_out_of_the_matrix():
    problem = make_problem(5, n=12)
    keep = problem.weight > 0
    assert not keep.all()
    _, factor = prepare(problem, sample_weight=problem.weight)
    noise = problem.row_noise()[keep] / problem.weight[keep]
    covariance = problem.kernel()[np.ix_(keep, keep)] + np.diag(noise)
    x = problem.rng.standard_normal(12)
    got = solve(factor, x)
    np.testing.assert_allclose(got[keep], np.linalg.solve(covariance, x[keep]), **GRADIENT)
    assert not got[~keep].any()
    np.testing.assert_allclose(factor.log_det, np.linalg.slogdet(covariance)[1], **VALUE)
    assert not inverse_diagonal(factor)[~keep].any()


def test_scipy_operators():
    problem = make_problem(6, n=30)
    trie, factor = prepare(problem)
    kernel = kernel_operator(trie, problem.order.levels)
    x = problem.rng.standard_normal(30)
    np.testing.assert_allclose(kernel @ np.eye(30), problem.kernel(), **VALUE)
    np.testing.assert_allclose(kernel.T @ x, problem.kernel() @ x, **VALUE)
    assert kernel.shape == (30, 30)
    inverse = inverse_operator(factor)
    np.testing.assert_allclose(inverse @ (problem.covariance() @ x), x, **GRADIENT)
    got, info = cg(problem.covariance(), x, M=inverse, rtol=1e-12)  # one step, exact
    assert info == 0
    np.testing.assert_allclose(got, np.linalg.solve(problem.covariance(), x), **GRADIENT)


def test_any_levels_that_never_rise():
    """A sum of trees uses the trie with levels of its own."""
    problem = make_problem(7, nugget="bit")
    trie, _ = prepare(problem)
    levels = np.array([7.0, 7.0, 4.0, 4.0, 3.0, 3.0])
    kernel = oracle.kernel(problem.bits, problem.bits, -np.diff(levels))
    x = problem.rng.standard_normal(20)
    np.testing.assert_allclose(product(trie, levels, x), kernel @ x, **VALUE)


def test_bad_input_is_named():
    problem = make_problem(0, n=6)
    trie, factor = prepare(problem)
    levels = problem.order.levels
    with pytest.raises(ValueError, match=r"x must have shape \(6,\) or \(6, k\), got \(5,\)"):
        product(trie, levels, np.zeros(5))
    with pytest.raises(ValueError, match=r"x must be finite, got nan at position \(0, 1\)"):
        solve(factor, np.array([[0.0, np.nan]] * 6))
    with pytest.raises(ValueError, match=r"levels must never rise, got .* at 0, 1"):
        product(trie, np.arange(5.0), np.zeros(6))
    with pytest.raises(ValueError, match=r"levels must span at most 1e\+150"):
        product(trie, np.array([1e151, 0, 0, 0, 0]), np.zeros(6))
    with pytest.raises(ValueError, match=r"x must be at most 1e\+150 in size, got 1e\+200"):
        solve(factor, np.full(6, 1e200))
    with pytest.raises(ValueError, match=r"z must have the shape of x, \(6,\), got \(6, 2\)"):
        level_products(trie, np.zeros(6), np.zeros((6, 2)))
    with pytest.raises(ValueError, match="noise must be positive and finite, got 0"):
        factorize(trie, problem.order, 0)
