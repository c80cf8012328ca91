"""GP regression by SROS against the dense oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from profiles import examples
from sros_problems import close
from triegp import sros

# GP regression


def data_set(case, seed=0):
    """Key bits, new key bits, targets, weights of a named case."""
    rng = np.random.default_rng(seed)
    n, m, q, ones = {
        "usual": (30, 12, 9, 0.5),
        "one row": (1, 4, 6, 0.5),
        "one bit": (20, 5, 1, 0.5),
        "no bits": (5, 3, 0, 0.5),
        "all rows equal": (15, 4, 7, 0.0),
        "long chains": (30, 10, 40, 0.06),
        "more than 64 bits": (25, 8, 90, 0.3),
        "more than 128 bits": (25, 8, 150, 0.1),
    }[case]
    bits, new = (rng.random((k, q)) < ones for k in (n, m))
    bits[n - n // 3 :] = bits[: n // 3]  # duplicates
    new[0] = bits[0]
    weights = rng.exponential(size=q) * (rng.random(q) < 0.8)
    return bits, new, rng.normal(size=n), weights


GP_CASES = pytest.mark.parametrize(
    "case",
    [
        "usual",
        "one row",
        "one bit",
        "no bits",
        "all rows equal",
        "long chains",
        "more than 64 bits",
        "more than 128 bits",
    ],
)
NOISE = pytest.mark.parametrize("noise", [0.01, 0.3, 5.0])


@GP_CASES
def test_kernel_against_oracle(case):
    bits, _, _, weights = data_set(case)
    kernel = sros.kernel_sros(bits.astype(np.uint8), weights)
    close(sros.to_dense(kernel), oracle.kernel(bits, bits, weights))


@NOISE
@GP_CASES
def test_regression_against_oracle(case, noise):
    bits, new, y, weights = data_set(case)
    k_train, k_test = (oracle.kernel(b, b, weights) for b in (bits, new))
    k_cross = oracle.kernel(bits, new, weights)
    mean, covariance = oracle.posterior(k_train, noise, k_cross, k_test, y)
    result = sros.gp_regression(bits, y, new, weights, noise)
    close(result.mean, mean)
    close(result.var, np.diagonal(covariance) + noise)
    close(result.nll, oracle.nll(k_train + noise * np.eye(len(y)), y))


@NOISE
@GP_CASES
def test_likelihood_and_gradient_against_oracle(case, noise):
    bits, _, y, weights = data_set(case)
    covariance = oracle.kernel(bits, bits, weights) + noise * np.eye(len(y))
    result = sros.gp_likelihood(bits, y, weights, noise)
    close(result.nll, oracle.nll(covariance, y))
    levels = oracle.level_matrices(bits) if bits.shape[1] else []
    expected = [oracle.nll_gradient(covariance, y, level) for level in levels]
    close(result.weights_gradient, expected, "gradient")
    by_noise = oracle.nll_gradient(covariance, y, np.eye(len(y)))
    close(result.noise_gradient, by_noise, "gradient")


@pytest.mark.parametrize("case", ["usual", "one row", "all rows equal", "long chains"])
def test_gradient_against_central_differences(case):
    bits, _, y, weights = data_set(case, seed=1)
    weights, noise, step = weights + 0.01, 0.4, 1e-5

    def nll(w, s):
        return sros.gp_likelihood(bits, y, w, s, gradient=False).nll

    result = sros.gp_likelihood(bits, y, weights, noise)
    moves = step * np.eye(len(weights))
    by_weights = [(nll(weights + e, noise) - nll(weights - e, noise)) / (2 * step) for e in moves]
    by_noise = (nll(weights, noise + step) - nll(weights, noise - step)) / (2 * step)
    close(result.weights_gradient, by_weights, "difference")
    close(result.noise_gradient, by_noise, "difference")


def test_without_gradient():
    bits, _, y, weights = data_set("usual")
    result = sros.gp_likelihood(bits, y, weights, 0.1, gradient=False)
    assert result.weights_gradient is None
    assert result.noise_gradient is None
    assert result.nll == sros.gp_likelihood(bits, y, weights, 0.1).nll


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32 - 1))
def test_weight_may_move_along_an_unbranched_run(seed):
    rng = np.random.default_rng(seed)
    bits = rng.random((12, 5)) < 0.5
    y, weights = rng.normal(size=12), rng.exponential(size=5)
    doubled, split = np.repeat(bits, 2, axis=1), np.zeros(10)
    share = rng.random(5)
    split[0::2], split[1::2] = share * weights, (1 - share) * weights
    before, after = (
        sros.gp_likelihood(b, y, w, 0.2) for b, w in ((bits, weights), (doubled, split))
    )
    close(after.nll, before.nll)
    close(after.weights_gradient, np.repeat(before.weights_gradient, 2), "gradient")
    close(after.noise_gradient, before.noise_gradient, "gradient")
