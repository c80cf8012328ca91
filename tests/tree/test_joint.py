import numpy as np
import pytest
from hypothesis import given

import oracle
from problems import make_problem, problems
from tolerances import VALUE
from triegp.encoding import Codes
from triegp.tree import (
    build_trie,
    condition,
    covariance_operator,
    covariance_product,
    dense_covariance,
    draw_samples,
    joint_mean,
    joint_posterior,
    joint_prior,
    predict,
)


def fit(problem):
    trie = build_trie(problem.codes, problem.order)
    return condition(
        trie, problem.codes, problem.order, problem.y, problem.noise, known_noise=problem.known
    )


def dense(problem):
    return oracle.posterior(
        problem.kernel(),
        problem.row_noise(),
        problem.kernel(problem.bits, problem.new_bits),
        problem.kernel(problem.new_bits),
        problem.y,
    )


@given(problems)
def test_posterior_against_dense_algebra(problem):
    mean, covariance = dense(problem)
    joint = joint_posterior(fit(problem), problem.new)
    np.testing.assert_allclose(joint_mean(joint), mean, **VALUE)
    np.testing.assert_allclose(dense_covariance(joint), covariance, **VALUE)
    x = problem.rng.standard_normal((len(mean), 3))
    np.testing.assert_allclose(covariance_product(joint, x), covariance @ x, **VALUE)
    np.testing.assert_allclose(covariance_operator(joint) @ x[:, 0], covariance @ x[:, 0], **VALUE)


@given(problems)
def test_prior_is_the_kernel(problem):
    joint = joint_prior(problem.new, problem.order)
    np.testing.assert_allclose(dense_covariance(joint), problem.kernel(problem.new_bits), **VALUE)
    assert not joint_mean(joint).any()


@given(problems)
def test_variance_is_the_diagonal_of_the_covariance(problem):
    posterior = fit(problem)
    diagonal = np.diag(dense_covariance(joint_posterior(posterior, problem.new)))
    np.testing.assert_allclose(predict(posterior, problem.new).var, diagonal, **VALUE)


@pytest.mark.parametrize("prior", [True, False])
def test_samples_have_the_right_moments(prior):
    problem = make_problem(11, n=10, n_new=6, precision=(4, 3))
    mean, covariance = dense(problem)
    joint = joint_posterior(fit(problem), problem.new)
    if prior:
        mean, covariance = np.zeros(6), problem.kernel(problem.new_bits)
        joint = joint_prior(problem.new, problem.order)
    n = 200_000
    samples = draw_samples(joint, n, np.random.default_rng(0))
    assert samples.shape == (6, n)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(samples.mean(axis=1) - mean) < 5 * sd / np.sqrt(n) + 1e-12)
    # The standard error of a sample covariance is at most sqrt(2) sd sd' / sqrt(n).
    error = np.abs(np.cov(samples) - covariance)
    assert np.all(error < 5 * np.sqrt(2 / n) * np.outer(sd, sd) + 1e-12)


def test_samples_map_normals_by_a_root_of_the_covariance():
    """Exact, not only in the moments: samples are an affine map of normals, S S' = covariance."""
    problem = make_problem(12, n=15, n_new=9, precision=(4, 3), shape="twins")
    joint = joint_posterior(fit(problem), problem.new)

    class Unit:  # a generator that deals out the rows of an identity matrix
        def standard_normal(self, shape):
            return np.eye(shape[0]) if shape[0] else np.empty(shape)

    root = draw_samples(joint, 18, Unit()) - joint_mean(joint)[:, None]
    np.testing.assert_allclose(root @ root.T, dense(problem)[1], **VALUE)


def test_same_seed_same_samples():
    problem = make_problem(1)
    joint = joint_prior(problem.new, problem.order)
    a, b = (draw_samples(joint, 3, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_points_outside_the_box_are_independent():
    problem = make_problem(0)
    far = np.arange(8) % 3 == 0
    codes = Codes(problem.new.packed, problem.new.precision, far)
    joint = joint_posterior(fit(problem), codes)
    covariance = dense_covariance(joint)
    inner = dense(problem)[1]
    np.testing.assert_allclose(covariance[np.ix_(~far, ~far)], inner[np.ix_(~far, ~far)], **VALUE)
    assert not covariance[np.ix_(far, ~far)].any()
    np.testing.assert_array_equal(
        covariance[np.ix_(far, far)], problem.order.prior_variance * np.eye(3)
    )
    assert not joint_mean(joint)[far].any()
    samples = draw_samples(joint, 4000, np.random.default_rng(0))
    ratio = samples[far].var(axis=1) / problem.order.prior_variance
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt(2 / 4000))
    nowhere = Codes(problem.new.packed, problem.new.precision, np.ones(8, bool))
    for joint in (joint_posterior(fit(problem), nowhere), joint_prior(nowhere, problem.order)):
        expected = problem.order.prior_variance * np.eye(8)
        np.testing.assert_array_equal(dense_covariance(joint), expected)


def test_bad_input_is_named():
    problem = make_problem(0)
    joint = joint_prior(problem.new, problem.order)
    with pytest.raises(ValueError, match="n_samples must be a positive integer, got 0"):
        draw_samples(joint, 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"n_samples must be a positive integer, got 2\.5"):
        draw_samples(joint, 2.5, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"rng must be a numpy\.random\.Generator, got None"):
        draw_samples(joint, 2, None)
    with pytest.raises(ValueError, match=r"x must have shape \(8,\) or \(8, k\), got \(7,\)"):
        covariance_product(joint, np.zeros(7))
    with pytest.raises(ValueError, match="codes must have 5 bits, got 6"):
        joint_posterior(fit(problem), make_problem(0, precision=(6,)).new)
