"""What calibration learns for one target, from residuals whose law is known."""

from dataclasses import replace

import numpy as np
import pytest

from tolerances import ROUNDING, STACKED
from triegp.calibration.local import predict_local
from triegp.calibration.stage import CEILING, USUAL_GROWTH, _scale, learn_stage
from triegp.calibration.tails import (
    GAUSSIAN,
    learn_tails,
    log_densities,
    second_moment,
    spread_kinds,
)
from triegp.models.interface import Residuals
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run


def run(seed=0):
    return Run(np.random.default_rng(seed), 1, Stopwatch())


def select(left, some):
    """Residuals of some rows, which keep their place in the model."""
    parts = (left.rows, left.mean, left.var, left.y)
    return Residuals(*(part[some] for part in parts), None, left.fresh[some])


def residuals(n=80, factor=1.0, seed=0, weight=None, fresh=None):
    rng = np.random.default_rng(seed)
    mean, var = rng.standard_normal(n), rng.uniform(0.5, 2.0, n)
    y = mean + factor * np.sqrt(var) * rng.standard_normal(n)
    fresh = np.zeros(n, bool) if fresh is None else fresh
    X = rng.random((n, 2))
    return X, Residuals(np.arange(n), mean, var, y, weight, fresh)


def mean_density(scale, tails, left):
    score = (left.y - left.mean) / np.sqrt(scale * left.var)
    return np.mean(log_densities(tails, score) - 0.5 * np.log(scale * left.var))


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_scale_is_that_of_the_residuals(factor):
    X, left = residuals(factor=factor)
    stage = learn_stage(X, left, run(), by_var=True)
    score = np.abs(left.y - left.mean) / np.sqrt(left.var)
    # Half of the residuals lie within the median of a Gaussian of this scale.
    inside = score / np.sqrt(stage.scale) <= 0.6744897501960817 * (1 + ROUNDING)
    assert inside.sum() == 40
    assert 0.5 < stage.scale / factor**2 < 2.0
    assert stage.local is None
    assert stage.slope == 0.0
    np.testing.assert_array_equal(stage.logs, np.zeros(80))
    scaled = (left.y - left.mean) / np.sqrt(left.var * stage.scale)
    np.testing.assert_allclose(stage.tails.weight, learn_tails(scaled).weight, atol=STACKED)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_rows_that_training_has_not_seen_tell_the_level(factor):
    """Parameters fit the rows that they have seen; what they gained by that is kept as optimism."""
    fresh = np.arange(4_000) < 1_500
    X, left = residuals(4_000, fresh=fresh)
    y = np.where(fresh, left.mean + factor * (left.y - left.mean), left.y)
    stage = learn_stage(X, replace(left, y=y), run(), local=False, by_var=True)
    assert stage.scale * second_moment(stage.tails) == pytest.approx(factor**2, rel=0.2)
    score = (y - left.mean) / np.sqrt(left.var * stage.scale)
    density = log_densities(stage.tails, score)
    expected = (density[~fresh].mean() - density[fresh].mean()) * (~fresh).mean()
    assert stage.optimism == pytest.approx(expected, abs=0.04)


def test_few_rows_do_not_outweigh_what_is_usual():
    fresh = np.arange(400) < 20
    X, left = residuals(400, fresh=fresh)
    error = left.y - left.mean
    calm, wild = (replace(left, y=left.mean + np.where(fresh, f, 1.0) * error) for f in (0.8, 5.0))

    def growth(part):
        one, every = (
            learn_stage(X, replace(part, fresh=own), run(), local=False, by_var=True)
            for own in (fresh, np.ones(400, bool))
        )
        return np.log(one.scale / every.scale)

    assert -0.1 < growth(calm) < 2 * USUAL_GROWTH  # by themselves they would say -0.45
    assert growth(wild) > 1.0


def test_what_parameters_gained_is_told_by_a_model_that_has_seen_the_rows():
    X, left = residuals(300)
    better = replace(left, mean=0.5 * (left.mean + left.y), var=0.25 * left.var)
    tuned = learn_stage(X, left, run(), local=False, by_var=True).optimism
    stage = learn_stage(X, left, run(), local=False, by_var=True, seen=better)
    assert stage.optimism - tuned == pytest.approx(np.log(2.0), abs=1e-6)
    assert learn_stage(X, better, run(), local=False, by_var=True, seen=left).optimism == 0.0


@pytest.mark.parametrize("n", [300, 1_000, 4_000])
def test_what_scale_and_tails_gained_is_told_by_rows_that_were_not_there(n):
    """The mean log density, less the optimism, is at most that of new rows, and hardly below."""
    excess = []
    for seed in range(8):
        X, left = residuals(n, seed=seed, fresh=np.ones(n, bool))
        new = residuals(20_000, seed=seed + 100)[1]
        stage = learn_stage(X, left, run(), local=False, by_var=True)
        assert stage.optimism >= 0.0
        # Compared with the truth, so that luck of the rows cancels.
        own, fresh = (
            mean_density(stage.scale, stage.tails, part) - mean_density(1.0, GAUSSIAN, part)
            for part in (left, new)
        )
        excess.append(own - stage.optimism - fresh)
    assert -10.0 / n < np.mean(excess) < 2.0 * np.std(excess) / np.sqrt(len(excess))


def test_variances_beyond_those_seen_are_not_reduced():
    X, left = residuals(200, factor=0.1)
    stage = learn_stage(X, left, run(), by_var=True)
    assert stage.scale < 0.03
    assert (left.var <= stage.ceiling).mean() == pytest.approx(CEILING, abs=0.006)
    var = np.array([0.5, stage.ceiling, 100.0])
    found = stage.factors(np.zeros(3), var) * var
    ceiling = stage.scale * stage.ceiling
    expected = [0.5 * stage.scale, ceiling, ceiling + 100.0 - stage.ceiling]
    np.testing.assert_allclose(found, expected, rtol=ROUNDING)
    wide = learn_stage(
        X, replace(left, y=left.mean + 50 * (left.y - left.mean)), run(), by_var=True
    )
    np.testing.assert_allclose(wide.factors(np.zeros(3), var), wide.scale, rtol=ROUNDING)


def test_large_noise_may_have_another_shape():
    """Two values where noise is large, normal noise elsewhere: no mixture of both fits either."""
    rng = np.random.default_rng(0)
    X = rng.random((2_000, 1))
    loud = X[:, 0] > 0.5
    y = np.where(loud, rng.choice([-1.0, 1.0], 2_000), 0.0)
    y += np.where(loud, 0.25, 0.3) * rng.standard_normal(2_000)
    nothing = np.zeros(2_000)
    left = Residuals(np.arange(2_000), nothing, nothing + 1, y, None, np.zeros(2_000, bool))
    stage = learn_stage(X, left, run(), by_var=False)
    assert stage.loud is not None
    kinds = stage.find_kinds(stage.logs, np.zeros(2_000, bool))
    assert ((kinds == 1) == loud).mean() > 0.9
    told = spread_kinds(stage.kinds, 0 * y, stage.factors(stage.logs, np.ones(2_000)), kinds)
    low, high = told.interval(0.9).T
    for part in (loud, ~loud):
        assert 0.85 < ((low <= y) & (y <= high))[part].mean() < 0.95


def test_weights_are_repetitions():
    rng = np.random.default_rng(1)
    score, count = rng.standard_normal(51), rng.integers(1, 5, 51)
    assert _scale(score, count.astype(float)) == _scale(np.repeat(score, count), None)
    X, left = residuals(51)
    weighted = Residuals(left.rows, left.mean, left.var, left.y, count.astype(float), left.fresh)
    rows = np.repeat(np.arange(51), count)
    copied = Residuals(rows, left.mean[rows], left.var[rows], left.y[rows], None, left.fresh[rows])
    few = learn_stage(X[:51], weighted, run(), by_var=True)
    many = learn_stage(X, copied, run(), by_var=True)
    assert few.scale == many.scale
    assert few.scale == pytest.approx(
        _scale((left.y - left.mean)[rows] / left.var[rows] ** 0.5, None)
    )


@pytest.mark.parametrize("n", [1, 2, 99, 450])
def test_residuals_of_zero_leave_the_scale_as_it_is(n):
    X, left = residuals(n)
    exact = Residuals(left.rows, left.mean, left.var, left.mean, None, left.fresh)
    stage = learn_stage(X, exact, run(), by_var=False)
    assert stage.scale == 1.0
    if n == 1:
        assert stage.tails is GAUSSIAN


def noisy(n=600, seed=0):
    """Noise that depends on place, and is given as if it did not."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    sd = np.where(X[:, 0] < 0.5, 0.1, 2.0)
    y = sd * rng.standard_normal(n)
    return X, Residuals(np.arange(n), np.zeros(n), np.ones(n), y, None, np.zeros(n, bool))


@pytest.mark.parametrize("by_var", [False, True])
def test_noise_that_depends_on_place_is_found(by_var):
    X, left = noisy()
    stage = learn_stage(X, left, run(), by_var=by_var)
    assert stage.local is not None
    assert stage.local.by_var is by_var
    assert stage.slope > 0
    factor = stage.scale * np.exp(stage.slope * stage.logs)
    ratio = np.median(factor[X[:, 0] > 0.6]) / np.median(factor[X[:, 0] < 0.4])
    assert 100 < ratio < 1600  # 400
    # It is used because it pays.
    score = left.y / np.sqrt(factor)
    gained = log_densities(stage.tails, score) - 0.5 * np.log(factor)
    plain = learn_stage(X[:99], select(left, np.arange(99)), run(), by_var=by_var)
    assert plain.local is None
    without = log_densities(plain.tails, left.y / np.sqrt(plain.scale)) - 0.5 * np.log(plain.scale)
    assert gained.sum() > without.sum() + 50


@pytest.mark.parametrize("seed", range(6))
def test_noise_that_is_the_same_everywhere_stays_so(seed):
    """By chance local noise may gain 3 nats on 400 rows; new rows lose next to nothing by it."""
    X, left = residuals(400, seed=seed)
    stage = learn_stage(X, left, run(seed), by_var=True)
    without = learn_stage(X, left, run(seed), local=False, by_var=True)
    assert without.local is None
    new_X, new = residuals(4_000, seed=100 + seed)
    logs = np.zeros(4_000)
    if stage.local is None:
        assert stage.slope == 0.0
        assert not stage.logs.any()
    else:
        logs = predict_local(stage.local, new_X, new.mean, new.var)
    score = (new.y - new.mean) / np.sqrt(new.var)

    def density(stage, logs):
        shift = np.log(stage.scale) + stage.slope * logs
        return log_densities(stage.tails, score * np.exp(-0.5 * shift)) - 0.5 * shift

    assert (density(stage, logs) - density(without, logs)).mean() > -0.01


def test_rows_of_a_part_keep_their_place():
    X, left = noisy()
    some = np.flatnonzero(np.arange(600) % 4 != 0)
    stage = learn_stage(X, select(left, some), run(), by_var=False)
    assert stage.logs.shape == (600,)
    assert not stage.logs[::4].any()
    assert stage.logs[some].all()
