"""New observations at training inputs: a scale and tails of their own."""

from dataclasses import replace

import numpy as np
import pytest

import triegp
from tolerances import SAMPLED, SOLVED, USUAL_SOLVE, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.calibration.model import calibrate_repeats
from triegp.calibration.stage import FEWEST_REPEATS, learn_repeats
from triegp.calibration.tails import (
    GAUSSIAN,
    Tails,
    learn_tails,
    log_densities,
    second_moment,
    spread_classes,
    spread_out,
)
from triegp.models.interface import Residuals, repeated_residuals
from triegp.models.repeats import find_inputs, hash_inputs

NARROW = Tails(np.array([0.9, 0.1]), np.array([0.5, 3.0]))


def repeated(n=60, seed=0, between=0.8, within=0.05):
    """Every second input is measured three times; these agree better than neighbours do."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    level = np.sin(5 * X[:, 0]) + between * rng.standard_normal(n)
    row = np.concatenate([np.arange(n), np.arange(0, n, 2), np.arange(0, n, 2)])
    return X[row], level[row] + within * rng.standard_normal(row.size), row


MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=2, max_iter=5, random_state=0),
    "forest": TrieGPRegressor(n_trees=4, max_iter=3, random_state=0, variance="exact"),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    X, y, _ = repeated()
    return MODELS[request.param].fit(X, y)


@pytest.fixture
def fitted(model):
    return model._targets()[0].fitted


OLD = repeated()[0][:60]
NEW = np.vstack([OLD[:8], repeated(seed=1)[0][:8].clip(OLD.min(axis=0), OLD.max(axis=0))])


# Tails by class


def test_each_class_has_its_tails():
    heavy = learn_tails(np.random.default_rng(0).standard_t(3, 300))
    rng = np.random.default_rng(1)
    mean, var, second = rng.standard_normal(9), rng.uniform(0.5, 2.0, 9), np.arange(9) % 3 == 0
    found = spread_classes((heavy, NARROW), mean, var, second)
    assert found.weights.ndim == 2
    np.testing.assert_allclose(found.weights.sum(axis=0), 1.0, **VALUE)
    for tails, rows in ((heavy, ~second), (NARROW, second)):
        own = spread_out(tails, mean[rows], var[rows])
        y = mean[rows] + 0.7
        part = np.zeros(9)
        part[rows] = y
        np.testing.assert_allclose(found.mean()[rows], own.mean(), **VALUE)
        np.testing.assert_allclose(found.var()[rows], own.var(), **VALUE)
        np.testing.assert_allclose(found.log_prob(part)[rows], own.log_prob(y), **VALUE)
        np.testing.assert_allclose(found.cdf(part)[rows], own.cdf(y), **VALUE)
        np.testing.assert_allclose(found.quantile([0.01, 0.8])[rows], own.quantile([0.01, 0.8]))


@pytest.mark.parametrize("value", [False, True])
def test_one_class_alone(value):
    mean, var = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    found = spread_classes((GAUSSIAN, NARROW), mean, var, np.full(2, value))
    own = spread_out(NARROW if value else GAUSSIAN, mean, var)
    np.testing.assert_allclose(found.var(), own.var(), **VALUE)
    np.testing.assert_allclose(found.log_prob(0.5), own.log_prob(0.5), **VALUE)


# What is learned


def test_the_scale_and_tails_are_those_of_repeated_observations(fitted, model):
    (stage,) = fitted.stages
    observations = model._stream.observations
    left = repeated_residuals(fitted.base, observations, 0)
    assert left.rows.size == 90  # three at every second input
    score = (left.y - left.mean) / np.sqrt(left.var)
    median = np.median(np.abs(score) / np.sqrt(stage.repeats.scale))
    assert 0.6 < median < 0.75  # of a Gaussian: 0.674
    expected = learn_tails(score / np.sqrt(stage.repeats.scale))
    np.testing.assert_allclose(stage.repeats.tails.weight, expected.weight, **SOLVED)
    np.testing.assert_array_equal(fitted.inputs, np.sort(hash_inputs(OLD)))


def test_few_repeated_observations_teach_nothing(fitted):
    stage = replace(fitted.stages[0], repeats=None)
    rng = np.random.default_rng(0)

    def residuals(n):
        y = 0.1 * rng.standard_normal(n)
        return Residuals(np.arange(n), np.zeros(n), np.ones(n), y, None, np.zeros(n, bool))

    assert learn_repeats(stage, residuals(FEWEST_REPEATS - 1)) == (stage, 0.0)
    left = residuals(FEWEST_REPEATS)
    found, density = learn_repeats(stage, left)
    assert found.repeats.scale < 0.1
    spread = left.y / np.sqrt(found.repeats.scale)
    each = log_densities(found.repeats.tails, spread) - 0.5 * np.log(found.repeats.scale)
    assert density == pytest.approx(each.mean())


def test_the_more_likely_share_of_noise_is_chosen(fitted, model):
    """Runs count as noise or not, whichever makes repeated observations more likely."""
    observations = model._stream.observations
    plain = replace(fitted, stages=(replace(fitted.stages[0], repeats=None),), inputs=None)
    densities = {}
    for apart in (True, False):
        base = plain.base.stand(apart=apart)
        residuals = repeated_residuals(base, observations, 0)
        densities[apart] = learn_repeats(plain.stages[0], residuals)[1]
    again = calibrate_repeats(plain, OLD, observations)
    assert again.base.apart == max(densities, key=densities.get)
    assert again.stages[0].repeats.scale == fitted.stages[0].repeats.scale


def test_copies_teach_nothing():
    X, y, row = repeated()
    with pytest.warns(UserWarning, match="copies"):
        model = MODELS["mixture"].__class__(**MODELS["mixture"].get_params()).fit(X, y[:60][row])
    (found,) = model._stream.fitted
    assert found.stages[0].repeats is None
    assert found.inputs is None


# What is predicted


def test_training_inputs_have_the_tails_of_repeats(fitted):
    fitted = replace(
        fitted,
        stages=(
            replace(
                fitted.stages[0],
                tails=GAUSSIAN,
                repeats=replace(fitted.stages[0].repeats, scale=0.37, tails=NARROW),
            ),
        ),
    )
    (stage,), points = fitted.stages, fitted.read(NEW, var=True)
    again = np.arange(16) < 8
    np.testing.assert_array_equal(points.repeated, again)
    own = fitted.base.predict(points.base, 0, var=True, latent=False)
    raw, found = own.var(), fitted.predict(points, 0, var=True, latent=False)
    assert stage.trend is None
    np.testing.assert_allclose(found.mean(), own.mean(), **VALUE)
    narrow = second_moment(NARROW) * 0.37 * raw
    np.testing.assert_allclose(found.var(), np.where(again, narrow, stage.scale * raw), **VALUE)
    mean = fitted.predict(points, 0, var=False, latent=False).mean()
    np.testing.assert_array_equal(mean, found.mean())
    expected = spread_out(NARROW, mean, 0.37 * raw).quantile(0.95)
    np.testing.assert_allclose(found.quantile(0.95)[again], expected[again], **VALUE)
    others = fitted.read(NEW[8:], var=True)
    alone = fitted.predict(others, 0, var=True, latent=False)
    np.testing.assert_allclose(alone.var(), found.var()[8:], **VALUE)
    # Joint predictions agree.
    joint_mean, cov = fitted.predict_covariance(points, 0, latent=False)
    np.testing.assert_allclose(joint_mean, mean, **VALUE)
    np.testing.assert_allclose(np.diag(cov), found.var(), rtol=USUAL_SOLVE)
    n_samples = 8_000
    draws = fitted.sample(points, 0, n_samples, np.random.default_rng(0), latent=False)
    sd = np.sqrt(np.diag(cov))
    error = np.abs(np.cov(draws) - cov) / np.outer(sd, sd)
    kurtosis = 3 * (NARROW.weight @ NARROW.factor**4) / second_moment(NARROW) ** 2
    # Squares vary by up to the kurtosis.
    assert error.max() < SAMPLED["max"] * np.sqrt(kurtosis / n_samples)


def test_leave_one_out_of_repeated_observations_uses_their_tails(fitted, model):
    (stage,), observations = fitted.stages, model._stream.observations
    own, told = (part.leave_one_out(0, observations) for part in (fitted.base, fitted))
    raw, found = own.var(), told.var()
    several = np.bincount(repeated()[2])[repeated()[2]] > 1
    narrow = second_moment(stage.repeats.tails) * stage.repeats.scale * raw
    wide = second_moment(stage.tails) * stage.scale * raw
    np.testing.assert_allclose(found, np.where(several, narrow, wide), **VALUE)
    np.testing.assert_allclose(told.mean(), own.mean(), **VALUE)


def test_intervals_at_repeated_inputs_contain_new_observations(model):
    """There is no line here: it would pull the mean away from what was measured."""
    assert model._stream.fitted[0].stages[0].trend is None
    X, y, _ = repeated()
    often = X[:60:2]
    fresh = y[:60:2] + 0.05 * np.random.default_rng(9).standard_normal(30)
    low, high = model.predict_interval(often, 0.9).T
    assert ((low <= fresh) & (fresh <= high)).mean() > 0.75


def test_inputs_are_found_by_value():
    known = np.sort(hash_inputs(np.array([[0.0, 1.0], [2.0, 3.0]])))
    X = np.array([[-0.0, 1.0], [2.0, 3.0], [3.0, 2.0], [2.0, np.nextafter(3.0, 4.0)]])
    np.testing.assert_array_equal(find_inputs(known, X), [True, True, False, False])
    np.testing.assert_array_equal(find_inputs(known, X.astype(np.float32))[:2], [True, True])


def test_a_loaded_model_says_the_same_to_the_last_bit(model, tmp_path):
    model.save(tmp_path / "m")
    loaded = triegp.load(tmp_path / "m")
    one, two = model._stream.fitted[0], loaded._stream.fitted[0]
    assert one.stages[0].repeats.scale == two.stages[0].repeats.scale
    np.testing.assert_array_equal(one.inputs, two.inputs)
    assert one.base.apart == two.base.apart
    for name in ("weights", "means", "variances"):
        np.testing.assert_array_equal(
            *(getattr(m.predict_distribution(NEW), name) for m in (model, loaded))
        )
    np.testing.assert_array_equal(model.predict(NEW, True), loaded.predict(NEW, True))
    np.testing.assert_array_equal(
        model.sample_y(NEW, 3, random_state=0), loaded.sample_y(NEW, 3, random_state=0)
    )
    np.testing.assert_array_equal(model.loo_predict(), loaded.loo_predict())
