"""What calibration learns for one target, from residuals whose law is known."""

import numpy as np
import pytest

from tolerances import ROUNDING, STACKED
from triegp.calibration.local import predict_local
from triegp.calibration.stage import _scale, learn_stage
from triegp.calibration.tails import GAUSSIAN, learn_tails, log_densities
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


def test_only_rows_that_were_held_out_count_if_there_are_any():
    fresh = np.arange(80) < 30
    X, left = residuals(fresh=fresh)
    y = np.where(fresh, left.y, left.mean + 50.0)
    odd = Residuals(left.rows, left.mean, left.var, y, None, fresh)
    one, two = (learn_stage(X, part, run(), by_var=True) for part in (left, odd))
    assert one.scale == two.scale
    np.testing.assert_array_equal(one.tails.weight, two.tails.weight)


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
    plain = learn_stage(X[:399], select(left, np.arange(399)), run(), by_var=by_var)
    assert plain.local is None
    without = log_densities(plain.tails, left.y / np.sqrt(plain.scale)) - 0.5 * np.log(plain.scale)
    assert gained.sum() > without.sum() + 50


@pytest.mark.parametrize("seed", range(6))
def test_noise_that_is_the_same_everywhere_stays_so(seed):
    """By chance local noise may gain 3 nats on 400 rows; new rows lose next to nothing by it."""
    X, left = residuals(400, seed=seed)
    stage = learn_stage(X, left, run(seed), by_var=True)
    without = learn_stage(X[:399], select(left, np.arange(399)), run(seed), by_var=True)
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
