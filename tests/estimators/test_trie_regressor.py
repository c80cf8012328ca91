"""The forest among scikit-learn's tools, its files, streams, weights and bad input."""

import pickle
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import triegp
from tolerances import USUAL_ALPHA, USUAL_SOLVE
from triegp import TrieGPRegressor
from triegp.additive import conditioning
from triegp.additive import variance as spread
from triegp.additive import walk as training
from triegp.additive.fitted import FittedForest
from triegp.calibration.model import CalibratedModel
from triegp.calibration.stage import Stage
from triegp.calibration.tails import Tails

QUICK = {"n_trees": 6, "max_iter": 4, "random_state": 0}


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@parametrize_with_checks([TrieGPRegressor(n_trees=16, max_iter=8)])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def problem(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, 3.0 + 2.0 * np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def box_first(n):
    """Rows of which the first ones span the box of all."""
    X, y = problem(n)
    border = np.unique(np.r_[X.argmin(axis=0), X.argmax(axis=0)])
    order = np.r_[border, np.setdiff1d(np.arange(n), border)]
    return X[order], y[order]


@pytest.fixture(scope="module")
def fitted():
    X, y = problem()
    return TrieGPRegressor(n_trees=12, max_iter=10, random_state=0).fit(X, y)


def test_it_learns_a_function(fitted):
    X, y = problem(400, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    assert np.mean((mean - y) ** 2) < 0.1 * y.var()
    inside = np.abs(mean - y) < 2 * std
    assert 0.85 < inside.mean() <= 1.0
    low, high = fitted.predict_interval(X, 0.9).T
    assert 0.8 < ((low < y) & (y < high)).mean() < 0.99


def test_its_answers_fit_together(fitted):
    X, y = problem(30, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    mixture = fitted.predict_distribution(X)
    np.testing.assert_allclose(mixture.mean(), mean)
    np.testing.assert_allclose(np.sqrt(mixture.var()), std)
    cov = fitted.predict(X, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=USUAL_SOLVE)
    assert np.linalg.eigvalsh(cov).min() > 0
    np.testing.assert_allclose(fitted.predict_quantiles(X, [0.5])[:, 0], mean)
    latent = fitted.predict(X, return_std=True, latent=True)
    np.testing.assert_allclose(latent[0], mean)
    part = fitted.forests_[0]
    points = part.read(X, var=True)
    own, whole = (
        part.predict(points, 0, var=True, latent=latent).var() for latent in (True, False)
    )
    np.testing.assert_allclose(latent[1], np.minimum(fitted.target_scale_[0] * np.sqrt(own), std))
    np.testing.assert_allclose(whole - own, part.noise(0))
    density = np.log(mixture.weights) - 0.5 * np.log(2 * np.pi * mixture.variances.T)
    density -= 0.5 * (y[:, None] - mixture.means.T) ** 2 / mixture.variances.T
    np.testing.assert_allclose(fitted.log_density(X, y), np.log(np.exp(density).sum(axis=1)))


def test_samples_have_the_predicted_moments(fitted):
    X, _ = problem(5, seed=1)
    mean, cov = fitted.predict(X, return_cov=True, latent=True)
    draws = fitted.sample_y(X, 4000, random_state=1, latent=True)
    sd = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * sd.max() / np.sqrt(4000))
    error = np.abs(np.cov(draws) - cov) / np.outer(sd, sd)
    assert error.max() < 5 * np.sqrt(2 / 4000)
    one, again, other = (fitted.sample_y(X, 40, random_state=k, latent=True) for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_variances_from_nearby_rows_follow_the_exact_ones():
    X, y = problem(600)
    model = TrieGPRegressor(**QUICK).fit(X, y)
    new, _ = problem(200, seed=1)
    near, exact = (
        model.set_params(variance=kind).predict(new, return_std=True, latent=True)[1]
        for kind in ("nearby", "exact")
    )
    assert np.abs(np.log(near / exact)).mean() < 0.1
    assert spearmanr(near, exact).statistic > 0.9


def test_samples_of_observations_have_the_covariance_that_is_said(fitted, monkeypatch):
    monkeypatch.setattr(spread, "COLUMNS", 1000)  # draws at a time
    X, _ = problem(3, seed=1)
    tails = Tails(np.array([0.8, 0.2]), np.array([0.5, 2.5]), np.array([-0.2, 0.8]))
    stage = Stage(1.7, tails, None, 0.0, np.zeros(120))
    heavy = CalibratedModel(fitted.forests_[0], (stage,))
    points = heavy.read(X, var=True)
    # Variances of `predict` may be others than those of the joint distribution, as from 2,000 rows.
    real = FittedForest.predict

    def other(self, points, column, *, var, latent):
        found = real(self, points, column, var=var, latent=latent)
        return replace(found, variances=1.5 * found.variances)

    monkeypatch.setattr(FittedForest, "predict", other)
    _, cov = heavy.predict_covariance(points, 0, latent=False)
    draws = heavy.sample(points, 0, 16_000, np.random.default_rng(0), latent=False)
    sd = np.sqrt(np.diag(cov))
    assert (np.abs(np.cov(draws) - cov) / np.outer(sd, sd)).max() < 0.08


def test_leaving_one_out_is_a_fit_without_the_row(fitted):
    _, y = problem()
    mean, _ = fitted.loo_predict()
    model = fitted.forests_[0].model
    dense = spread.forest_product(model.forest, np.eye(len(y)))
    scale, centre = fitted.target_scale_[0], fitted.target_mean_[0]
    trend = fitted._stream.fitted[0].stages[0].trend
    mean = mean[np.argsort(fitted._stream.observations.index)]  # in the order of the model
    for i in (0, 17, 60):
        rest = np.setdiff1d(np.arange(len(y)), i)
        A = dense[np.ix_(rest, rest)] + np.diag(model.variance[rest])
        weights = np.linalg.solve(A, dense[rest, i])
        left = weights @ model.rows.y[rest]
        if trend is not None:
            left = (1 - trend.share) * left + trend.share * trend.left[i]
        assert mean[i] == pytest.approx(centre + scale * left, rel=USUAL_SOLVE)
    density = fitted.loo_log_density()
    assert fitted.loo_score_ == pytest.approx(density.mean() - fitted.loo_optimism_)


def test_a_file_gives_the_same_bits(fitted, tmp_path):
    X, y = problem(20, seed=1)
    fitted.save(tmp_path / "model")
    loaded = triegp.load(tmp_path / "model")
    assert isinstance(loaded, TrieGPRegressor)
    for ask in (
        lambda m: m.predict(X, return_std=True),
        lambda m: m.predict_quantiles(X),
        lambda m: m.log_density(X, y),
        lambda m: m.loo_predict(),
        lambda m: m.sample_y(X, 2),
        lambda m: m.feature_importances_,
        lambda m: m.log_marginal_likelihood_,
    ):
        np.testing.assert_array_equal(ask(fitted), ask(loaded))
    grown = [m.partial_fit(X, y).predict(X) for m in (pickle.loads(pickle.dumps(fitted)), loaded)]
    np.testing.assert_allclose(*grown, rtol=USUAL_SOLVE)


def test_rows_that_could_not_be_added_are_refused_at_once():
    X, y = problem(60)
    model = TrieGPRegressor(**QUICK).fit(X, y)
    for name, bad in (("sample_weight", 1e-200), ("sample_weight", 1e300), ("known_noise", 1e300)):
        with pytest.raises(ValueError, match=name):
            model.partial_fit(X[:1], y[:1], **{name: [bad]})
        with pytest.raises(ValueError, match=name):
            TrieGPRegressor(**QUICK).fit(X, y, **{name: np.r_[bad, np.ones(59)]})
    assert np.isfinite(model.predict(X)).all()


def test_training_that_fails_says_so(monkeypatch):
    X, y = problem()

    def fail(walk, share):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(training.Walk, "step", fail)
    with pytest.warns(ConvergenceWarning, match="training stopped after"):
        model = TrieGPRegressor(calibrated=False, **QUICK).fit(X, y)
    assert model.diverged_
    assert np.isfinite(model.predict(X)).all()


def test_a_budget_that_was_met_is_not_reported(monkeypatch):
    """The solve on all rows comes after training, and is not counted."""
    X, y = problem()
    monkeypatch.setattr(
        "triegp.calibration.train.FEW_ROWS", 0
    )  # no cross-fitting, which is training
    now, real = [0.0], conditioning.residuals_of

    def slower(*given):
        now[0] += 1e6
        return real(*given)

    monkeypatch.setattr("triegp.models.jobs.time.monotonic", lambda: now[0])
    monkeypatch.setattr("triegp.additive.train.residuals_of", slower)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = TrieGPRegressor(**QUICK, time_budget=1.0, local_noise=False).fit(X, y)
    assert now[0] == 1e6
    assert not model.stopped_early_


def test_rows_can_be_added():
    X, y = box_first(200)
    model = TrieGPRegressor(**QUICK).fit(X[:150], y[:150])
    before = model.predict(X[150:])
    model.partial_fit(X[150:170], y[150:170]).partial_fit(X[170:], y[170:])
    after = model.predict(X[150:])
    assert np.mean((after - y[150:]) ** 2) < np.mean((before - y[150:]) ** 2)
    assert model.forests_[0].n_rows == 200
    mean, _ = model.loo_predict()
    assert mean.shape == (200,)
    refreshed = model.refresh()
    assert refreshed.forests_[0].n_rows == 200


def test_a_weight_of_two_is_two_rows_given_the_parameters():
    X, y = problem(60)
    weight = np.r_[np.full(10, 2.0), np.ones(60)]
    # Repeats that differ make all repeats and weights observations.
    X, y = np.vstack([X, X[50:]]), np.append(y, y[50:] + 0.1)
    model = TrieGPRegressor(**QUICK).fit(X, y, sample_weight=weight)
    one = model.forests_[0].model
    copies = np.repeat(np.arange(60), one.rows.weight.astype(int))
    assert copies.size == 80
    dense = spread.forest_product(one.forest, np.eye(60))
    A = dense[np.ix_(copies, copies)] + np.diag(np.broadcast_to(one.rows.noise, 60)[copies])
    alpha = np.linalg.solve(A, one.rows.y[copies])
    mean = dense[:, copies] @ alpha
    np.testing.assert_allclose(one.rows.y - one.variance * one.alpha, mean, atol=USUAL_ALPHA)


def test_rows_of_weight_zero_are_left_out():
    X, y = problem(80)
    weight = np.r_[np.ones(60), np.zeros(20)]
    model = TrieGPRegressor(**QUICK).fit(X, y, sample_weight=weight)
    mean, _ = model.loo_predict()
    assert np.isfinite(mean[:60]).all()
    assert np.isnan(mean[60:]).all()
    assert np.isfinite(model.loo_score_)
    assert model.forests_[0].model.forest.n_rows == 60


def test_known_noise_is_believed():
    X, y = problem(150)
    wild = np.zeros(150)
    wild[::3] = 25.0
    rng = np.random.default_rng(3)
    noisy = y + np.sqrt(wild) * rng.standard_normal(150)
    new, y_new = problem(300, seed=1)
    told = TrieGPRegressor(**QUICK).fit(X, noisy, known_noise=wild).predict(new)
    untold = TrieGPRegressor(**QUICK).fit(X, noisy).predict(new)
    assert np.mean((told - y_new) ** 2) < 0.5 * np.mean((untold - y_new) ** 2)


def test_every_target_has_a_forest_of_its_own():
    X, y = problem(100)
    both = TrieGPRegressor(**QUICK).fit(X, np.stack([y, X[:, 2] ** 2], axis=1))
    assert len(both.forests_) == 2
    assert both.predict(X, return_std=True)[1].shape == (100, 2)
    assert both.sample_y(X[:4], 3).shape == (4, 2, 3)
    assert both.feature_importances_.shape == (3, 2)
    assert both.feature_importances_[0, 0] > 0.5
    assert both.feature_importances_[2, 1] > 0.5


@pytest.mark.parametrize("start", ["even", "random", "trained"])
def test_every_start_learns(start):
    X, y = problem(200)
    model = TrieGPRegressor(n_trees=8, max_iter=5, init=start, random_state=0).fit(X, y)
    new, y_new = problem(200, seed=1)
    assert np.mean((model.predict(new) - y_new) ** 2) < 0.2 * y_new.var()


def test_the_threads_change_nothing():
    X, y = problem()
    one, two = (TrieGPRegressor(**QUICK, n_jobs=k).fit(X, y) for k in (1, 2))
    for a, b in zip(one.predict(X, return_std=True), two.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_time_budget_ends_training():
    X, y = problem(200)
    model = TrieGPRegressor(n_trees=8, max_iter=10_000, time_budget=0.5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model.fit(X, y)
    assert model.stopped_early_
    assert model.n_iter_ < 10_000
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("manner", ["raise", "keep"])
def test_ctrl_c_ends_training(manner, monkeypatch):
    X, y = problem()
    steps = training.Walk.step

    def interrupted(walk, share):
        if walk.n_steps == 2:
            raise KeyboardInterrupt
        return steps(walk, share)

    monkeypatch.setattr(training.Walk, "step", interrupted)
    model = TrieGPRegressor(n_trees=4, max_iter=50, on_interrupt=manner, random_state=0)
    if manner == "raise":
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert not hasattr(model, "_stream")
        return
    with pytest.warns(ConvergenceWarning, match="Ctrl-C"):
        model.fit(X, y)
    assert model.stopped_early_
    assert np.isfinite(model.predict(X)).all()


def test_progress_is_shown(capsys):
    X, y = problem()
    TrieGPRegressor(**QUICK, verbose=1).fit(X, y)
    assert "steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0),
        ("n_trees", 2.5),
        ("init", "best"),
        ("slope", -1.0),
        ("scaling", "log"),
        ("max_iter", -1),
        ("smooth", "maybe"),
        ("kernel", "cosine"),
        ("variance", "guess"),
        ("local_noise", "yes"),
        ("calibrated", "yes"),
        ("outside", "wrap"),
        ("weights", "many"),
        ("time_budget", -1),
        ("on_interrupt", "ignore"),
        ("engine", "gpu"),
        ("n_jobs", 0),
    ],
)
def test_bad_parameters_are_named(name, value):
    X, y = problem(20)
    with pytest.raises(ValueError, match=name):
        TrieGPRegressor(**{**QUICK, name: value}).fit(X, y)


@pytest.mark.parametrize("case", ["constant y", "one row", "two equal rows", "equal columns"])
def test_degenerate_rows_are_fitted(case):
    X, y = problem(20)
    if case == "constant y":
        y = np.full(20, 7.0)
    elif case == "one row":
        X, y = X[:1], y[:1]
    elif case == "two equal rows":
        X, y = X[[0, 0]], y[[0, 1]]
    else:
        X = np.zeros_like(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = TrieGPRegressor(**QUICK).fit(X, y)
        mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_rows_outside_the_box_are_unrelated():
    X, y = problem()
    model = TrieGPRegressor(**QUICK, outside="unrelated").fit(X, y)
    mean, std = model.predict([[9.0, 9.0, 9.0]], return_std=True, latent=True)
    assert mean[0] == pytest.approx(y.mean())
    noise = model.forests_[0].model.new_noise
    assert std[0] == pytest.approx(y.std(ddof=1) * np.sqrt(1 - noise))
    mean, std = model.predict([[9.0, 9.0, 9.0]], return_std=True)
    assert mean[0] == pytest.approx(y.mean())
    assert std[0] == pytest.approx(y.std(ddof=1))


def test_questions_from_many_threads_agree():
    X, y = box_first(120)
    model = TrieGPRegressor(**QUICK).fit(X[:100], y[:100])
    model.partial_fit(X[100:], y[100:])
    found = [None] * 4

    def ask(k):
        found[k] = model.predict(X)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    assert model.forests_[0].n_rows == 120
