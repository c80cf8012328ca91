"""Correlation functions, their slopes and gradients of sums of kernel values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tolerances
from triegp.engines.cpu.matern import correlation, value_and_slope
from triegp.smooth.kernel import (
    KERNELS,
    Kernel,
    correlate,
    kernel_gradient,
    kernel_matrix,
    kernel_pairs,
)

rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(20, 3))
BY_ENTRY = rng.normal(size=(20, 20))
BY_ENTRY = BY_ENTRY + BY_ENTRY.T


def kernel_of(name, logs):
    return Kernel(name, np.exp(logs[:-1]), float(np.exp(logs[-1])))


def total(name, logs):
    kernel = kernel_of(name, logs)
    return float((BY_ENTRY * kernel_matrix(kernel, INPUTS / kernel.lengthscale)).sum())


def central(function, at, step=1e-5):
    slopes = []
    for k in range(at.size):
        change = np.zeros(at.size)
        change[k] = step
        slopes.append((function(at + change) - function(at - change)) / (2 * step))
    return np.array(slopes)


@pytest.mark.parametrize("name", KERNELS)
def test_engines_compute_the_same_correlation(name):
    square = np.array([0.0, 1e-12, 0.3, 1.0, 7.0, 400.0])
    ours = [correlation(KERNELS.index(name), value) for value in square]
    assert_allclose(ours, correlate(name, square), rtol=tolerances.HANDFUL)
    assert ours[0] == 1.0


@pytest.mark.parametrize("name", KERNELS)
def test_slope_of_the_correlation(name):
    r, step = np.array([0.1, 0.5, 1.0, 3.0]), 1e-5
    wanted = (correlate(name, (r - step) ** 2) - correlate(name, (r + step) ** 2)) / (2 * step) / r
    ours = [value_and_slope(KERNELS.index(name), square)[1] for square in r**2]
    assert_allclose(ours, wanted, **tolerances.DIFFERENCE)
    assert np.isfinite(value_and_slope(KERNELS.index(name), 0.0)[1])


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_against_central_differences(name):
    logs = np.array([0.2, -0.3, 0.6, 0.4])
    kernel = kernel_of(name, logs)
    U = INPUTS / kernel.lengthscale
    pairs = kernel_pairs(kernel, U, 2)
    assert_allclose(pairs[0], kernel_matrix(kernel, U), **tolerances.VALUE)
    by_length, by_scale = kernel_gradient(pairs, U, BY_ENTRY)
    wanted = central(lambda at: total(name, at), logs)
    assert_allclose([*by_length, by_scale], wanted, **tolerances.DIFFERENCE)


def test_rescaled():
    kernel = kernel_of("rbf", np.array([0.2, -0.3, 0.6, 0.4]))
    twice = kernel_matrix(kernel.rescaled(2.0), INPUTS)
    assert_allclose(twice, 2.0 * kernel_matrix(kernel, INPUTS), rtol=tolerances.HANDFUL)
