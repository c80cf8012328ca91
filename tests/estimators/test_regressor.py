"""The regressor against dense algebra, against itself by another way, and what it refuses."""

import _thread
import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

import oracle
from tolerances import VALUE
from triegp import BinaryTreeGPRegressor
from triegp.engines.blas import one_blas_thread
from triegp.estimators.callbacks import HAS_CALLBACKS
from triegp.mixture import members as ensemble_members
from triegp.mixture import optimise as training
from triegp.mixture import settings as presets
from triegp.mixture import train as ensemble_training
from triegp.models.jobs import Stopwatch

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 10, "noise": 0.05, "random_state": 0}
LOOSE = {"rtol": 1e-7, "atol": 1e-7}  # optimisers' steps on sums in another order
EXACT_QUANTILE = 1e-9


def make_data(n=40, seed=0, n_features=2):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, 20 + 5 * (np.sin(5 * X[:, 0]) + 0.2 * rng.standard_normal(n))


def new_rows(m=9, seed=1, n_features=2):
    return np.random.default_rng(seed).random((m, n_features))


# The dense route: members by their kernels, the mixture by hand.


def dense_kernel(member, a, b):
    order = member.order
    bits = [oracle.unpack_bits(member.encoder.encode(X), order.key_bits) for X in (a, b)]
    return oracle.kernel(*bits, order.weights[: order.n_levels] * order.scale)


def dense_members(model, X, y, new, known=0.0, target=0, column=0):
    """Mean and covariance of f at new rows under every member, and its noise; standardised."""
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    out = []
    for member in model.ensembles_[target if column == 0 else 0].members:
        noise = member.posteriors[column].new_noise
        mean, cov = oracle.posterior(
            dense_kernel(member, X, X),
            noise + known / unit**2,
            dense_kernel(member, X, new),
            dense_kernel(member, new, new),
            (y - shift) / unit,
        )
        out.append((mean, cov, noise))
    return out


def dense_loo(model, X, y):
    out = []
    for member in model.ensembles_[0].members:
        noise = member.posteriors[0].new_noise
        standard = (y - model.target_mean_) / model.target_scale_
        mean, var = oracle.leave_one_out(dense_kernel(member, X, X), noise, standard)
        out.append((mean, np.diag(var), noise))
    return out


def by_hand(model, members, latent=False, target=0, column=0):
    """Weights (K + 1,), means (K + 1, m) and covariances of the mixture in the units of y.

    The last one stands for strays, rows that are independent of all others.
    """
    mixed = model.ensembles_[target if column == 0 else 0].calibrations[column]
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    means = np.stack([mean for mean, _, _ in members])
    average = np.average(means, axis=0, weights=mixed.weight)
    means = average + mixed.shrink * (means - average)
    covs = np.stack(
        [cov + (0 if latent else noise) * np.eye(len(cov)) for _, cov, noise in members]
    )
    stray = 0.0 if latent else mixed.stray
    within = mixed.scale * np.average(covs, axis=0, weights=mixed.weight)
    far = np.diag(np.diag(within) + mixed.stray_var)
    return (
        np.append((1 - stray) * mixed.weight, stray),
        shift + unit * np.vstack([means, average]),
        unit**2 * np.concatenate([mixed.scale * covs, far[None]]),
    )


def total_moments(weight, means, covs):
    """A pair of rows has the members' covariance if neither strays."""
    mean = np.average(means, axis=0, weights=weight)
    apart = means - mean
    parts = [w * (c + np.outer(a, a)) for w, c, a in zip(weight, covs, apart, strict=True)]
    cov = sum(parts[:-1]) * (1 - weight[-1])
    np.fill_diagonal(cov, np.diag(sum(parts)))
    return mean, cov


@pytest.fixture(scope="module", params=["calibrated", "stacking", "softmax", "best"])
def fitted(request):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, mixture=request.param, temperature=1.0).fit(X, y)
    ensemble_ = model.ensembles_[0]
    if request.param == "calibrated":  # numbers that show
        calibration = replace(
            ensemble_.calibrations[0], shrink=0.6, scale=1.3, stray=0.15, stray_var=2.0
        )
        changed = replace(ensemble_, calibrations=(calibration,))
        model._stream = replace(model._stream, fitted=(changed,))
    return model, X, y


def test_there_is_something_to_mix(fitted):
    model, _, _ = fitted
    weight = model.ensembles_[0].calibrations[0].weight
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
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
    mean, cov = total_moments(*by_hand(model, members, latent))
    got_mean, got_cov = model.predict(new, return_cov=True, latent=latent)
    np.testing.assert_allclose(got_mean, mean, **VALUE)
    np.testing.assert_allclose(got_cov, cov, **VALUE)
    alone, std = model.predict(new, return_std=True, latent=latent)
    np.testing.assert_allclose(alone, mean, **VALUE)
    np.testing.assert_allclose(std, np.sqrt(np.diag(got_cov)), **VALUE)
    np.testing.assert_array_equal(model.predict(new, latent=latent), alone)


def test_latent_leaves_out_the_noise_alone(fitted):
    model, X, _ = fitted
    mixed = model.ensembles_[0].calibrations[0]
    noise = [member.posteriors[0].new_noise for member in model.ensembles_[0].members]
    unit = model.target_scale_[0] ** 2
    whole, function = (model.predict(X[:6], return_cov=True, latent=latent)[1] for latent in (0, 1))
    expected = (1 - mixed.stray) ** 2 * function
    var = np.diag(function) + unit * mixed.scale * (mixed.weight @ noise)
    members = model.predict_distribution(X[:6])
    strays = members.var[-1] if mixed.stray else 0.0
    np.fill_diagonal(expected, (1 - mixed.stray) * var + mixed.stray * strays)
    np.testing.assert_allclose(whole, expected, **VALUE)


def test_log_density_matches_the_mixture_by_hand(fitted):
    model, X, y = fitted
    new = new_rows()
    at = np.linspace(-10, 50, len(new))
    weight, means, covs = by_hand(model, dense_members(model, X, y, new))
    density = sum(
        w * norm.pdf(at, mean, np.sqrt(np.diag(cov)))
        for w, mean, cov in zip(weight, means, covs, strict=True)
    )
    np.testing.assert_allclose(np.exp(model.log_density(new, at)), density, rtol=1e-7, atol=1e-30)


@pytest.mark.parametrize("latent", [False, True])
def test_quantiles_invert_the_mixtures_own_distribution(fitted, latent):
    model, X, y = fitted
    new, levels = new_rows(4), (1e-4, 0.1, 0.5, 0.975)
    weight, means, covs = by_hand(model, dense_members(model, X, y, new), latent)
    got = model.predict_quantiles(new, levels, latent=latent)
    assert got.shape == (4, 4)
    for i in range(4):
        sd = np.sqrt(covs[:, i, i])
        for j, level in enumerate(levels):
            expected = brentq(
                lambda at, m=means[:, i], sd=sd, level=level: (
                    weight @ norm.cdf((at - m) / sd) - level
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
    weight, means, covs = by_hand(model, dense_members(model, X, y, new_rows()))
    mixture = model.predict_distribution(new_rows())
    n_parts = len(weight) if weight[-1] else len(weight) - 1  # strays only where there are any
    np.testing.assert_array_equal(mixture.weight, weight[:n_parts])
    np.testing.assert_allclose(mixture.mean, means[:n_parts], **VALUE)
    var = np.stack([np.diag(c) for c in covs])
    np.testing.assert_allclose(mixture.var, var[:n_parts], **VALUE)


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
    weight, means, covs = by_hand(model, dense_loo(model, X, y))
    mean, cov = total_moments(weight, means, covs)
    got_mean, got_std = model.loo_predict()
    np.testing.assert_allclose(got_mean, mean, **VALUE)
    np.testing.assert_allclose(got_std, np.sqrt(np.diag(cov)), **VALUE)
    density = [
        norm.pdf(y, m, np.sqrt(np.diag(c))) * w for w, m, c in zip(weight, means, covs, strict=True)
    ]
    np.testing.assert_allclose(model.loo_log_density(), np.log(np.sum(density, axis=0)), **VALUE)


def test_the_log_marginal_likelihood_is_dense_and_in_units_of_y(fitted):
    model, X, y = fitted
    model = BinaryTreeGPRegressor(**QUICK, mixture=model.mixture, temperature=1.0).fit(X, y)
    shift, unit = model.target_mean_[0], model.target_scale_[0]
    values = []
    for member in model.ensembles_[0].members:
        cov = dense_kernel(member, X, X) + member.posteriors[0].new_noise * np.eye(len(y))
        values.append(-oracle.nll(unit**2 * cov, y - shift))
    expected = model.ensembles_[0].calibrations[0].weight @ values
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-10)
    assert model.loo_score_ == pytest.approx(model.loo_log_density().mean(), rel=1e-12)


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

    def spy(posterior, codes, *, var):
        asked.append(var)
        return real(posterior, codes, var=var)

    monkeypatch.setattr(ensemble_members, "predict", spy)
    model.predict(X)
    assert asked
    assert not any(asked)
    model.predict(X, return_std=True)
    assert asked[-1]


# Units, seeds, threads.


@pytest.mark.parametrize(("a", "b"), [(8.0, 0.0), (-3.7, 1000.0), (1e-6, 0.0), (1e9, -5e9)])
@pytest.mark.parametrize("preset", ["default", "paper-bte"])
def test_everything_follows_the_units_of_y(a, b, preset):
    X, y = make_data()
    options = QUICK | {"noise": None, "preset": preset, "max_iter": 5}
    plain = BinaryTreeGPRegressor(**options).fit(X, y)
    other = BinaryTreeGPRegressor(**options).fit(X, a * y + b)
    new, at = new_rows(), np.linspace(10, 30, 9)
    size = {"rtol": 1e-6, "atol": 1e-6 * abs(a)}
    mean, cov = plain.predict(new, return_cov=True)
    got_mean, got_cov = other.predict(new, return_cov=True)
    np.testing.assert_allclose(got_mean, a * mean + b, **size)
    np.testing.assert_allclose(got_cov, a**2 * cov, rtol=1e-6, atol=1e-6 * a**2)
    np.testing.assert_allclose(
        other.log_density(new, a * at + b), plain.log_density(new, at) - np.log(abs(a)), **LOOSE
    )
    np.testing.assert_allclose(other.loo_predict()[1], abs(a) * plain.loo_predict()[1], **size)
    ends = a * plain.predict_interval(new) + b
    np.testing.assert_allclose(other.predict_interval(new), np.sort(ends, axis=1), **size)
    assert other.log_marginal_likelihood_ == pytest.approx(
        plain.log_marginal_likelihood_ - 40 * np.log(abs(a)), rel=1e-7
    )


@pytest.mark.parametrize("options", [{}, {"preset": "paper-bte", "n_candidates": 6}])
def test_the_result_does_not_depend_on_n_jobs(options):
    X, y = make_data(80)
    models = [
        BinaryTreeGPRegressor(**(QUICK | options), n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 2, None, -1, 3)
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(
            other.predict(new_rows(), return_std=True), models[0].predict(new_rows(), True)
        )
        assert other.log_marginal_likelihood_ == models[0].log_marginal_likelihood_


def test_training_takes_one_blas_thread_and_gives_the_others_back(monkeypatch):
    def n_threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    X, y = make_data()
    seen, real = [], training.measured_likelihood

    def spy(*args, **kwargs):
        seen.append(n_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "measured_likelihood", spy)
    with threadpool_limits(2, user_api="blas"):
        BinaryTreeGPRegressor(**QUICK).fit(X, y)
        after = n_threads()
        with one_blas_thread():
            with one_blas_thread():
                pass
            inside = n_threads()  # the first to leave does not take it from the others
        assert n_threads() == after
    assert after
    assert all(n == 2 for n in after)
    assert all(n == 1 for pools in [inside, *seen] for n in pools)
    assert seen


def test_a_seed_decides():
    X, y = make_data()

    def fit(state):
        return BinaryTreeGPRegressor(**(QUICK | {"random_state": state})).fit(X, y).predict(X)

    np.testing.assert_array_equal(fit(7), fit(7))
    np.testing.assert_array_equal(fit(7), fit(np.random.RandomState(7)))
    assert not np.array_equal(fit(7), fit(8))


def test_fitting_again_forgets_the_first_fit():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(*make_data(30, seed=4, n_features=3)).fit(X, y)
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )
    assert model.n_features_in_ == 2


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    before = model.predict(X, return_std=True)
    for bad in ((X[:, :1], y[:3]), (np.full_like(X, np.nan), y), (X, np.full(40, np.inf))):
        with pytest.raises(ValueError, match=r"rows|finite"):
            model.fit(*bad)
    with pytest.raises(ValueError, match="known_noise"):
        model.fit(X[:, :1], y, known_noise=-np.ones(40))
    with pytest.raises(ValueError, match="rows"):
        model.partial_fit(X, y[:3])
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


# More rows.


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_partial_fit_is_conditioning_on_all_rows(known, n_steps):
    X, y = make_data(60)
    noise = np.random.default_rng(5).exponential(size=60) if known else np.zeros(60)
    model = BinaryTreeGPRegressor(**QUICK)
    model.fit(X[:30], y[:30], known_noise=noise[:30] if known else None)
    box, unit = model.encoders_[0].low_.copy(), model.target_scale_.copy()
    mixed = model.ensembles_[0].calibrations
    for part in np.array_split(np.arange(30, 60), n_steps):
        model.partial_fit(X[part], y[part], known_noise=noise[part] if known else None)
    mean, cov = total_moments(*by_hand(model, dense_members(model, X, y, new_rows(), noise)))
    np.testing.assert_allclose(model.predict(new_rows()), mean, **VALUE)
    np.testing.assert_allclose(model.predict(new_rows(), return_cov=True)[1], cov, **VALUE)
    assert model.loo_predict()[0].shape == (60,)
    np.testing.assert_array_equal(model.encoders_[0].low_, box)
    np.testing.assert_array_equal(model.target_scale_, unit)
    assert model.ensembles_[0].calibrations is mixed


def test_partial_fit_with_weights_is_partial_fit_with_copies():
    X, y = make_data(60)
    weight = np.random.default_rng(2).integers(0, 4, 30)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:30], y[:30])
    copies = BinaryTreeGPRegressor(**QUICK).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:], sample_weight=weight)
    copies.partial_fit(np.repeat(X[30:], weight, axis=0), np.repeat(y[30:], weight))
    for a, b in zip(
        model.predict(new_rows(), return_cov=True),
        copies.predict(new_rows(), return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, **VALUE)
    assert model.log_marginal_likelihood_ == pytest.approx(
        copies.log_marginal_likelihood_, rel=1e-9
    )
    assert model.loo_score_ == pytest.approx(copies.loo_score_, rel=1e-9)


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_partial_fit_adds_rows_to_every_target(multi_target):
    X, y = make_data(60)
    Y = np.stack([y, 3 * X[:, 1] ** 2], axis=1)
    model = BinaryTreeGPRegressor(**QUICK, multi_target=multi_target).fit(X[:30], Y[:30])
    model.partial_fit(X[30:], Y[30:])
    got_mean, got_cov = model.predict(new_rows(), return_cov=True)
    for t in range(2):
        column = t if multi_target == "shared" else 0
        members = dense_members(model, X, Y[:, t], new_rows(), target=t, column=column)
        mean, cov = total_moments(*by_hand(model, members, target=t, column=column))
        np.testing.assert_allclose(got_mean[:, t], mean, **VALUE)
        np.testing.assert_allclose(got_cov[:, :, t], cov, **VALUE)
    for member in model.ensembles_[0].members:
        assert all(part.trie is member.posteriors[0].trie for part in member.posteriors)


def test_partial_fit_of_an_unfitted_model_fits():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).partial_fit(X, y)
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )
    with pytest.raises(ValueError, match="targets"):
        model.partial_fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_refresh_is_a_fit_on_all_rows(multi_target):
    X, y = make_data(60)
    Y = np.stack([y, 3 * X[:, 1] ** 2], axis=1)
    weight, known = np.full(60, 1.5), np.linspace(0, 1, 60)
    options = QUICK | {"multi_target": multi_target}
    model = BinaryTreeGPRegressor(**options).fit(X[:30], Y[:30], weight[:30], known[:30])
    model.partial_fit(3 * X[30:], Y[30:], weight[30:], known[30:])
    assert model.encoders_[0].high_.max() < 1.0
    model.refresh()
    assert model.encoders_[0].high_.max() > 2.0
    whole = np.concatenate([X[:30], 3 * X[30:]])
    fresh = BinaryTreeGPRegressor(**options).fit(whole, Y, weight, known)
    np.testing.assert_array_equal(
        model.predict(whole, return_std=True), fresh.predict(whole, return_std=True)
    )


def test_refresh_fills_in_weights_and_noise_that_were_not_given():
    X, y = make_data(60)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:], np.full(30, 2.0), np.full(30, 0.5)).refresh()
    fresh = BinaryTreeGPRegressor(**QUICK).fit(
        X, y, np.repeat([1.0, 2.0], 30), np.repeat([0.0, 0.5], 30)
    )
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


def test_refresh_without_rows_says_what_to_do():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, keep_rows=False).fit(X, y).partial_fit(X, y)
    assert model.rows_ is None
    with pytest.raises(ValueError, match="keep_rows=True"):
        model.refresh()


def test_the_model_does_not_look_at_its_training_arrays_again():
    X, y = make_data()
    mine, targets = X.copy(), y.copy()
    model = BinaryTreeGPRegressor(**QUICK).fit(mine, targets)
    before = model.predict(X), model.loo_log_density()
    mine[:], targets[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.predict(X), before[0])
    np.testing.assert_array_equal(model.loo_log_density(), before[1])
    np.testing.assert_array_equal(
        model.refresh().predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )


# Several targets, weights, known noise.


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_several_targets_have_a_last_axis(multi_target):
    X, y = make_data()
    Y = np.stack([y, 100 * X[:, 1]], axis=1)
    model = BinaryTreeGPRegressor(**QUICK, multi_target=multi_target).fit(X, Y)
    new = new_rows()
    mean, cov = model.predict(new, return_cov=True)
    assert (mean.shape, cov.shape) == ((9, 2), (9, 9, 2))
    assert model.predict(new, return_std=True)[1].shape == (9, 2)
    assert model.predict_quantiles(new, (0.1, 0.2, 0.3)).shape == (9, 3, 2)
    assert model.predict_interval(new).shape == (9, 2, 2)
    assert model.sample_y(new, 5).shape == (9, 2, 5)
    assert model.log_density(new, np.zeros((9, 2))).shape == (9, 2)
    assert [part.shape for part in model.loo_predict()] == [(40, 2), (40, 2)]
    assert model.log_marginal_likelihood_.shape == (2,)
    assert model.feature_importances_.shape == (2, 2)
    assert len(model.importances_) == len(model.predict_distribution(new)) == 2
    # Joint density of independent targets: the sum.
    assert model.loo_score_ == pytest.approx(model.loo_log_density().sum(axis=1).mean())
    assert model.score(X, Y) > 0.5


def test_own_targets_are_trained_as_if_alone():
    X, y = make_data()
    Y = np.stack([y, 100 * X[:, 1]], axis=1)
    both = BinaryTreeGPRegressor(**QUICK).fit(X, Y)
    alone = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    assert len(both.ensembles_) == 2
    np.testing.assert_array_equal(both.predict(X)[:, 0], alone.predict(X))
    np.testing.assert_array_equal(
        both.predict(X, return_cov=True)[1][..., 0], alone.predict(X, return_cov=True)[1]
    )
    assert both.log_marginal_likelihood_[0] == alone.log_marginal_likelihood_


def test_shared_targets_have_one_set_of_orders_and_tries():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, multi_target="shared").fit(X, np.stack([y, -y], axis=1))
    (both,) = model.ensembles_
    for member in both.members:
        first, second = member.posteriors
        assert first.order is second.order
        assert first.trie is second.trie
    # A mirrored target asks for the same orders and weights as the target alone.
    alone = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(model.predict(X)[:, 0], alone.predict(X), **LOOSE)
    mirrored = 2 * model.target_mean_[1] - model.predict(X)[:, 1] + 2 * model.target_mean_[0]
    np.testing.assert_allclose(mirrored, model.predict(X)[:, 0], **LOOSE)


def test_one_column_is_one_target_in_a_table():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y[:, None])
    assert model.predict(X).shape == (40, 1)
    np.testing.assert_array_equal(
        model.predict(X)[:, 0], BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )


WEIGHTED = {
    "default": {},
    "ecdf": {"scaling": "ecdf", "mixture": "stacking"},
    "paper-bte": {"preset": "paper-bte", "noise": None, "n_candidates": 6},
    "paper-bt": {"preset": "paper-bt", "noise": None, "n_candidates": 6},
    "no scale": {"learn_scale": False, "shift": False, "precision": 3},
}


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("known", [False, True])
def test_an_integer_weight_is_that_many_copies(kind, known):
    X, y = make_data()
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 4, 40)
    X[weight == 0] *= 5  # must not reach the box
    noise = rng.exponential(size=40) if known else None
    options = QUICK | {"max_iter": 4} | WEIGHTED[kind]
    model = BinaryTreeGPRegressor(**options).fit(X, y, weight, noise)
    copies = BinaryTreeGPRegressor(**options).fit(
        np.repeat(X, weight, axis=0),
        np.repeat(y, weight),
        known_noise=None if noise is None else np.repeat(noise, weight),
    )
    for a, b in zip(model.encoders_, copies.encoders_, strict=True):
        np.testing.assert_array_equal(a.low_, b.low_)
        np.testing.assert_array_equal(a.high_, b.high_)
        np.testing.assert_array_equal(a.precision_, b.precision_)
        if a.knots_ is not None:
            np.testing.assert_allclose(a.knots_, b.knots_, rtol=1e-12)
    np.testing.assert_allclose(model.target_mean_, copies.target_mean_, rtol=1e-13)
    np.testing.assert_allclose(model.target_scale_, copies.target_scale_, rtol=1e-13)
    first, second = (m.ensembles_[0].members[0].posteriors[0] for m in (model, copies))
    assert first.noise == second.noise
    np.testing.assert_allclose(first.order.theta, second.order.theta, **LOOSE)
    np.testing.assert_allclose(
        model.predict(new_rows(), return_std=True),
        copies.predict(new_rows(), return_std=True),
        **LOOSE,
    )
    np.testing.assert_allclose(
        np.repeat(model.loo_predict(), weight, axis=1), copies.loo_predict(), **LOOSE
    )
    assert model.log_marginal_likelihood_ == pytest.approx(
        copies.log_marginal_likelihood_, rel=1e-7
    )
    assert model.loo_score_ == pytest.approx(copies.loo_score_, rel=1e-7)
    np.testing.assert_allclose(model.feature_importances_, copies.feature_importances_, **LOOSE)


def test_known_noise_is_dense_and_in_units_of_y_squared():
    X, y = make_data()
    known = np.random.default_rng(1).exponential(size=40)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y, known_noise=known)
    mean, cov = total_moments(*by_hand(model, dense_members(model, X, y, new_rows(), known)))
    np.testing.assert_allclose(model.predict(new_rows()), mean, **VALUE)
    np.testing.assert_allclose(model.predict(new_rows(), return_cov=True)[1], cov, **VALUE)


# Importances and repr.


def test_importances_match_dense_algebra():
    X, y = make_data(n_features=3)
    options = QUICK | {"mixture": "softmax", "temperature": 1.0, "precision": [3, 2, 4]}
    model = BinaryTreeGPRegressor(**options).fit(X, y)
    (mixed,) = model.ensembles_[0].calibrations
    prior, explained = np.zeros((3, 5)), np.zeros((3, 5))
    for w, member in zip(mixed.weight, model.ensembles_[0].members, strict=True):
        order, precision = member.order, member.encoder.precision_
        assert precision.tolist() == [4, 3, 5]
        owner = [(j, depth) for j in range(3) for depth in range(precision[j])]
        bits = oracle.unpack_bits(member.encoder.encode(X), order.key_bits)
        level = order.weights[: order.n_levels] * order.scale
        parts = level[:, None, None] * oracle.level_matrices(bits)
        cov = parts.sum(axis=0) + member.posteriors[0].new_noise * np.eye(40)
        alpha = np.linalg.solve(cov, (y - model.target_mean_) / model.target_scale_)
        f = parts @ alpha  # (D, n)
        whole = f.sum(axis=0) - f.sum(axis=0).mean()
        shares = f @ whole / (whole @ whole)
        for bit, own, share in zip(order.key_bits, level / level.sum(), shares, strict=True):
            prior[owner[bit]] += w * own
            explained[owner[bit]] += w * share
    got = model.importances_
    np.testing.assert_allclose(got.prior_by_bit, prior, **VALUE)
    np.testing.assert_allclose(got.explained_by_bit, explained, **VALUE)
    np.testing.assert_allclose(got.prior, prior.sum(axis=1), **VALUE)
    np.testing.assert_allclose(got.explained, explained.sum(axis=1), **VALUE)
    np.testing.assert_array_equal(model.feature_importances_, got.explained)


def test_features_that_do_not_matter_have_no_importance():
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    y = np.sin(6 * X[:, 1])
    model = BinaryTreeGPRegressor(n_members=3, n_candidates=10, random_state=0).fit(X, y)
    for shares in (model.feature_importances_, model.importances_.prior):
        assert shares.sum() == pytest.approx(1.0, abs=1e-12)
        assert shares[1] > 0.9
    assert abs(model.feature_importances_[[0, 2]]).max() < 0.05


def test_a_fitted_repr_tells_the_story():
    X, y = make_data(1234)
    model = BinaryTreeGPRegressor(**(QUICK | {"noise": None, "mixture": "softmax"}))
    assert repr(model).startswith("BinaryTreeGPRegressor(max_iter=10, mixture='softmax', ")
    assert "rows" not in repr(model)
    model.fit(X, y)
    text = repr(model)
    noise = np.mean([m.posteriors[0].new_noise for m in model.ensembles_[0].members])
    assert "1,234 rows" in text
    assert f"{model.encoders_[0].n_bits_ + 2} bits" in text
    assert "3 members" in text
    assert f"noise {noise:.3g}" in text
    assert f"log density {model.loo_score_:.4f}" in text


# Training that is cut short, watched, or told to be the paper's.


def test_a_time_budget_gives_a_model_and_says_so():
    X, y = make_data(400)
    model = BinaryTreeGPRegressor(time_budget=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning, match="time_budget of 1e-06 s") as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    assert model.stopped_early_
    assert np.isfinite(model.predict(X, return_std=True)).all()
    Y = np.stack([y, y], axis=1)
    with pytest.warns(ConvergenceWarning, match="best found so far"):
        model.fit(X, Y)
    assert model.predict(X).shape == (400, 2)


def test_a_budget_that_is_not_used_changes_nothing():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, time_budget=1e6).fit(X, y)
    assert not model.stopped_early_
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )


class Presser(threading.Thread):
    """Presses Ctrl-C once training is under way: when so many likelihoods were evaluated."""

    def __init__(self, monkeypatch, after):
        super().__init__(daemon=True)
        self.begun = threading.Event()
        calls, real = [], training.measured_likelihood

        def counted(*args, **kwargs):
            calls.append(1)
            if len(calls) == after:
                self.begun.set()
            return real(*args, **kwargs)

        monkeypatch.setattr(training, "measured_likelihood", counted)

    def run(self):
        if self.begun.wait(60):
            _thread.interrupt_main()


LONG = {"n_members": 4, "n_candidates": 2, "max_iter": 100_000, "tolerance": 1e-12}


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_ctrl_c_can_keep_what_was_found(monkeypatch, multi_target):
    X, y = make_data(3000)
    Y = np.stack([y, X[:, 1]], axis=1)
    model = BinaryTreeGPRegressor(
        **LONG, on_interrupt="keep", multi_target=multi_target, random_state=0
    )
    presser = Presser(monkeypatch, after=20)
    presser.start()
    with pytest.warns(ConvergenceWarning, match="Ctrl-C"):
        model.fit(X, Y)
    presser.join()
    assert model.stopped_early_
    assert model.score(X, Y) > 0


def test_ctrl_c_ends_a_fit_and_leaves_the_old_one(monkeypatch):
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    before = model.predict(X)
    model.set_params(**LONG)
    presser = Presser(monkeypatch, after=20)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*make_data(3000, n_features=3))
    presser.join()
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_members_that_were_not_begun_are_missed(monkeypatch, multi_target):
    real = ensemble_training.fit_order

    def fit_one_and_stop(start, data, plan, engine, watch):
        fit = real(start, data, plan, engine, Stopwatch())
        watch.halt()
        return replace(fit, converged=True)

    monkeypatch.setattr(ensemble_training, "fit_order", fit_one_and_stop)
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, n_jobs=1, time_budget=1e6, multi_target=multi_target)
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model.fit(X, np.stack([y, -y], axis=1))
    assert model.stopped_early_
    assert {len(part.members) for part in model.ensembles_} == {1}


@pytest.mark.parametrize("on_interrupt", ["keep", "raise"])
def test_ctrl_c_after_the_last_fit_loses_nothing(monkeypatch, on_interrupt):
    heard, real = threading.Event(), ensemble_training._member

    class Noted(Stopwatch):
        def interrupt(self):
            super().interrupt()
            heard.set()

    def press(*args):
        if not heard.is_set():
            _thread.interrupt_main()
            assert heard.wait(60)
        return real(*args)

    monkeypatch.setattr(ensemble_training, "Stopwatch", Noted)
    monkeypatch.setattr(ensemble_training, "_member", press)
    X, y = make_data()
    options = QUICK | {"mixture": "softmax", "n_jobs": 1}
    model = BinaryTreeGPRegressor(**options, on_interrupt=on_interrupt)
    if on_interrupt == "raise":
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert not hasattr(model, "ensembles_")
        return
    model.fit(X, y)
    monkeypatch.undo()
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**options).fit(X, y).predict(X)
    )


def test_all_evaluations_are_counted(monkeypatch):
    X, y = make_data()
    n_calls, real = [0], training.measured_likelihood

    def counted(*args, **kwargs):
        n_calls[0] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "measured_likelihood", counted)
    model = BinaryTreeGPRegressor(**QUICK, mixture="best", n_jobs=1).fit(X, y)
    assert len(model.ensembles_[0].members) == 1
    assert model.n_evaluations_ == n_calls[0]
    assert 1 <= model.n_iter_ < model.n_evaluations_


def test_verbose_shows_progress_on_stderr(capsys):
    X, y = make_data()
    BinaryTreeGPRegressor(**QUICK, verbose=1).fit(X, y)
    shown = capsys.readouterr()
    assert shown.out == ""
    for stage in ("candidates", "fits", "posteriors"):
        assert stage in shown.err
    BinaryTreeGPRegressor(**QUICK).fit(X, y)
    assert capsys.readouterr().err == ""


class Recorder:
    """A scikit-learn callback that writes down what it hears, and may ask to stop."""

    def __init__(self, stop_after=None):
        self.heard, self.stop_after, self.fitted = [], stop_after, None

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.heard.append(f"end {context.task_name}")
        if context.task_name == "fit":
            self.fitted = fitted_estimator
        return self.heard.count("end member") == self.stop_after


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks (1.9 has)")
def test_scikit_learns_callbacks_hear_of_every_member():
    X, y = make_data()
    recorder = Recorder()
    model = BinaryTreeGPRegressor(**QUICK).set_callbacks(recorder).fit(X, y)
    members = ["begin member", "end member"] * 3
    assert recorder.heard == ["setup", "begin fit", *members, "end fit", "teardown"]
    np.testing.assert_array_equal(recorder.fitted.predict(X), model.predict(X))
    plain = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks (1.9 has)")
def test_a_callback_can_end_training():
    X, y = make_data(300)
    options = QUICK | {"n_members": 200, "max_iter": 200}
    model = BinaryTreeGPRegressor(**options, n_jobs=1).set_callbacks(Recorder(stop_after=1))
    with pytest.warns(ConvergenceWarning, match="a callback"):
        model.fit(X, y)
    assert model.stopped_early_
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("preset", ["paper-bt", "paper-bte"])
def test_the_papers_presets_do_as_the_paper_did(preset):
    X, y = make_data(50)
    settings = presets.settings_of(preset, {})
    assert (settings.n_candidates, settings.n_members, settings.optimizer) == (480, 20, "bfgs")
    model = BinaryTreeGPRegressor(preset=preset, n_candidates=48, max_iter=3, random_state=0)
    model.fit(X, y)
    (encoder,) = model.encoders_
    assert encoder.shift_ is None
    assert encoder.scaling == "minmax"
    assert encoder.margin == 1e-6
    assert encoder.precision_.tolist() == [8, 8]
    (trained,) = model.ensembles_
    assert all(member.encoder is encoder for member in trained.members)
    assert all(member.order.scale == 1.0 for member in trained.members)
    assert all(member.posteriors[0].noise == 1 / 50 for member in trained.members)
    (mixed,) = trained.calibrations
    assert (mixed.shrink, mixed.scale) == (1.0, 1.0)
    nll = np.array([member.fit.nll_per_row for member in trained.members])
    if preset == "paper-bt":
        assert mixed.weight.tolist() == [1.0]
    else:
        assert mixed.weight.size == 20
        np.testing.assert_allclose(
            mixed.weight, np.exp(-nll / 0.01) / np.exp(-nll / 0.01).sum(), rtol=1e-9
        )


def test_bt_is_the_best_member_of_bte():
    X, y = make_data(50)
    options = {"n_candidates": 24, "n_members": 5, "max_iter": 3, "random_state": 0}
    many = BinaryTreeGPRegressor(preset="paper-bte", **options).fit(X, y).ensembles_[0].members
    (best,) = BinaryTreeGPRegressor(preset="paper-bt", **options).fit(X, y).ensembles_[0].members
    assert best.order == min(many, key=lambda member: member.fit.nll_per_row).order


def test_parameters_come_before_presets():
    X, y = make_data()
    model = BinaryTreeGPRegressor(
        preset="paper-bte",
        n_members=2,
        n_candidates=3,
        noise=0.3,
        nugget="bit",
        precision=4,
        shift=True,
        scaling="ecdf",
        learn_scale=True,
        max_iter=3,
        mixture="stacking",
        optimizer="lbfgs",
        random_state=0,
    ).fit(X, y)
    members = model.ensembles_[0].members
    assert all(member.posteriors[0].new_noise == 0.3 for member in members)
    assert all(member.encoder.precision_.tolist() == [5, 5] for member in members)
    assert all(member.encoder.scaling == "ecdf" for member in members)
    assert any(member.order.scale != 1.0 for member in members)


# Rows of all kinds.


def test_rows_outside_the_box(recwarn):
    X, y = make_data()
    inside = X[:2]
    beyond = np.array([[-1.0, 0.5], [0.5, 7.0]])
    clip, unrelated, error = (
        BinaryTreeGPRegressor(**QUICK, outside=outside).fit(X, y)
        for outside in ("clip", "unrelated", "error")
    )
    border = np.clip(beyond, X.min(axis=0), X.max(axis=0))
    np.testing.assert_array_equal(clip.predict(beyond), clip.predict(border))
    np.testing.assert_array_equal(unrelated.predict(inside), clip.predict(inside))
    np.testing.assert_allclose(unrelated.predict(beyond), unrelated.target_mean_[0], rtol=1e-14)
    _, cov = unrelated.predict(np.concatenate([beyond, inside]), return_cov=True)
    (mixed,) = unrelated.ensembles_[0].calibrations
    prior = [
        m.order.prior_variance + m.posteriors[0].new_noise for m in unrelated.ensembles_[0].members
    ]
    unit = unrelated.target_scale_[0] ** 2
    var = mixed.scale * (mixed.weight @ prior) + mixed.stray * mixed.stray_var
    np.testing.assert_allclose(np.diag(cov)[:2], unit * var, **VALUE)
    assert np.isfinite(unrelated.sample_y(beyond, 3)).all()
    np.testing.assert_array_equal(error.predict(inside), clip.predict(inside))
    for call in (error.predict, error.sample_y, error.predict_interval):
        with pytest.raises(ValueError, match="training box"):
            call(beyond)
    for model in (unrelated, error):
        with pytest.raises(ValueError, match="box"):
            model.partial_fit(beyond, y[:2])
    clip.partial_fit(beyond, y[:2])
    assert "42 rows" in repr(clip)


def kinds_of_arrays(X, path):
    locked = X.copy()
    locked.flags.writeable = False
    mapped = np.memmap(path / "X.bin", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    return {
        "read-only": locked,
        "memory-mapped": np.memmap(path / "X.bin", dtype=X.dtype, mode="r", shape=X.shape),
        "Fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "list": X.tolist(),
        "object": X.astype(object),
        "big-endian": X.astype(X.dtype.newbyteorder(">")),
    }


def test_any_array_of_the_same_numbers_gives_the_same_model(tmp_path):
    X, y = make_data()
    X = X.astype(np.float32)  # the same numbers in float32 and in float64
    plain = BinaryTreeGPRegressor(**QUICK).fit(X.astype(float), y)
    expected = plain.predict(X.astype(float), return_std=True)
    kinds = kinds_of_arrays(X.astype(float), tmp_path) | {"float32": X}
    for name, rows in kinds.items():
        model = BinaryTreeGPRegressor(**QUICK).fit(rows, y)
        np.testing.assert_array_equal(model.predict(rows, return_std=True), expected, name)
        model.partial_fit(rows[:5], y[:5])
    locked = y.copy()
    locked.flags.writeable = False
    for target in (locked, y.tolist(), y.astype(object), np.repeat(y, 2)[::2]):
        model = BinaryTreeGPRegressor(**QUICK).fit(X, target)
        np.testing.assert_array_equal(model.predict(X, return_std=True), expected)


def test_sparse_rows_are_refused():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.fit(csr_array(X), y)
    model.fit(X, y)
    for call in (model.predict, model.sample_y):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            call(csr_array(X))


def test_nothing_is_predicted_before_a_fit():
    X, y = make_data()
    model = BinaryTreeGPRegressor()
    for call in (
        lambda: model.predict(X),
        lambda: model.predict_quantiles(X),
        lambda: model.log_density(X, y),
        lambda: model.sample_y(X),
        model.loo_predict,
        model.loo_log_density,
        model.refresh,
        lambda: model.importances_,
        lambda: model.save("nowhere"),
    ):
        with pytest.raises(NotFittedError, match="not fitted"):
            call()


BAD_PARAMETERS = [
    ("preset", "best"),
    ("n_members", 0),
    ("n_members", 2.5),
    ("n_members", True),
    ("n_candidates", -1),
    ("scaling", "log"),
    ("precision", 0),
    ("precision", "many"),
    ("precision", [3, 3, 3]),
    ("precision", 32),
    ("shift", "yes"),
    ("outside", "ignore"),
    ("nugget", "leaf"),
    ("noise", 0.0),
    ("noise", "little"),
    ("noise", np.nan),
    ("learn_scale", 1),
    ("optimizer", "adam"),
    ("max_iter", 0),
    ("tolerance", -1e-3),
    ("mixture", "mean"),
    ("temperature", 0.0),
    ("multi_target", "each"),
    ("time_budget", 0),
    ("time_budget", -1.0),
    ("on_interrupt", "ignore"),
    ("keep_rows", "yes"),
    ("engine", "gpu"),
    ("engine", None),
    ("n_jobs", 0),
    ("n_jobs", 1.5),
    ("verbose", -1),
    ("verbose", "loud"),
    ("random_state", "dice"),
    ("random_state", -1),
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
def test_a_bad_parameter_is_named(name, value):
    X, y = make_data()
    with pytest.raises(ValueError, match=name):
        BinaryTreeGPRegressor(**(QUICK | {name: value})).fit(X, y)


def test_all_parameters_are_checked():
    assert {name for name, _ in BAD_PARAMETERS} == set(BinaryTreeGPRegressor().get_params())


def test_bad_arguments_are_named():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    for name, call in (
        ("return_std and return_cov", lambda: model.predict(X, True, True)),
        ("levels", lambda: model.predict_quantiles(X, (0.0, 0.5))),
        ("levels", lambda: model.predict_quantiles(X, ())),
        ("levels", lambda: model.predict_quantiles(X, "all")),
        ("coverage", lambda: model.predict_interval(X, 1.0)),
        ("coverage", lambda: model.predict_interval(X, "most")),
        ("n_samples", lambda: model.sample_y(X, 0)),
        ("n_samples", lambda: model.sample_y(X, 1.5)),
        ("random_state", lambda: model.sample_y(X, 1, random_state="dice")),
        ("y must have 40 rows", lambda: model.log_density(X, y[:3])),
        ("y must have 40 rows and 1 targets", lambda: model.log_density(X, np.ones((40, 2)))),
        ("sample_weight", lambda: model.fit(X, y, np.ones(3))),
        ("sample_weight", lambda: model.fit(X, y, -np.ones(40))),
        ("sample_weight", lambda: model.fit(X, y, np.zeros(40))),
        ("sample_weight", lambda: model.partial_fit(X, y, np.ones(3))),
        ("known_noise", lambda: model.fit(X, y, known_noise=np.ones(3))),
        ("known_noise", lambda: model.partial_fit(X, y, known_noise=-np.ones(40))),
    ):
        with pytest.raises(ValueError, match=name):
            call()
