"""Mixtures of format version 2: shrunk means, scaled variances, outliers."""

import numpy as np

from tolerances import VALUE
from triegp.mixture.calibration import Calibration, temper
from triegp.models.distribution import PredictiveDistribution


def members(seed=0, n=3_000, n_members=4, spread=0.8):
    """Independent noisy views of the truth that know their own error, but not each other's."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(n)
    y = truth + 0.1 * rng.standard_normal(n)
    mean = truth + spread * rng.standard_normal((n_members, n))
    var = np.full((n_members, n), spread**2 + 0.01)
    return mean, var, y


def test_nothing_to_temper_is_the_plain_mixture():
    mean, var, _ = members()
    weight = np.array([0.1, 0.2, 0.3, 0.4])
    plain = PredictiveDistribution(weight, mean, var)
    tempered = temper(Calibration(weight), mean, var)
    np.testing.assert_allclose(tempered.means, plain.means, **VALUE)
    np.testing.assert_array_equal(tempered.variances, plain.variances)


def test_shrinking_keeps_the_mean_and_takes_the_spread():
    mean, var, _ = members()
    weight = np.array([0.1, 0.2, 0.3, 0.4])
    half = temper(Calibration(weight, shrink=0.5, scale=2.0), mean, var)
    average = weight @ mean
    np.testing.assert_allclose(half.mean(), average, **VALUE)
    between = weight @ (mean - average) ** 2
    np.testing.assert_allclose(half.var(), 2.0 * weight @ var + 0.25 * between, **VALUE)


def test_outliers_are_one_more_component_and_the_function_has_none():
    mean, var, _ = members(n=50)
    mixed = Calibration(np.array([0.1, 0.2, 0.3, 0.4]), 0.5, 2.0, outlier=0.1, outlier_var=9.0)
    whole, function = temper(mixed, mean, var), temper(mixed, mean, var, latent=True)
    np.testing.assert_allclose(whole.mean(), function.mean(), **VALUE)
    far = 2.0 * mixed.weight @ var + 9.0
    np.testing.assert_allclose(whole.var(), 0.9 * function.var() + 0.1 * far, **VALUE)
    np.testing.assert_allclose(whole.weights.sum(), 1.0, **VALUE)
