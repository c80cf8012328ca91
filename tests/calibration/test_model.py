"""A model with its calibration: tails and local noise around the model's own predictions."""

from dataclasses import replace

import numpy as np
import pytest

from tolerances import ROUNDING, SAMPLED, SOLVED, USUAL_SOLVE, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.calibration.local import predict_local
from triegp.calibration.model import CalibratedModel, base_of
from triegp.calibration.tails import Tails, first_moment, offset_variance, second_moment
from triegp.tree.rows import Rows


def heteroscedastic(n=440, seed=0):
    """Enough rows for local noise, few enough for a trend."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    noise = np.where(X[:, 1] < 0.5, 0.02, 1.0) * rng.standard_normal(n)
    return X, np.sin(5 * X[:, 0]) + 4 * X[:, 1] + noise


MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=2, max_iter=5, random_state=0),
    "forest": TrieGPRegressor(n_trees=4, max_iter=3, random_state=0, variance="exact"),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    found = MODELS[request.param].fit(*heteroscedastic())._targets()[0].fitted
    assert isinstance(found, CalibratedModel)
    assert found.stages[0].local is not None
    assert found.stages[0].trend is not None
    tails = Tails(np.array([0.8, 0.2]), np.array([0.7, 2.0]), np.array([-0.1, 0.4]))
    return replace(found, stages=(replace(found.stages[0], tails=tails, loud=None),))


OLD = heteroscedastic()[0]
NEW = np.vstack([heteroscedastic(seed=1)[0][:60].clip(OLD.min(axis=0), OLD.max(axis=0)), OLD[:4]])


def with_line(stage, mean, line):
    return mean + stage.trend.share * (line - mean)


def test_an_observation_has_local_noise_and_tails(fitted):
    points, (stage,) = fitted.read(NEW, var=True), fitted.stages
    raw = fitted.base.predict(points.base, 0, var=True, latent=False)
    mean = with_line(stage, raw.mean(), NEW @ stage.trend.slope + stage.trend.level)
    logs = predict_local(stage.local, NEW, mean, raw.var())
    total = stage.factors(logs, raw.var()) * raw.var()
    found = fitted.predict(points, 0, var=True, latent=False)
    np.testing.assert_array_equal(found.weights, stage.tails.weight)
    offset = np.outer(stage.tails.offset, np.sqrt(total))
    np.testing.assert_allclose(found.means, mean + offset, **VALUE)
    np.testing.assert_allclose(found.variances, np.outer(stage.tails.factor**2, total), **VALUE)
    alone = fitted.predict(points, 0, var=False, latent=False)
    np.testing.assert_allclose(alone.mean(), found.mean(), rtol=ROUNDING, atol=ROUNDING)
    assert not alone.variances.any()
    # The function is as uncertain as the model says, but not more so than an observation.
    latent = fitted.predict(points, 0, var=True, latent=True)
    own = fitted.base.predict(points.base, 0, var=True, latent=True).var()
    np.testing.assert_allclose(latent.mean(), mean, **VALUE)
    np.testing.assert_allclose(latent.var(), np.minimum(own, found.var()), **VALUE)
    assert (own > found.var()).any()
    alone = fitted.predict(points, 0, var=False, latent=True)
    np.testing.assert_allclose(alone.mean(), mean, **VALUE)
    assert not alone.variances.any()


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
    share = first_moment(tails) ** 2 / (second_moment(tails) + offset_variance(tails))
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
    total = stage.factors(stage.logs, raw.var()) * raw.var()
    np.testing.assert_allclose(
        found.mean(), with_line(stage, raw.mean(), stage.trend.left), **VALUE
    )
    moment = second_moment(stage.tails) + offset_variance(stage.tails)
    np.testing.assert_allclose(found.var(), moment * total, **VALUE)


def test_rows_that_are_added_have_local_noise(fitted):
    X, y = heteroscedastic(6, seed=2)
    X = np.clip(X, OLD.min(axis=0), OLD.max(axis=0))
    grown = fitted.insert(Rows(y[:, None], X=X))
    (stage,), (before,) = grown.stages, fitted.stages
    points = fitted.base.read(X, var=True)
    raw = fitted.base.predict(points, 0, var=True, latent=False)
    np.testing.assert_array_equal(stage.logs[:440], before.logs)
    line = X @ stage.trend.slope + stage.trend.level
    expected = predict_local(stage.local, X, with_line(stage, raw.mean(), line), raw.var())
    np.testing.assert_allclose(stage.logs[440:], expected, **VALUE)
    np.testing.assert_array_equal(stage.trend.left[:440], before.trend.left)
    np.testing.assert_allclose(stage.trend.left[440:], line, **VALUE)
    assert (grown.n_rows, grown.n_observations, grown.n_targets) == (446, 446, 1)
    assert grown.leave_one_out(0).mean().shape == (446,)
    assert grown.log_evidence(0) == grown.base.log_evidence(0)
    np.testing.assert_array_equal(grown.observed(0)[0], grown.base.observed(0)[0])
    assert base_of(grown) is base_of(grown.base) is grown.base


def test_residuals_are_those_of_the_model_with_its_trend(fitted):
    one, two, (stage,) = fitted.residuals(0), fitted.base.residuals(0), fitted.stages
    np.testing.assert_array_equal(one.mean, with_line(stage, two.mean, stage.trend.left[two.rows]))
    np.testing.assert_array_equal(one.var, two.var)
    raw = fitted.base.leave_one_out(0)
    np.testing.assert_allclose(two.mean, raw.mean(), **VALUE)
    np.testing.assert_allclose(two.var, raw.var(), **VALUE)
