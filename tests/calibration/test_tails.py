"""Tails, learned from the residuals of rows left out."""

import numpy as np
import pytest
from scipy.special import ndtri

import oracle
from tolerances import (
    SKEW_PROBABILITY,
    SKEW_QUANTILE,
    STATIONARY,
    TAIL_COPIES,
    TAIL_OF_FEW,
    TAIL_OF_SOLVES,
    TAIL_QUANTILE,
    TAIL_SCALE,
    VALUE,
)
from triegp import TrieGPRegressor
from triegp.additive.conditioning import residuals_of
from triegp.additive.forest import multiply
from triegp.additive.variance import leave_out
from triegp.calibration.tails import (
    FACTORS,
    GAUSSIAN,
    UNSEEN,
    first_moment,
    learn_shape,
    learn_tails,
    log_densities,
    offset_variance,
    second_moment,
    spread_out,
)


def around_zero(tails):
    return spread_out(tails, np.zeros(1), np.ones(1))


def test_gaussian_residuals_have_gaussian_quantiles():
    score = np.random.default_rng(0).standard_normal(5000)
    tails = learn_tails(score)
    levels = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    found = around_zero(tails).quantile(levels)[0]
    np.testing.assert_allclose(found, ndtri(levels), atol=TAIL_QUANTILE)
    assert tails.weight.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_wrong_scale_is_put_right(factor):
    score = factor * np.random.default_rng(0).standard_normal(5000)
    found = around_zero(learn_tails(score)).quantile([0.05, 0.25, 0.75, 0.95])[0]
    np.testing.assert_allclose(found, factor * ndtri([0.05, 0.25, 0.75, 0.95]), rtol=TAIL_SCALE)


def test_heavy_tails_get_weight():
    rng = np.random.default_rng(0)
    score, fresh = rng.standard_t(2, (2, 3000))
    tails = learn_tails(score)
    assert tails.weight[tails.factor >= 2].sum() > 0.05
    assert (
        tails.weight[tails.factor >= 2].sum()
        > 5 * learn_tails(rng.standard_normal(3000)).weight[tails.factor >= 2].sum()
    )

    def mean_log_density(tails):
        at = spread_out(tails, np.zeros(3000), np.ones(3000))
        return at.log_prob(fresh).mean()

    assert mean_log_density(tails) > mean_log_density(GAUSSIAN) + 0.3
    best = np.quantile(score, [0.05, 0.25, 0.75, 0.95])
    found = around_zero(tails).quantile([0.05, 0.25, 0.75, 0.95])[0]
    np.testing.assert_allclose(found, best, rtol=TAIL_OF_FEW)


def test_the_tails_are_the_most_likely_ones():
    score = np.random.default_rng(0).standard_t(3, 800)
    tails = learn_tails(score)
    # Without the one observation that is added, weights must fulfil the conditions of the maximum.
    weight = (tails.weight * 801 - UNSEEN / UNSEEN.sum()) / 800
    assert (weight > -1e-12).all()
    density = np.exp(-0.5 * np.square(score / FACTORS[:, None])) / FACTORS[:, None]
    slope = np.mean(density / (weight @ density), axis=1)
    assert slope.max() < 1.0 + 1e-6
    np.testing.assert_allclose(slope[weight > 1e-3], 1.0, atol=STATIONARY)


@pytest.mark.parametrize(
    "score",
    [
        np.random.default_rng(0).standard_normal(500),
        np.zeros(2),
        np.full(50, 1e200),
        np.array([0.0, 1e-300, 1e300, -1e300]),
    ],
)
def test_no_tail_is_without_weight(score):
    tails = learn_tails(score)
    assert (tails.weight >= 0).all()
    assert (tails.weight[FACTORS >= 1] > 0).all()
    share = UNSEEN / UNSEEN.sum() / (score.size + 1)
    assert (tails.weight >= share * (1 - 1e-12)).all()
    assert tails.weight.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(tails.factor, FACTORS)


def test_the_second_moment_is_the_mixtures_variance():
    tails = learn_tails(np.random.default_rng(0).standard_t(3, 400))
    mixture = spread_out(tails, np.array([2.0]), np.array([0.3]))
    assert mixture.var()[0] == pytest.approx(0.3 * second_moment(tails))
    assert mixture.mean()[0] == pytest.approx(2.0)
    assert second_moment(GAUSSIAN) == first_moment(GAUSSIAN) == 1
    assert first_moment(tails) == pytest.approx(np.average(FACTORS, weights=tails.weight))


def test_weights_count_as_copies_in_the_tails():
    rng = np.random.default_rng(0)
    score, counts = rng.standard_t(3, 400), rng.integers(0, 4, 400)
    levels = [0.001, 0.05, 0.25, 0.75, 0.95, 0.999]
    weighted = learn_tails(score, counts.astype(float))
    copied = learn_tails(np.repeat(score, counts))
    np.testing.assert_allclose(
        around_zero(weighted).quantile(levels),
        around_zero(copied).quantile(levels),
        rtol=TAIL_COPIES,
    )


def skewed(n, seed=0):
    """Residuals of mean 0 and variance 1 whose upper tail is the longer one."""
    return np.random.default_rng(seed).gamma(1.5, 1.0, n) / np.sqrt(1.5) - np.sqrt(1.5)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_skewed_residuals_get_skewed_tails(sign):
    score, fresh = sign * skewed(3000), sign * skewed(3000, seed=1)
    plain = learn_tails(score)
    tails = learn_shape(plain, score)
    assert log_densities(tails, fresh).mean() > log_densities(plain, fresh).mean() + 0.1
    assert tails.weight @ tails.offset == pytest.approx(0.0, abs=1e-12)
    assert tails.weight.sum() == pytest.approx(1.0)
    mixture = around_zero(tails)
    assert mixture.var()[0] == pytest.approx(second_moment(tails) + offset_variance(tails))
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    np.testing.assert_allclose(
        mixture.quantile(levels)[0], np.quantile(score, levels), atol=SKEW_QUANTILE
    )
    inside = [mixture.cdf(one)[0] for one in (-1.0, 0.0, 1.0)]
    np.testing.assert_allclose(
        inside, [(fresh < one).mean() for one in (-1.0, 0.0, 1.0)], atol=SKEW_PROBABILITY
    )


@pytest.mark.parametrize("n", [2, 3, 40, 400, 5000])
@pytest.mark.parametrize("draw", ["standard_normal", "laplace"])
def test_symmetric_residuals_keep_symmetric_tails(n, draw):
    for seed in range(5):
        score = getattr(np.random.default_rng(seed), draw)(size=n)
        plain = learn_tails(score)
        assert learn_shape(plain, score) is plain


@pytest.mark.parametrize("n", [60, 500, 3000])
def test_skew_depends_neither_on_the_order_nor_on_copies(n):
    rng = np.random.default_rng(0)
    score, counts = skewed(n), rng.integers(1, 3, n)
    weight, copied = counts.astype(float), np.repeat(score, counts)
    weighted = learn_shape(learn_tails(score, weight), score, weight)
    for other in (copied, rng.permutation(copied)):
        found = learn_shape(learn_tails(other), other)
        assert found.offset.size == weighted.offset.size
        levels = [0.05, 0.25, 0.75, 0.95]
        np.testing.assert_allclose(
            around_zero(found).quantile(levels),
            around_zero(weighted).quantile(levels),
            rtol=TAIL_COPIES,
        )


def test_too_few_residuals_leave_the_tails_gaussian():
    for n in (0, 1):
        assert learn_tails(np.ones(n)) is GAUSSIAN


def test_many_residuals_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr("triegp.calibration.tails.CALIBRATION_ROWS", 500)
    score = np.sort(np.random.default_rng(0).standard_normal(5000))  # its beginning is not like it
    found = around_zero(learn_tails(score)).quantile([0.05, 0.95])[0]
    np.testing.assert_allclose(found, ndtri([0.05, 0.95]), atol=TAIL_OF_FEW)


def test_log_densities_are_those_of_the_mixture():
    score = np.array([0.0, -0.3, 1e-3, 4.0, -60.0])
    for tails in (GAUSSIAN, learn_tails(np.random.default_rng(0).standard_t(3, 400))):
        mixture = spread_out(tails, np.zeros(5), np.ones(5))
        np.testing.assert_allclose(log_densities(tails, score), mixture.log_prob(score), **VALUE)


def test_a_forest_gives_the_residuals_of_left_out_rows():
    rng = np.random.default_rng(0)
    X, count = rng.random((40, 2)), rng.integers(1, 4, 40)
    y = np.repeat(np.sin(5 * X[:, 0]), count) + 0.3 * rng.standard_normal(count.sum())
    options = {"n_trees": 4, "max_iter": 2, "calibrated": False, "random_state": 0}
    model = TrieGPRegressor(**options).fit(np.repeat(X, count, axis=0), y).forests_[0].model
    (residuals,) = residuals_of(model, leave_out(model), np.zeros(40, bool))
    dense = multiply(model.forest, np.eye(40))
    mean, var = oracle.leave_one_out(dense, model.rows.variance, model.rows.y)
    np.testing.assert_allclose(residuals.mean, mean, rtol=TAIL_OF_SOLVES, atol=TAIL_OF_SOLVES)
    np.testing.assert_allclose(residuals.var, var + model.rows.noise, rtol=TAIL_OF_SOLVES)
    np.testing.assert_array_equal(residuals.y, model.rows.y)
    np.testing.assert_array_equal(residuals.weight, model.rows.weight)
    assert not residuals.fresh.any()
