"""New observations at training inputs: noise, a scale and tails of their own."""

from dataclasses import replace

import numpy as np
import pytest

import triegp
from tolerances import ROUNDING, SAMPLED, SOLVED, USUAL_SOLVE, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.calibration.model import calibrate_repeats
from triegp.calibration.stage import FEWEST_REPEATS, Stage, learn_repeats, repeat_factors
from triegp.calibration.tails import (
    GAUSSIAN,
    Tails,
    learn_tails,
    log_densities,
    offset_variance,
    second_moment,
    spread_kinds,
    spread_out,
)
from triegp.models.interface import Residuals, repeated_residuals
from triegp.models.repeats import Others, find_inputs, find_others, hash_inputs
from triegp.tree.rows import Rows

NARROW = Tails(np.array([0.9, 0.1]), np.array([0.5, 3.0]), np.array([0.02, -0.18]))


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


# Tails by kind


def test_each_kind_has_its_tails():
    heavy = learn_tails(np.random.default_rng(0).standard_t(3, 300))
    rng = np.random.default_rng(1)
    mean, var, second = rng.standard_normal(9), rng.uniform(0.5, 2.0, 9), np.arange(9) % 3 == 0
    found = spread_kinds((heavy, NARROW), mean, var, second.astype(np.int64))
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
def test_one_kind_alone(value):
    mean, var = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    found = spread_kinds((GAUSSIAN, NARROW), mean, var, np.full(2, int(value)))
    own = spread_out(NARROW if value else GAUSSIAN, mean, var)
    np.testing.assert_allclose(found.var(), own.var(), **VALUE)
    np.testing.assert_allclose(found.log_prob(0.5), own.log_prob(0.5), **VALUE)


# What is learned


def test_the_scale_and_tails_are_those_of_repeated_observations(fitted, model):
    (stage,) = fitted.stages
    observations = model._stream.observations
    left, others = repeated_residuals(fitted.base, observations, 0)
    assert left.rows.size == 90  # three at every second input
    unscaled = replace(stage.repeats, scale=1.0)
    factor = repeat_factors(unscaled, stage.logs[left.rows], left.mean, left.var, others)
    score = (left.y - left.mean) / np.sqrt(left.var * factor)
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

    def others(n):
        return Others(np.zeros(n), np.ones(n), np.ones(n), np.ones(n))

    few = FEWEST_REPEATS - 1
    assert learn_repeats(stage, residuals(few), others(few)) == (stage, 0.0)
    left = residuals(FEWEST_REPEATS)
    found, density = learn_repeats(stage, left, others(FEWEST_REPEATS))
    assert found.repeats.scale < 0.1
    assert (found.repeats.slope, found.repeats.trust) == (0.0, 0.0)
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
        densities[apart] = learn_repeats(plain.stages[0], *residuals)[1]
    again = calibrate_repeats(plain, OLD, observations)
    assert again.base.apart == max(densities, key=densities.get)
    assert again.stages[0].repeats.scale == fitted.stages[0].repeats.scale


def drawn(n=3000, seed=0, own=1.0, by_log=0.0):
    """Repeats at inputs whose noise differs: by chance, and by the local logarithm."""
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 8, n)
    logs = rng.standard_normal(n)
    var = np.exp(by_log * logs + own * rng.standard_normal(n))
    before = [np.sqrt(v) * rng.standard_normal(c) for v, c in zip(var, count, strict=True)]
    mean, spread = np.array([(part.mean(), part.var()) for part in before]).T
    others = Others(mean, count.astype(float), count.astype(float), spread)
    y = np.sqrt(var) * rng.standard_normal(n)
    left = Residuals(np.arange(n), np.zeros(n), np.ones(n), y, None, np.zeros(n, bool))
    stage = Stage(1.0, GAUSSIAN, None, 0.0, logs)
    return stage, left, others


def test_noise_that_differs_from_input_to_input_is_found():
    found = learn_repeats(*drawn(own=1.5))[0].repeats
    assert found.trust >= 0.3
    assert found.slope <= 0.25


def test_repeats_follow_the_local_noise():
    found = learn_repeats(*drawn(own=0.0, by_log=1.0))[0].repeats
    assert found.slope == pytest.approx(1.0, abs=0.25)
    assert found.trust <= 0.03


@pytest.mark.parametrize("seed", range(6))
def test_repeats_of_the_same_noise_stay_so(seed):
    """By chance both may gain 3 nats; new observations lose next to nothing by it."""
    stage, left, others = drawn(own=0.0, seed=seed)
    found = learn_repeats(stage, left, others)[0].repeats
    _, new, again = drawn(own=0.0, seed=100 + seed)
    logs = np.random.default_rng(200 + seed).standard_normal(new.y.size)
    shift = np.log(repeat_factors(found, logs, new.mean, new.var, again))
    density = log_densities(found.tails, new.y * np.exp(-0.5 * shift)) - 0.5 * shift
    exact = -0.5 * (np.log(2 * np.pi) + np.square(new.y))
    assert (density - exact).mean() > -0.01


def test_copies_teach_nothing():
    X, y, row = repeated()
    with pytest.warns(UserWarning, match="copies"):
        model = MODELS["mixture"].__class__(**MODELS["mixture"].get_params()).fit(X, y[:60][row])
    (found,) = model._stream.fitted
    assert found.stages[0].repeats is None
    assert found.inputs is None


# What is predicted


def noise_at(y, mean, var, trust):
    """The prior variance, and the squares of what was observed at the eight known inputs of NEW."""
    for i in range(8):
        squares = np.square(y[repeated()[2] == i] - mean[i])
        var[i] = (var[i] + trust * squares.sum()) / (1.0 + trust * squares.size)
    return var


def test_training_inputs_have_the_tails_of_repeats(fitted, model):
    fitted = replace(
        fitted,
        stages=(
            replace(
                fitted.stages[0],
                tails=GAUSSIAN,
                repeats=replace(fitted.stages[0].repeats, scale=0.37, tails=NARROW, trust=0.4),
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
    own_var = 0.37 * noise_at(model._stream.observations.y[:, 0], own.mean(), raw.copy(), 0.4)
    narrow = (second_moment(NARROW) + offset_variance(NARROW)) * own_var
    np.testing.assert_allclose(found.var(), np.where(again, narrow, stage.scale * raw), **VALUE)
    mean = fitted.predict(points, 0, var=False, latent=False).mean()
    np.testing.assert_allclose(mean, found.mean(), rtol=ROUNDING)
    expected = spread_out(NARROW, mean, own_var).quantile(0.95)
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
    others = find_others(observations, 0)
    factor = repeat_factors(stage.repeats, np.zeros(120), own.mean(), raw, others)
    moments = [
        second_moment(tails) + offset_variance(tails)
        for tails in (stage.repeats.tails, stage.tails)
    ]
    narrow = moments[0] * factor * raw
    wide = moments[1] * stage.scale * raw
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
    place = find_inputs(known, X)
    np.testing.assert_array_equal(known[place[:2]], hash_inputs(X[:2]))
    np.testing.assert_array_equal(place[2:], [-1, -1])
    np.testing.assert_array_equal(find_inputs(known, X.astype(np.float32))[:2], place[:2])


def test_added_rows_are_observations_of_their_input(fitted):
    """Two at a known input, one at a new one."""
    y = np.array([[0.3], [-0.2], [0.5]])
    X = np.vstack([OLD[[4, 4]], NEW[8:9]])
    more = fitted.insert(Rows(y, X=X))
    before, after = fitted.stages[0].repeats.seen, more.stages[0].repeats.seen
    assert after.count.size == before.count.size + 1
    old, (known, _, new) = find_inputs(fitted.inputs, OLD), find_inputs(more.inputs, X)
    assert after.count[known] == before.count[old[4]] + 2
    assert (after.count[new], after.mean[new], after.spread[new]) == (1.0, 0.5, 0.0)
    total = before.count[old[4]] * before.mean[old[4]] + 0.1
    assert after.mean[known] == pytest.approx(total / after.count[known])
    same = np.delete(np.arange(60), 4)
    place = find_inputs(more.inputs, OLD)
    np.testing.assert_allclose(after.spread[place[same]], before.spread[old[same]], **VALUE)


def test_a_loaded_model_says_the_same_to_the_last_bit(model, tmp_path):
    model.save(tmp_path / "m")
    loaded = triegp.load(tmp_path / "m")
    one, two = model._stream.fitted[0], loaded._stream.fitted[0]
    assert one.stages[0].repeats.scale == two.stages[0].repeats.scale
    np.testing.assert_array_equal(one.inputs, two.inputs)
    for name in ("mean", "weight", "count", "spread"):
        seen = (getattr(part.stages[0].repeats.seen, name) for part in (one, two))
        np.testing.assert_array_equal(*seen)
    assert one.stages[0].repeats.slope == two.stages[0].repeats.slope
    assert one.stages[0].repeats.trust == two.stages[0].repeats.trust
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
