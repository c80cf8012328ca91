"""A model with its calibration: tails and local noise around the model's own predictions."""

from dataclasses import replace

import numpy as np
import pytest

from tolerances import SAMPLED, SOLVED, USUAL_SOLVE, VALUE
from triegp import BinaryTreeGPRegressor, ForestGPRegressor
from triegp.calibration.local import predict_local
from triegp.calibration.model import CalibratedModel, base_of
from triegp.calibration.tails import Tails, first_moment, second_moment
from triegp.tree.rows import Rows


def heteroscedastic(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.sin(5 * X[:, 0]) + np.where(X[:, 1] < 0.5, 0.02, 1.0) * rng.standard_normal(n)


MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=2, max_iter=5, random_state=0),
    "forest": ForestGPRegressor(n_trees=4, max_iter=3, random_state=0, variance="exact"),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    (found,) = MODELS[request.param].fit(*heteroscedastic())._stream.fitted
    assert isinstance(found, CalibratedModel)
    assert found.stages[0].local is not None
    tails = Tails(np.array([0.8, 0.2]), np.array([0.7, 2.0]))  # samples of few factors
    return replace(found, stages=(replace(found.stages[0], tails=tails),))


NEW = np.vstack([heteroscedastic(seed=1)[0][:12], heteroscedastic()[0][:4]])


def test_an_observation_has_local_noise_and_tails(fitted):
    points, (stage,) = fitted.read(NEW, var=True), fitted.stages
    raw = fitted.base.predict(points.base, 0, var=True, latent=False)
    logs = predict_local(stage.local, NEW, raw.mean(), raw.var())
    total = stage.scale * np.exp(stage.slope * logs) * raw.var()
    found = fitted.predict(points, 0, var=True, latent=False)
    np.testing.assert_array_equal(found.weights, stage.tails.weight)
    np.testing.assert_allclose(found.means, np.tile(raw.mean(), (2, 1)), **VALUE)
    np.testing.assert_allclose(found.variances, np.outer(stage.tails.factor**2, total), **VALUE)
    alone = fitted.predict(points, 0, var=False, latent=False)
    np.testing.assert_array_equal(alone.mean(), found.mean())
    assert not alone.variances.any()
    for var in (False, True):
        latent = fitted.predict(points, 0, var=var, latent=True)
        own = fitted.base.predict(points.base, 0, var=var, latent=True)
        np.testing.assert_array_equal(latent.means, own.means)
        np.testing.assert_array_equal(latent.variances, own.variances)


@pytest.mark.parametrize("latent", [False, True])
def test_the_covariance_has_the_predicted_variances(fitted, latent):
    points = fitted.read(NEW, var=True)
    mean, cov = fitted.predict_covariance(points, 0, latent=latent)
    told = fitted.predict(points, 0, var=True, latent=latent)
    np.testing.assert_allclose(mean, told.mean(), **VALUE)
    np.testing.assert_allclose(np.diag(cov), told.var(), rtol=USUAL_SOLVE)
    assert np.linalg.eigvalsh(cov).min() > -1e-9
    own = fitted.base.predict_covariance(points.base, 0, latent=True)[1]
    sd = np.sqrt(np.diag(own))
    correlation = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    expected = own / np.outer(sd, sd)
    off = ~np.eye(len(NEW), dtype=bool)
    if latent:
        np.testing.assert_allclose(correlation[off], expected[off], **SOLVED)
        return
    # Tail factors are independent, and so is the noise.
    tails = fitted.stages[0].tails
    share = first_moment(tails) ** 2 / second_moment(tails)
    noise = np.sqrt(1 + fitted.noise(0) / np.diag(own))
    expected *= share / np.outer(noise, noise)
    np.testing.assert_allclose(correlation[off], expected[off], **SOLVED)


@pytest.mark.parametrize("latent", [False, True])
def test_samples_have_this_mean_and_covariance(fitted, latent):
    points, n_samples = fitted.read(NEW, var=True), 8_000
    mean, cov = fitted.predict_covariance(points, 0, latent=latent)
    draws = fitted.sample(points, 0, n_samples, np.random.default_rng(0), latent=latent)
    sd = np.sqrt(np.diag(cov))
    assert np.abs((draws.mean(axis=1) - mean) / sd).max() < SAMPLED["max"] / np.sqrt(n_samples)
    error = np.abs(np.cov(draws) - cov) / np.outer(sd, sd)
    kurtosis = 1.0 if latent else 3.0  # of the tails, and of members that differ
    assert error.max() < SAMPLED["max"] * np.sqrt(2 * (1 + kurtosis) / n_samples)


def test_leave_one_out_uses_what_was_learned_without_the_row(fitted):
    (stage,) = fitted.stages
    raw, found = fitted.base.leave_one_out(0), fitted.leave_one_out(0)
    total = stage.scale * np.exp(stage.slope * stage.logs) * raw.var()
    np.testing.assert_allclose(found.mean(), raw.mean(), **VALUE)
    np.testing.assert_allclose(found.var(), second_moment(stage.tails) * total, **VALUE)


def test_rows_that_are_added_have_local_noise(fitted):
    X, y = heteroscedastic(6, seed=2)
    X = np.clip(X, *np.quantile(heteroscedastic()[0], [0.0, 1.0], axis=0))
    grown = fitted.insert(Rows(y[:, None], X=X))
    (stage,), (before,) = grown.stages, fitted.stages
    points = fitted.base.read(X, var=True)
    raw = fitted.base.predict(points, 0, var=True, latent=False)
    np.testing.assert_array_equal(stage.logs[:160], before.logs)
    expected = predict_local(stage.local, X, raw.mean(), raw.var())
    np.testing.assert_allclose(stage.logs[160:], expected, **VALUE)
    assert (grown.n_rows, grown.n_observations, grown.n_targets) == (166, 166, 1)
    assert grown.leave_one_out(0).mean().shape == (166,)
    assert grown.log_evidence(0) == grown.base.log_evidence(0)
    np.testing.assert_array_equal(grown.observed(0)[0], grown.base.observed(0)[0])
    assert base_of(grown) is base_of(grown.base) is grown.base


def test_residuals_are_those_of_the_model(fitted):
    one, two = fitted.residuals(0), fitted.base.residuals(0)
    np.testing.assert_array_equal(one.mean, two.mean)
    raw = fitted.base.leave_one_out(0)
    np.testing.assert_allclose(one.mean, raw.mean(), **VALUE)
    np.testing.assert_allclose(one.var, raw.var(), **VALUE)
