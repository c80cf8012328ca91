"""Nll, CRPS, PIT and calibration error against their definitions, and what they refuse."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.special import ndtri
from scipy.stats import norm

from device_arrays import Dlpack as Device
from naive_scores import integrated_crps, naive_cdf, naive_crps, naive_nll
from score_problems import SHAPES, random_mixture, targets
from tolerances import DENSE, HANDFUL, QUADRATURE, ROUNDING
from triegp import BinaryTreeGPRegressor, PredictiveDistribution, TransformedDistribution
from triegp.metrics import calibration_error, crps, distributions, nll, pit
from triegp.models.transforms import Log

SCORES = {"nll": nll, "crps": crps}


def point(value, m=1):
    return PredictiveDistribution(np.ones(1), np.full((1, m), value), np.zeros((1, m)))


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_agree_with_their_definitions(shape):
    found = random_mixture(**SHAPES[shape])
    y = targets(found.n_rows)
    for score, naive in ((nll, naive_nll), (crps, naive_crps)):
        by_row = score(y, found, by_row=True)
        np.testing.assert_allclose(by_row, naive(y, found), rtol=ROUNDING, atol=ROUNDING)
        assert score(y, found) == pytest.approx(by_row.mean(), rel=HANDFUL)
        assert isinstance(score(y, found), float)
    np.testing.assert_allclose(pit(y, found), naive_cdf(y, found), rtol=ROUNDING)


@pytest.mark.parametrize("one_mean", [False, True])
def test_the_crps_is_the_integral_over_the_distribution_function(one_mean):
    found = random_mixture(one_mean=one_mean)
    y = targets(found.n_rows)
    by_row = crps(y, found, by_row=True)
    for i in range(found.n_rows):
        weight, mean, var = found.weights, found.means[:, i], found.variances[:, i]

        def cdf(x, weight=weight, mean=mean, var=var):
            return float(weight @ norm.cdf(x, mean, np.sqrt(var)))

        assert by_row[i] == pytest.approx(integrated_crps(y[i], cdf, -60, 60, mean), rel=QUADRATURE)


def test_the_crps_of_draws_of_the_distribution():
    """By the absolute differences of a million draws."""
    found = random_mixture(m=3)
    y = targets(3)
    draws = found.sample(1_000_000, random_state=2)
    sizes = np.abs(draws - y[:, None]) - 0.5 * np.abs(draws - draws[:, ::-1])
    error = 5 * sizes.std(axis=1) / np.sqrt(draws.shape[1] / 2)  # pairs count twice
    assert (np.abs(crps(y, found, by_row=True) - sizes.mean(axis=1)) < error).all()


def test_components_of_no_weight_do_not_matter():
    found = random_mixture(k=3)
    y = targets(found.n_rows)
    more = PredictiveDistribution(
        np.append(found.weights, 0.0),
        np.vstack([found.means, np.full(9, 100.0)]),
        np.vstack([found.variances, np.ones(9)]),
    )
    np.testing.assert_array_equal(crps(y, more, by_row=True), crps(y, found, by_row=True))
    np.testing.assert_allclose(nll(y, more), nll(y, found), rtol=HANDFUL)


def test_point_masses_score_their_absolute_error():
    assert crps([1.0, 4.0], point(2.0, 2), by_row=True).tolist() == [1.0, 2.0]
    assert pit([1.0, 2.0, 3.0], point(2.0, 3)).tolist() == [0.0, 0.5, 1.0]
    halves = PredictiveDistribution(np.full(2, 0.5), np.array([[0.0], [2.0]]), np.zeros((2, 1)))
    assert crps([0.0], halves) == pytest.approx(1.0 - 0.5)  # E|x - y| - E|x - x'| / 2
    assert pit([2.0], halves).tolist() == [0.75]
    assert calibration_error([2.0], point(2.0)) == pytest.approx(0.5)  # all intervals hold y


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e9, 1e140])
def test_the_crps_has_the_units_of_y(scale):
    found = random_mixture()
    y = targets(found.n_rows)
    other = PredictiveDistribution(found.weights, scale * found.means, scale**2 * found.variances)
    np.testing.assert_allclose(
        crps(scale * y, other, by_row=True), scale * crps(y, found, by_row=True), rtol=ROUNDING
    )
    assert nll(scale * y, other) == pytest.approx(nll(y, found) + np.log(scale), rel=DENSE)


def test_far_targets():
    found = PredictiveDistribution(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    far = crps([1e200, -1e200], found, by_row=True)
    np.testing.assert_allclose(far, 1e200, rtol=HANDFUL)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans(), st.booleans())
def test_properties_of_any_mixture(seed, k, one_mean, by_row):
    found = random_mixture(seed, m=12, k=k, one_mean=one_mean, by_row=by_row)
    y = targets(12, seed)
    score = crps(y, found, by_row=True)
    assert (score > 0).all()
    assert (score <= np.abs(y - found.mean()) + found.std()).all()  # E|x - y| is at most this
    rows = np.random.default_rng(seed).permutation(12)
    weights = found.weights if found.weights.ndim == 1 else found.weights[:, rows]
    mixed = PredictiveDistribution(weights, found.means[:, rows], found.variances[:, rows])
    np.testing.assert_allclose(crps(y[rows], mixed, by_row=True), score[rows], rtol=HANDFUL)
    twice = PredictiveDistribution(  # every component as two halves
        np.repeat(0.5 * found.weights, 2, axis=0),
        np.repeat(found.means, 2, axis=0),
        np.repeat(found.variances, 2, axis=0),
    )
    np.testing.assert_allclose(crps(y, twice, by_row=True), score, rtol=ROUNDING)
    np.testing.assert_allclose(
        crps(-y, replace(found, means=-found.means), by_row=True), score, rtol=ROUNDING
    )


def test_blocks_do_not_matter(monkeypatch):
    found = random_mixture(m=100, by_row=True)
    y = targets(100)
    whole = {name: score(y, found, by_row=True) for name, score in SCORES.items()}
    monkeypatch.setattr(distributions, "BLOCK_ROWS", 7)
    for name, score in SCORES.items():
        np.testing.assert_array_equal(score(y, found, by_row=True), whole[name])


# Weights and rows that are not predicted


@pytest.mark.parametrize("name", SCORES)
def test_weights_count_rows(name):
    score, found = SCORES[name], random_mixture()
    y, times = targets(9), np.array([1, 0, 3, 2, 1, 0, 0, 4, 1])
    again = np.repeat(np.arange(9), times)
    repeated = PredictiveDistribution(
        found.weights, found.means[:, again], found.variances[:, again]
    )
    assert score(y, found, sample_weight=times) == pytest.approx(score(y[again], repeated))
    assert calibration_error(y, found, sample_weight=times) == pytest.approx(
        calibration_error(y[again], repeated)
    )


@pytest.mark.parametrize("one_mean", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_rows_of_weight_0_may_be_nan(name, one_mean):
    score, found = SCORES[name], random_mixture(one_mean=one_mean)
    y = targets(9)
    rest = [0, 1, 2, 4, 5, 6, 7]
    some = PredictiveDistribution(found.weights, found.means[:, rest], found.variances[:, rest])
    gaps = found.variances.copy()
    gaps[:, 3] = np.nan
    holes = PredictiveDistribution(found.weights, found.means, gaps)
    unknown = y.copy()
    unknown[8] = np.nan
    weight = np.ones(9)
    weight[[3, 8]] = 0.0
    assert score(unknown, holes, sample_weight=weight) == pytest.approx(score(y[rest], some))
    by_row = score(unknown, holes, sample_weight=weight, by_row=True)
    np.testing.assert_allclose(by_row[rest], score(y[rest], some, by_row=True), rtol=ROUNDING)
    assert np.isnan(by_row[[3, 8]]).all()
    level = pit(unknown, holes, sample_weight=weight)
    assert np.isnan(level[[3, 8]]).all()
    assert calibration_error(unknown, holes, sample_weight=weight) == pytest.approx(
        calibration_error(y[rest], some)
    )
    with pytest.raises(ValueError, match=r"distribution must not be NaN, got NaN at row 3: only"):
        score(y, holes)
    with pytest.raises(ValueError, match=r"y must not be NaN, got NaN at row 8: only"):
        score(unknown, found)


def test_leave_one_out_of_weighted_rows():
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    weight = np.ones(60)
    weight[:5] = 0.0
    model = BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=5, random_state=0)
    model.fit(X, y, sample_weight=weight)
    found = nll(model.loo_targets(), model.loo_distribution(), sample_weight=weight)
    assert found == pytest.approx(-model.loo_score_ - model.loo_optimism_)
    with pytest.raises(ValueError, match="sample_weight is 0"):
        nll(y, model.loo_distribution())


# Calibration


def test_calibration_error_is_the_distance_of_coverages():
    found = random_mixture(m=400)
    y = targets(400)
    levels = (0.2, 0.5, 0.9)
    shares = []
    for level in levels:
        low, high = found.interval(level).T
        shares.append(abs(np.mean((low <= y) & (y <= high)) - level))
    assert calibration_error(y, found, levels=levels) == pytest.approx(np.mean(shares))
    assert calibration_error(y, found, levels=0.5) == pytest.approx(shares[1])


def test_right_distributions_have_little_calibration_error():
    m = 4_000
    level = (np.arange(m) + 0.5) / m
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, m)), np.ones((1, m)))
    assert calibration_error(ndtri(level), normal) < 1 / m
    assert calibration_error(np.zeros(m), normal) == pytest.approx(0.5)


@pytest.mark.parametrize("levels", [0.0, 1.0, [], [0.5, 1.5], "half"])
def test_levels_that_are_no_coverages(levels):
    with pytest.raises(ValueError, match="levels must"):
        calibration_error([0.0], random_mixture(m=1), levels=levels)


# Several targets, transformed targets, devices


def test_several_targets_are_averaged():
    one, two = random_mixture(1), random_mixture(2)
    y = np.stack([targets(9, 3), targets(9, 4)], axis=1)
    for score in SCORES.values():
        by_row = score(y, [one, two], by_row=True)
        assert by_row.shape == (9, 2)
        np.testing.assert_array_equal(by_row[:, 0], score(y[:, 0], one, by_row=True))
        np.testing.assert_array_equal(by_row[:, 1], score(y[:, 1], two, by_row=True))
        weight = np.arange(9.0)
        each = [score(y[:, t], found, sample_weight=weight) for t, found in enumerate((one, two))]
        assert score(y, [one, two], sample_weight=weight) == pytest.approx(np.mean(each))
    assert pit(y, [one, two]).shape == (9, 2)
    each = [calibration_error(y[:, t], found) for t, found in enumerate((one, two))]
    assert calibration_error(y, [one, two]) == pytest.approx(np.mean(each))
    assert nll(y[:, :1], [one], by_row=True).shape == (9, 1)


def test_transformed_targets():
    found = TransformedDistribution(random_mixture(), Log(0.3))
    y = np.exp(targets(9))
    np.testing.assert_allclose(nll(y, found, by_row=True), -found.log_prob(y), rtol=ROUNDING)
    np.testing.assert_allclose(pit(y, found), found.cdf(y), rtol=ROUNDING)
    y[4] = -1.0  # outside the domain
    assert nll(y, found) == np.inf
    assert pit(y, found)[4] == 0.0
    assert np.isfinite(crps(y, found))


def test_targets_on_a_device():
    found, y = random_mixture(), targets(9)
    for score in SCORES.values():
        assert score(Device(y), found, sample_weight=Device(np.ones(9))) == score(y, found)


# What is refused


def test_what_cannot_be_scored():
    found, y = random_mixture(), targets(9)
    with pytest.raises(TypeError, match=r"must be a PredictiveDistribution .* got ndarray"):
        nll(y, found.mean())
    with pytest.raises(TypeError, match="got tuple"):
        crps(y, [(1, 2)])
    with pytest.raises(ValueError, match="as many rows as y, 8, got 9"):
        nll(y[:8], found)
    with pytest.raises(ValueError, match=r"got a list of 1 for y of shape \(9,\)"):
        nll(y, [found])
    with pytest.raises(ValueError, match=r"got one for y of shape \(9, 2\)"):
        nll(np.stack([y, y], axis=1), found)
    with pytest.raises(ValueError, match=r"got a list of 3 for y of shape \(9, 2\)"):
        nll(np.stack([y, y], axis=1), [found] * 3)
    with pytest.raises(ValueError, match=r"y must have shape .* got \(0,\)"):
        nll([], found)
    with pytest.raises(ValueError, match=r"y must have shape .* got \(9, 1, 1\)"):
        nll(y[:, None, None], [found])
    with pytest.raises(ValueError, match="y must be finite, got infinity at row 2"):
        nll(np.where(np.arange(9) == 2, np.inf, y), found)
    with pytest.raises(ValueError, match="sample_weight must not be 0 for all rows"):
        nll(y, found, sample_weight=np.zeros(9))
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        nll(y, found, sample_weight=-np.ones(9))
    with pytest.raises(ValueError, match="sample_weight must have 9 entries"):
        nll(y, found, sample_weight=np.ones(8))
    with pytest.raises(ValueError, match="y must be an array of real numbers"):
        nll(["a"] * 9, found)
    with pytest.raises(ValueError, match="by_row must be True or False"):
        nll(y, found, by_row="yes")
