"""The CRPS of transformed targets: by quadrature against other routes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import lognorm, norm

from naive_scores import integrated_crps, naive_cdf
from score_problems import random_mixture, targets
from tolerances import ADAPTIVE, KINKED, QUADRATURE
from triegp import PredictiveDistribution, TransformedDistribution
from triegp.models import crps, transformed
from triegp.models.crps import mixture_score, transformed_score
from triegp.models.transforms import Log, Quantile, YeoJohnson

KNOTS = np.sort(np.random.default_rng(3).standard_normal(12))
TRANSFORMS = {
    "log": Log(0.2, 0.5, 2.0),
    "yeo-johnson": YeoJohnson(0.3, 2.0, 0.4),
    "quantile": Quantile(KNOTS, np.linspace(-2.0, 2.0, 12)),
}


@dataclass(frozen=True)
class Affine:
    """T(y) = (y - centre) / scale."""

    centre: float
    scale: float

    name, low, high = "affine", -np.inf, np.inf

    def forward(self, y):
        return (y - self.centre) / self.scale

    def inverse(self, z):
        return self.centre + self.scale * z

    def log_derivative(self, y):
        return np.full(np.shape(y), -np.log(self.scale))


def tails(m=6, seed=4):
    """Components of very different deviations, as calibration makes them."""
    rng = np.random.default_rng(seed)
    factor = np.exp2(0.5 * np.arange(-10, 15))
    weight = np.where(factor <= 1, 1.0, factor**-3.0)
    var = np.outer(factor**2, rng.uniform(0.05, 0.3, m) ** 2)
    means = np.broadcast_to(rng.standard_normal(m), var.shape)
    return PredictiveDistribution(weight / weight.sum(), means, var)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("base", [random_mixture(m=6), random_mixture(m=6, by_row=True), tails()])
def test_quadrature_agrees_with_scipys(name, base):
    found = TransformedDistribution(base, TRANSFORMS[name])
    y = found.transform.inverse(targets(6))
    y[0] = -3.0  # outside the domain of the logarithm
    score = transformed_score(found, y)
    limits = found.transform.inverse(np.stack(found.limits()))
    breaks = found.quantile(np.array([1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999]))
    for i in range(6):
        own = [KNOTS, *breaks[i : i + 1]] if name == "quantile" else breaks[i : i + 1]

        def cdf(x, i=i):
            z = np.full(6, found.transform.forward(np.array([x]))[0])
            return float(naive_cdf(z, base)[i])

        low, high = limits[:, i]
        exact = integrated_crps(y[i], cdf, low, high, np.concatenate(own))
        limit = KINKED if name == "quantile" else ADAPTIVE
        assert score[i] == pytest.approx(exact, rel=limit)


@pytest.mark.parametrize("transform", [Affine(0.0, 1.0), Affine(-3.0, 2.5)])
def test_affine_maps_have_the_closed_form(transform, monkeypatch):
    """With z limited so far away that nothing is moved."""
    monkeypatch.setattr(transformed, "LIMIT", 40.0)
    for base in (random_mixture(m=30), tails(30)):
        y = transform.inverse(targets(30))
        moved = replace(
            base,
            means=transform.inverse(base.means),
            variances=transform.scale**2 * base.variances,
        )
        np.testing.assert_allclose(
            transformed_score(TransformedDistribution(base, transform), y),
            mixture_score(moved, y),
            rtol=ADAPTIVE,
        )


def test_the_limit_hardly_matters_to_a_gaussian():
    base = random_mixture(m=30, k=1)
    y = targets(30)
    limited = transformed_score(TransformedDistribution(base, Affine(0.0, 1.0)), y)
    beyond = norm.pdf(4) - 4 * norm.sf(4)  # mean distance of draws from a limit, 7e-6
    assert (np.abs(limited - mixture_score(base, y)) < 2 * beyond * base.std()).all()


def test_draws_of_the_limited_distribution():
    base = random_mixture(m=4)
    found = TransformedDistribution(base, Log(0.1, 0.3, 4.0))
    y = np.exp(targets(4))
    z = base.sample(1_000_000, random_state=3)
    low, high = (end[:, None] for end in found.limits())
    draws = found.transform.inverse(np.clip(z, low, high))
    sizes = np.abs(draws - y[:, None]) - 0.5 * np.abs(draws - draws[:, ::-1])
    error = 5 * sizes.std(axis=1) / np.sqrt(draws.shape[1] / 2)  # pairs count twice
    assert (np.abs(transformed_score(found, y) - sizes.mean(axis=1)) < error).all()


def test_a_log_normal():
    """Its CRPS is y (2 F(y) - 1) - 2 exp(mu + s^2 / 2) (F(y e^-s^2) + F_2 - 1) in closed form."""
    mu, s, y = 0.3, 0.4, np.array([0.5, 1.0, 3.0])
    base = PredictiveDistribution(np.ones(1), np.full((1, 3), mu), np.full((1, 3), s**2))
    law = lognorm(s, scale=np.exp(mu))
    less = law.cdf(y * np.exp(-(s**2)))
    apart = lognorm(np.sqrt(2) * s).cdf(np.exp(s**2))  # of the quotient of two draws
    mean = np.exp(mu + 0.5 * s**2)
    exact = y * (2 * law.cdf(y) - 1) - 2 * mean * (less + apart - 1)
    found = transformed_score(TransformedDistribution(base, Log(0.0)), y)
    np.testing.assert_allclose(found, exact, rtol=1e-5)  # what lies beyond 4 deviations


def test_extremes():
    one = np.ones((1, 3))
    point = PredictiveDistribution(np.ones(1), 0.0 * one, 0.0 * one)
    y = np.array([0.5, 1.0, 3.0])
    found = transformed_score(TransformedDistribution(point, Log(0.0)), y)
    np.testing.assert_array_equal(found, np.abs(y - 1.0))
    wide = PredictiveDistribution(np.ones(1), 0.0 * one, 1e5 * one)
    assert (transformed_score(TransformedDistribution(wide, Log(0.0)), y) == np.inf).all()
    steps = PredictiveDistribution(np.full(2, 0.5), np.array([[0.0], [1.0]]), np.zeros((2, 1)))
    low, high = 1.0, np.e
    at = transformed_score(TransformedDistribution(steps, Log(0.0)), np.array([1.0]))
    assert at[0] == pytest.approx((high - low) / 4, rel=QUADRATURE)


def test_blocks_do_not_matter(monkeypatch):
    found = TransformedDistribution(random_mixture(m=50, by_row=True), Log(0.0))
    y = np.exp(targets(50))
    whole = transformed_score(found, y)
    monkeypatch.setattr(crps, "PANEL_ROWS", 7)
    np.testing.assert_array_equal(transformed_score(found, y), whole)
