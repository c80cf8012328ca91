import numpy as np
import pytest
from scipy.optimize import minimize

from tolerances import (
    CALIBRATED_COPIES,
    CALIBRATED_DEVIATION,
    CALIBRATED_NATS,
    CALIBRATED_WEIGHT,
    CALIBRATION_DIFFERENCE,
    CHAINED,
    FITTED,
    VALUE,
)
from triegp.mixture.calibration import (
    OUTLIER_VAR_RANGE,
    SCALE_RANGE,
    Calibration,
    _evenly,
    calibrate,
    temper,
)
from triegp.mixture.weights import stack
from triegp.models.distribution import PredictiveDistribution, log_density


def members(seed=0, n=3_000, n_members=4, spread=0.8):
    """Independent noisy views of the truth that know their own error, but not each other's."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(n)
    y = truth + 0.1 * rng.standard_normal(n)
    mean = truth + spread * rng.standard_normal((n_members, n))
    var = np.full((n_members, n), spread**2 + 0.01)
    return mean, var, y


def value(calibration, mean, var, y):
    return float(np.mean(log_density(temper(calibration, mean, var), y)))


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


def test_members_that_know_little_are_pulled_together():
    mean, var, y = members()
    found = calibrate(mean, var, y)
    stacked = Calibration(stack(-0.5 * (np.log(var) + (y - mean) ** 2 / var)))
    assert value(found, mean, var, y) > value(stacked, mean, var, y) + 0.2
    assert found.shrink < 0.3
    # The average of four errors of variance 0.64, and the noise; the mixture must say so.
    fresh_mean, fresh_var, fresh_y = members(seed=1)
    mixture = temper(found, fresh_mean, fresh_var)
    ratio = np.mean((fresh_y - mixture.mean()) ** 2) / np.mean(mixture.var())
    assert 0.9 < ratio < 1.1


def test_honest_members_are_left_alone():
    rng = np.random.default_rng(2)
    mean = np.zeros((2, 5_000))
    var = np.stack([np.full(5_000, 0.25), np.full(5_000, 4.0)])
    y = np.where(rng.random(5_000) < 0.5, 0.5, 2.0) * rng.standard_normal(5_000)
    found = calibrate(mean, var, y)
    np.testing.assert_allclose(found.weight, 0.5, atol=CALIBRATED_WEIGHT)
    assert abs(np.log(found.scale)) < 0.1


def test_it_is_the_best_of_its_kind():
    mean, var, y = members(n=400, n_members=2)
    found = calibrate(mean, var, y)

    def loss(z):
        weight = np.array([1.0, np.exp(z[0])]) / (1.0 + np.exp(z[0]))
        return -value(Calibration(weight, z[1], np.exp(z[2]), z[3], np.exp(z[4])), mean, var, y)

    bounds = [(-9, 9), (0, 1), np.log(SCALE_RANGE), (1 / 402, 0.5), np.log(OUTLIER_VAR_RANGE)]
    starts = [
        (0.0, 0.1, -0.5, 0.01, 1.0),
        (0.0, 0.5, 0.0, 0.1, 0.0),
        (1.0, 0.9, -1.0, 0.3, 2.0),
        (-1.0, 0.0, 0.5, 0.05, -1.0),
    ]
    others = [minimize(loss, z, method="L-BFGS-B", bounds=bounds).fun for z in starts]
    assert -value(found, mean, var, y) < min(others) + 1e-3  # rows enough to tell 0.05 apart


def test_outliers_are_counted_and_bounded():
    mean, var, y = members(n=4_000)
    rng = np.random.default_rng(5)
    away = rng.random(4_000) < 0.03
    y = np.where(away, 6.0 * rng.standard_normal(4_000), y)
    found = calibrate(mean, var, y)
    assert 0.01 < found.outlier < 0.05
    assert 15.0 < found.outlier_var < 70.0


def test_without_outliers_deviations_are_the_members_own():
    rng = np.random.default_rng(7)
    for n, sd in ((1_000, 0.03), (4_000, 0.02), (10_000, 0.01)):
        mean = rng.standard_normal((1, n))
        y = mean[0] + sd * rng.standard_normal(n)
        found = calibrate(mean, np.full((1, n), sd**2), y)
        assert found.outlier == pytest.approx(1 / (n + 2), rel=FITTED)
        said = temper(found, mean, np.full((1, n), sd**2)).std()
        np.testing.assert_allclose(said, sd, rtol=CALIBRATED_DEVIATION)
        # and yet a row that nothing foretold costs tens of nats, not thousands
        row = temper(found, np.zeros((1, 1)), np.full((1, 1), sd**2))
        assert log_density(row, np.ones(1))[0] > -70


def test_outliers_are_one_more_component_and_the_function_has_none():
    mean, var, _ = members(n=50)
    mixed = Calibration(np.array([0.1, 0.2, 0.3, 0.4]), 0.5, 2.0, outlier=0.1, outlier_var=9.0)
    whole, function = temper(mixed, mean, var), temper(mixed, mean, var, latent=True)
    np.testing.assert_allclose(whole.mean(), function.mean(), **VALUE)
    far = 2.0 * mixed.weight @ var + 9.0
    np.testing.assert_allclose(whole.var(), 0.9 * function.var() + 0.1 * far, **VALUE)
    np.testing.assert_allclose(whole.weights.sum(), 1.0, **VALUE)


def test_the_gradient_is_that_of_the_value(monkeypatch):
    seen = {}

    def grab(objective, start, **options):
        seen["f"], seen["z"] = objective, start
        return minimize(objective, start, **options)

    monkeypatch.setattr("triegp.mixture.calibration.minimize", grab)
    mean, var, y = members(n=300)
    calibrate(mean, var, y, np.random.default_rng(0).uniform(0, 2, 300))
    z = seen["z"] + 0.3 * np.random.default_rng(1).standard_normal(seen["z"].size)
    z[-4] = 0.4
    _, gradient = seen["f"](z)
    for k in range(z.size):
        step = np.zeros(z.size)
        step[k] = 1e-5
        slope = (seen["f"](z + step)[0] - seen["f"](z - step)[0]) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=CALIBRATION_DIFFERENCE, abs=CHAINED)


def test_row_weight_is_repetition():
    mean, var, y = members(n=60)
    weight = np.random.default_rng(3).integers(0, 4, 60).astype(float)
    rows = np.repeat(np.arange(60), weight.astype(int))
    weighted = calibrate(mean, var, y, weight)
    repeated = calibrate(mean[:, rows], var[:, rows], y[rows])
    # The optimiser stops by a rule of its own; where both stop, the value is the same.
    at = [value(part, mean[:, rows], var[:, rows], y[rows]) for part in (weighted, repeated)]
    assert at[0] == pytest.approx(at[1], abs=CALIBRATED_NATS)
    np.testing.assert_allclose(weighted.weight, repeated.weight, atol=CALIBRATED_COPIES)


def test_repeated_targets_do_not_make_spikes():
    mean = np.zeros((3, 500)) + np.array([[-1.0], [0.0], [1.0]])
    var = np.ones((3, 500))
    found = calibrate(mean, var, np.zeros(500))
    assert found.scale == pytest.approx(SCALE_RANGE[0])


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows(n):
    found = calibrate(np.zeros((2, n)), np.ones((2, n)), np.ones(n))
    np.testing.assert_allclose(found.weight.sum(), 1.0, **VALUE)
    assert np.isfinite([found.shrink, found.scale]).all()


def test_rows_far_from_every_member():
    mean, var, y = members(n=200)
    y[0] = 1e8
    found = calibrate(mean, var, y)
    np.testing.assert_allclose(found.weight.sum(), 1.0, **VALUE)
    assert np.isfinite([found.shrink, found.scale]).all()


def test_weights_are_copies_also_where_only_some_rows_are_looked_at():
    weight = np.random.default_rng(3).integers(0, 5, 400)
    rows, count = _evenly(weight.astype(float), 500)
    copies, times = _evenly(np.ones(weight.sum()), 500)
    assert weight.sum() > 500
    assert count.sum() == times.sum() == 500
    same = np.repeat(np.arange(400), weight)[copies]
    np.testing.assert_array_equal(np.repeat(rows, count.astype(int)), same)
    few, all_of_them = _evenly(weight.astype(float), 5_000)
    np.testing.assert_array_equal(few, np.flatnonzero(weight))
    np.testing.assert_array_equal(all_of_them, weight[few])


def test_one_row_twice_is_a_row_of_weight_two():
    mean, var, y = np.array([[0.3], [0.1]]), np.array([[0.5], [2.0]]), np.array([1.0])
    twice = calibrate(np.repeat(mean, 2, axis=1), np.repeat(var, 2, axis=1), np.repeat(y, 2))
    weighted = calibrate(mean, var, y, np.array([2.0]))
    assert weighted.scale == pytest.approx(twice.scale, rel=FITTED)
    np.testing.assert_allclose(weighted.weight, twice.weight, rtol=FITTED)
    alone = calibrate(mean, var, y)
    dropped = calibrate(
        np.hstack([mean, mean]), np.hstack([var, var]), np.ones(2), np.array([1.0, 0.0])
    )
    np.testing.assert_array_equal(alone.weight, dropped.weight)
    assert (alone.scale, alone.outlier) == (dropped.scale, dropped.outlier) == (1.0, 0.0)
