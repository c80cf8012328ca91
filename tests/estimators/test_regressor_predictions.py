"""The regressor's predictions against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import oracle
from regressor_problems import (
    QUICK,
    by_hand,
    dense_kernel,
    dense_loo,
    dense_members,
    make_data,
    new_rows,
)
from tolerances import DENSE, EXACT_QUANTILE, EXPONENTIATED, ROUNDING, VALUE
from triegp import BinaryTreeGPRegressor
from triegp.calibration.tails import GAUSSIAN, Tails
from triegp.calibration.trend import Trend
from triegp.mixture import members as ensemble_members


@pytest.fixture(scope="module", params=["calibrated", "tempered", "stacking", "softmax", "best"])
def fitted(request):
    X, y = make_data()
    mixture = {"tempered": "softmax"}.get(request.param, request.param)
    model = BinaryTreeGPRegressor(**QUICK, mixture=mixture, temperature=1.0).fit(X, y)
    (found,) = model._stream.fitted
    if request.param == "calibrated":  # numbers that show
        offset = np.array([0.3, -0.1, -1.0])
        tails = Tails(np.array([0.7, 0.1, 0.2]), np.array([0.6, 1.1, 2.5]), offset)
        found = replace(found, stages=(replace(found.stages[0], scale=1.3, tails=tails),))
    if request.param == "tempered":  # as files of format version 2 hold them
        calibration = replace(
            found.calibrations[0], shrink=0.6, scale=1.3, outlier=0.15, outlier_var=2.0
        )
        found = replace(found, calibrations=(calibration,))
    model._stream = replace(model._stream, fitted=(found,))
    return model, X, y


def test_there_is_something_to_mix(fitted):
    model, _, _ = fitted
    weight = model.ensembles_[0].calibrations[0].weight
    assert weight.sum() == pytest.approx(1.0, abs=ROUNDING)
    assert (weight > 0).all()
    if model.mixture == "best":
        assert weight.size == 1
    if model.mixture in ("calibrated", "softmax"):
        assert weight.size > 1


@pytest.mark.parametrize("latent", [False, True])
def test_mean_deviation_and_covariance_match_dense_algebra(fitted, latent):
    model, X, y = fitted
    new = np.concatenate([new_rows(), X[:3]])
    members = dense_members(model, X, y, new)
    *_, mean, cov = by_hand(model, members, new, latent)
    got_mean, got_cov = model.predict(new, return_cov=True, latent=latent)
    np.testing.assert_allclose(got_mean, mean, **VALUE)
    np.testing.assert_allclose(got_cov, cov, **VALUE)
    alone, std = model.predict(new, return_std=True, latent=latent)
    np.testing.assert_allclose(alone, mean, **VALUE)
    np.testing.assert_allclose(std, np.sqrt(np.diag(got_cov)), **VALUE)
    np.testing.assert_allclose(model.predict(new, latent=latent), alone, rtol=ROUNDING)


def test_latent_leaves_out_the_noise_alone(fitted):
    model, X, _ = fitted
    if model.ensembles_[0].apart:  # then it leaves out runs, too: see the dense route above
        return
    mixed = model.ensembles_[0].calibrations[0]
    noise = [member.posteriors[0].new_noise for member in model.ensembles_[0].members]
    unit = model.target_scale_[0] ** 2
    whole, function = (model.predict(X[:6], return_cov=True, latent=latent)[1] for latent in (0, 1))
    expected = (1 - mixed.outlier) ** 2 * function
    var = np.diag(function) + unit * mixed.scale * (mixed.weight @ noise)
    members = model.predict_distribution(X[:6])
    outliers = members.variances[-1] if mixed.outlier else 0.0
    np.fill_diagonal(expected, (1 - mixed.outlier) * var + mixed.outlier * outliers)
    np.testing.assert_allclose(whole, expected, **VALUE)


def test_log_density_matches_the_mixture_by_hand(fitted):
    model, X, y = fitted
    new = new_rows()
    at = np.linspace(-10, 50, len(new))
    hand = by_hand(model, dense_members(model, X, y, new), new)
    density = hand.weight @ norm.pdf(at, hand.means, np.sqrt(hand.variances))
    np.testing.assert_allclose(
        np.exp(model.log_density(new, at)), density, rtol=EXPONENTIATED, atol=1e-30
    )


@pytest.mark.parametrize("latent", [False, True])
def test_quantiles_invert_the_mixtures_own_distribution(fitted, latent):
    model, X, y = fitted
    new, levels = new_rows(4), (1e-4, 0.1, 0.5, 0.975)
    hand = by_hand(model, dense_members(model, X, y, new), new, latent)
    got = model.predict_quantiles(new, levels, latent=latent)
    assert got.shape == (4, 4)
    for i in range(4):
        sd = np.sqrt(hand.variances[:, i])
        for j, level in enumerate(levels):
            expected = brentq(
                lambda at, m=hand.means[:, i], sd=sd, level=level: (
                    hand.weight @ norm.cdf((at - m) / sd) - level
                ),
                -500,
                500,
                xtol=1e-13,
            )
            assert got[i, j] == pytest.approx(expected, rel=EXACT_QUANTILE)


def test_an_interval_is_two_quantiles(fitted):
    model, _, _ = fitted
    got = model.predict_interval(new_rows(), 0.5)
    np.testing.assert_array_equal(got, model.predict_quantiles(new_rows(), (0.25, 0.75)))
    wide = model.predict_interval(new_rows())
    assert (wide[:, 0] < got[:, 0]).all()
    assert (got[:, 1] < wide[:, 1]).all()


def test_the_distribution_itself_has_the_predicted_moments(fitted):
    model, X, y = fitted
    hand = by_hand(model, dense_members(model, X, y, new_rows()), new_rows())
    mixture = model.predict_distribution(new_rows())
    np.testing.assert_array_equal(mixture.weights, hand.weight)
    np.testing.assert_allclose(mixture.means, hand.means, **VALUE)
    np.testing.assert_allclose(mixture.variances, hand.variances, **VALUE)


@pytest.mark.parametrize("latent", [False, True])
def test_samples_have_the_mixtures_mean_and_covariance(fitted, latent):
    model, X, _ = fitted
    new, n_samples = np.concatenate([new_rows(3), X[:2]]), 40_000
    mean, cov = model.predict(new, return_cov=True, latent=latent)
    draws = model.sample_y(new, n_samples, random_state=3, latent=latent)
    assert draws.shape == (5, n_samples)
    var = np.diag(cov)
    np.testing.assert_array_less(np.abs(draws.mean(axis=1) - mean), 5 * np.sqrt(var / n_samples))
    # A product of two has a variance of at most about 3 var var for these mixtures.
    error = np.sqrt(4 * np.outer(var, var) / n_samples)
    np.testing.assert_array_less(np.abs(np.cov(draws) - cov), 5 * error)


def test_samples_depend_on_their_random_state_only(fitted):
    model, _, _ = fitted
    a, b, c = (model.sample_y(new_rows(), 2, random_state=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    d = model.sample_y(new_rows(), 2, random_state=np.random.RandomState(5))
    np.testing.assert_array_equal(a, d)


def test_leave_one_out_is_n_dense_refits(fitted):
    model, X, y = fitted
    hand = by_hand(model, dense_loo(model, X, y))
    got_mean, got_std = model.loo_predict()
    np.testing.assert_allclose(got_mean, hand.mean, **VALUE)
    np.testing.assert_allclose(got_std, np.sqrt(np.diag(hand.cov)), **VALUE)
    density = hand.weight @ norm.pdf(y, hand.means, np.sqrt(hand.variances))
    np.testing.assert_allclose(model.loo_log_density(), np.log(density), **VALUE)


def test_the_log_marginal_likelihood_is_dense_and_in_units_of_y(fitted):
    model, X, y = fitted
    model = BinaryTreeGPRegressor(**QUICK, mixture=model.mixture, temperature=1.0).fit(X, y)
    shift, unit = model.target_mean_[0], model.target_scale_[0]
    values = []
    for member in model.ensembles_[0].members:
        cov = dense_kernel(member, X, X) + member.posteriors[0].new_noise * np.eye(len(y))
        values.append(-oracle.nll(unit**2 * cov, y - shift))
    expected = model.ensembles_[0].calibrations[0].weight @ values
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=DENSE)
    assert model.loo_score_ == pytest.approx(
        (model.loo_log_density() - model.loo_optimism_).mean(), rel=ROUNDING
    )


def test_score_is_r_squared():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    residual = y - model.predict(X)
    assert model.score(X, y) == pytest.approx(1 - residual @ residual / np.sum((y - y.mean()) ** 2))
    assert model.score(X, y) > 0.5


def test_mean_only_prediction_does_no_work_for_variances(monkeypatch):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    asked, real = [], ensemble_members.predict

    def spy(posterior, codes, *, var, apart, run):
        asked.append(var)
        return real(posterior, codes, var=var, apart=apart, run=run)

    monkeypatch.setattr(ensemble_members, "predict", spy)
    model.predict(X)
    assert asked
    assert not any(asked)
    model.predict(X, return_std=True)
    assert asked[-1]


def test_samples_read_the_local_noise_at_the_mean_with_its_trend():
    rng = np.random.default_rng(0)
    X = rng.random((500, 1))
    y = 4 * X[:, 0] + np.exp(4 * X[:, 0] - 4) * rng.standard_normal(500)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    (found,) = model._stream.fitted
    assert found.stages[0].local is not None  # it depends on the mean
    trend = Trend(0.5, X.min(axis=0), X.max(axis=0), np.zeros(1), 4.0, np.zeros(500))
    found = replace(found, stages=(replace(found.stages[0], trend=trend, tails=GAUSSIAN),))
    points, n_samples = found.read(new_rows(6, n_features=1), var=True), 4000
    told = found.predict(points, 0, var=True, latent=False)
    draws = found.sample(points, 0, n_samples, np.random.default_rng(0), latent=False)
    error = draws.var(axis=1) / told.var() - 1
    np.testing.assert_array_less(np.abs(error), 5 * np.sqrt(2 / n_samples))
