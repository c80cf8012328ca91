"""Prior of the parameters: its gradient, what it leaves free, how it fades."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import make_problem
from triegp.additive.gradient import Gradient
from triegp.additive.prior import LENGTH_DEVIATION, PHI_DEVIATION, SCALE_DEVIATION, Prior

DIFFERENCE = 1e-6


def moved(problem, seed=0):
    """Parameters away from their start."""
    rng, old = np.random.default_rng(seed), problem.parameters
    phi = tuple(part + rng.standard_normal(part.size) for part in old.phi)
    smooth = old.smooth
    if smooth is not None:
        length = smooth.lengthscale * np.exp(rng.standard_normal(smooth.lengthscale.size))
        smooth = replace(smooth, lengthscale=length)
    return replace(old, phi=phi, smooth=smooth)


def gradient_of(prior, parameters, share=1.0):
    zero = tuple(np.zeros(part.size) for part in parameters.phi)
    length = None
    if parameters.smooth is not None:
        length = np.zeros(parameters.smooth.lengthscale.size)
    return prior.add(Gradient(zero, parameters.log_scale, 0.5, length, 0.25), parameters, share)


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_the_gradient_is_that_of_the_nll(smooth):
    problem = make_problem(n=20, d=3, smooth=smooth)
    prior, at = Prior(problem.parameters, problem.features), moved(problem)
    found = gradient_of(prior, at)
    rng, h = np.random.default_rng(1), 1e-5
    for _ in range(5):
        way = [rng.standard_normal(part.size) for part in at.phi]

        def nll(step, way=way):
            phi = tuple(part + step * move for part, move in zip(at.phi, way, strict=True))
            return prior.nll(replace(at, phi=phi))

        expected = sum(float(a @ b) for a, b in zip(found.phi, way, strict=True))
        assert (nll(h) - nll(-h)) / (2 * h) == pytest.approx(expected, rel=DIFFERENCE)
    if smooth is None:
        assert found.log_lengthscale is None
        return
    way = rng.standard_normal(at.smooth.lengthscale.size)

    def by_length(step):
        length = at.smooth.lengthscale * np.exp(step * way)
        return prior.nll(replace(at, smooth=replace(at.smooth, lengthscale=length)))

    expected = float(found.log_lengthscale @ way)
    assert (by_length(h) - by_length(-h)) / (2 * h) == pytest.approx(expected, rel=DIFFERENCE)


def test_noise_and_what_all_features_share_are_free():
    problem = make_problem(n=20, d=3, smooth="dense")
    prior, old = Prior(problem.parameters, problem.features), problem.parameters
    assert prior.nll(old) == pytest.approx(
        0.5
        * np.square(np.log(old.smooth.lengthscale).std() / LENGTH_DEVIATION)
        * old.smooth.lengthscale.size
        + 0.5 * np.square(np.log(old.smooth.scale) / SCALE_DEVIATION)
    )
    phi = tuple(part + k for k, part in enumerate(old.phi))
    smooth = replace(old.smooth, lengthscale=3.0 * old.smooth.lengthscale)
    assert prior.nll(replace(old, phi=phi, smooth=smooth)) == pytest.approx(prior.nll(old))
    found = gradient_of(prior, moved(problem))
    assert found.noise == 0.5
    more = np.log(old.smooth.scale) / SCALE_DEVIATION**2
    assert found.log_smooth == pytest.approx(0.25 + more)
    np.testing.assert_array_equal(found.log_scale, old.log_scale)


def test_all_bits_of_a_feature_count_as_one_number():
    problem = make_problem(n=20, d=2)
    prior, old = Prior(problem.parameters, problem.features), problem.parameters
    # Up by 1 in one of two features: half a unit from the mean in each, if they have equal bits.
    pairs = zip(old.phi, problem.features, strict=True)
    shifted = replace(old, phi=tuple(phi + (features == 0) for phi, features in pairs))
    halves = [np.mean(features == 0) for features in problem.features]
    assert halves == [0.5] * len(halves)
    assert prior.nll(shifted) == pytest.approx(0.5 * 2 * (0.5 / PHI_DEVIATION) ** 2)


def test_a_part_of_the_rows_has_its_share_of_the_prior():
    problem = make_problem(n=20, d=3, smooth="dense")
    prior, at = Prior(problem.parameters, problem.features), moved(problem)
    whole, part = gradient_of(prior, at), gradient_of(prior, at, 0.25)
    np.testing.assert_allclose(np.concatenate(part.phi), 0.25 * np.concatenate(whole.phi))
    np.testing.assert_allclose(part.log_lengthscale, 0.25 * whole.log_lengthscale)
