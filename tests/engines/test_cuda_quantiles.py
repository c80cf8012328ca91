"""Quantiles and averages of mixtures on the CUDA engine, as on the host and by their definition."""

import contextlib

import numpy as np
import pytest
from scipy.special import ndtr

from on_card import ON_CARD
from simulated_card import strict_card
from triegp.devices import on_device, to_host
from triegp.engines.cuda import CudaEngine
from triegp.models.distribution import (
    PredictiveDistribution,
    average,
    fetch_distribution,
    quantiles,
)

Q = np.array([1e-9, 0.05, 0.5, 0.8, 1.0 - 1e-6])
N_ROWS = 2_000 if ON_CARD else 7


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


def mixture(kind):
    """Four components at each row: far apart, close together, of very different widths."""
    rng = np.random.default_rng(len(kind))
    means = rng.standard_normal((4, N_ROWS)) * 10.0 ** rng.integers(-3, 3, N_ROWS)
    variances = np.exp(6.0 * rng.standard_normal((4, N_ROWS)))
    weights = rng.dirichlet(np.ones(4), N_ROWS).T if kind == "by row" else rng.dirichlet(np.ones(4))
    if kind == "weight 0":
        weights = np.array([0.25, 0.0, 0.75, 0.0])
    if kind == "points":
        variances[:, ::2], variances[0] = 0.0, 0.0
    return PredictiveDistribution(weights, means, variances)


def hold(found):
    parts = (found.weights, found.means, found.variances)
    return PredictiveDistribution(*map(CudaEngine().hold, parts))


@pytest.mark.parametrize("kind", ["one weight", "by row", "weight 0", "points"])
def test_quantiles(kind):
    here = mixture(kind)
    there = hold(here)
    found = quantiles(there, Q)
    assert on_device(found)
    found = to_host(found)
    np.testing.assert_allclose(found, quantiles(here, Q), rtol=1e-9, atol=1e-12)
    if kind == "points":
        return
    weights = here.weights if here.weights.ndim == 2 else here.weights[:, None]
    for j, level in enumerate(Q[:4]):
        z = (found[:, j] - here.means) / np.sqrt(here.variances)
        # Narrow components far from 0 have few floats between the quantiles of 0.8 and 0.8 + 1e-9.
        np.testing.assert_allclose((weights * ndtr(z)).sum(axis=0), level, rtol=1e-7)


@pytest.mark.parametrize("kind", ["one weight", "by row"])
def test_moments(kind):
    here = mixture(kind)
    there = hold(here)
    for name in ("mean", "var", "std"):
        found = getattr(there, name)()
        assert on_device(found)
        np.testing.assert_allclose(to_host(found), getattr(here, name)(), rtol=1e-12, atol=1e-14)
    back = fetch_distribution(there)
    np.testing.assert_array_equal(back.means, here.means)
    assert fetch_distribution(here) is here


def test_averages_do_not_depend_on_other_rows():
    there = hold(mixture("one weight"))
    whole = to_host(average(there.weights, there.means))
    for some in (slice(0, 1), slice(1, 4), slice(3, N_ROWS)):
        alone = average(there.weights, CudaEngine().hold(there.means[:, some]))
        np.testing.assert_array_equal(to_host(alone), whole[some])


def test_host_and_device_are_not_mixed():
    here = mixture("one weight")
    with pytest.raises(ValueError, match="must be numpy arrays"):
        PredictiveDistribution(here.weights, CudaEngine().hold(here.means), here.variances)
