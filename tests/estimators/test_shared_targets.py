"""`TrieGPRegressor(multi_target="shared")`: one model for all targets."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import oracle
import triegp
from forest_problems import own_kernel, solve_tightly
from tolerances import FITS, HANDFUL, ROUNDING, SOLVED
from triegp import TrieGPRegressor
from triegp.additive import fitted, walk
from triegp.calibration.model import base_of

QUICK = {"n_trees": 6, "max_iter": 4, "random_state": 0}
UNITS = np.array([1.0, 50.0, 1e-3])

pytestmark = pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning")


def shared(**options):
    return TrieGPRegressor(**(QUICK | {"multi_target": "shared"} | options))


def problem(n=120, seed=0):
    """Three related targets in units of their own."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    f = np.sin(5 * X[:, 0]) + X[:, 1]
    Y = np.stack([f, f**2, f + 2 * X[:, 2]], axis=1) + 0.1 * rng.standard_normal((n, 3))
    return X, UNITS * Y


def new_rows(X):
    """Some outside the box, and some training rows."""
    rng = np.random.default_rng(9)
    return np.vstack([1.2 * rng.random((40, X.shape[1])) - 0.1, X[:5]])


def answers(model, new):
    """All that a model says, as arrays with the targets on the second axis."""
    mean, std = model.predict(new, return_std=True)
    latent = model.predict(new, return_std=True, latent=True)
    _, cov = model.predict(new[:12], return_cov=True)
    left = model.loo_predict()
    told = model.predict_distribution(new)
    told = [told] if model.one_dimensional_ else told
    groups = model.predict_groups(new[5:11], np.arange(6).reshape(3, 2))
    return [
        mean,
        std,
        *latent,
        *left,
        model.loo_log_density(),
        model.loo_targets(),
        np.swapaxes(model.predict_quantiles(new, (0.05, 0.5, 0.9)), 1, -1),
        np.swapaxes(cov, 1, -1),
        np.swapaxes(groups[1], 1, -1),
        np.stack([part.std() for part in told], axis=1),
        np.atleast_2d(model.log_marginal_likelihood_),
        np.atleast_2d(model.feature_importances_),
    ]


@pytest.fixture(scope="module", params=[120, 1_100])
def data(request):
    """With fewer than 1,000 rows, smaller models are cross-fitted."""
    return problem(request.param)


# Two routes


@pytest.mark.parametrize("n", [120, 1_100, 2_100])
def test_one_target_is_that_of_its_own_to_the_last_bit(n, tmp_path):
    X, Y = problem(n)
    new = new_rows(X)
    for y in (Y[:, 0], Y[:, :1]):
        one, two = shared().fit(X, y), shared(multi_target="own").fit(X, y)
        for a, b in zip(answers(one, new), answers(two, new), strict=True):
            np.testing.assert_array_equal(a, b)
        one.set_params(multi_target="own").save(tmp_path / "one")
        two.fit_seconds_ = one.fit_seconds_
        two.save(tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("n", [120, 1_100, 2_100])
def test_equal_targets_are_predicted_as_one(n):
    X, Y = problem(n)
    y, new = Y[:, 0], new_rows(X)
    alone = shared().fit(X, y)
    both = shared().fit(X, np.stack([y, y], axis=1))
    # Solves for folds of many rows end at a tenth of the residuals: measured 0.6 % of deviations.
    close = FITS if n <= 2_000 else {"rtol": 0.02, "atol": 0.02}
    for column in range(2):
        for a, b in zip(
            alone.predict(new, return_std=True), both.predict(new, return_std=True), strict=True
        ):
            np.testing.assert_allclose(b[:, column], a, **close)
        np.testing.assert_allclose(
            both.loo_log_density()[:, column], alone.loo_log_density(), **close
        )
        assert both.log_marginal_likelihood_[column] == pytest.approx(
            alone.log_marginal_likelihood_, rel=FITS["rtol"]
        )
    np.testing.assert_allclose(both.feature_importances_[:, 1], alone.feature_importances_, **FITS)


@pytest.mark.parametrize("smooth", [True, False])
def test_predictions_are_the_dense_ones_at_the_learned_parameters(smooth, monkeypatch):
    solve_tightly(monkeypatch)
    X, Y = problem()
    model = shared(calibrated=False, smooth=smooth, outside="clip").fit(X, Y)
    (forest,) = model.forests_
    found = forest.model
    new = 0.05 + 0.9 * np.random.default_rng(1).random((20, 3))
    new = np.clip(new, X.min(axis=0), X.max(axis=0))
    standard = (Y - model.target_mean_) / model.target_scale_
    among, cross = own_kernel(found, X, X), own_kernel(found, X, new)
    mean, cov = oracle.posterior(
        among, found.variance, cross, own_kernel(found, new, new), standard
    )
    told, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(told, model.target_mean_ + model.target_scale_ * mean, rtol=1e-6)
    expected = np.sqrt(np.diag(cov) + found.new_noise)[:, None] * model.target_scale_
    np.testing.assert_allclose(std, expected, rtol=SOLVED["rtol"])
    dense = among + np.diag(found.variance)
    for column in range(3):
        density = -oracle.nll(dense, standard[:, column]) - 120 * np.log(
            model.target_scale_[column]
        )
        assert model.log_marginal_likelihood_[column] == pytest.approx(density, rel=1e-8)


def test_the_units_of_a_target_change_nothing():
    X, Y = problem()
    new = new_rows(X)
    one, two = shared().fit(X, Y), shared().fit(X, 1024.0 * Y)
    for a, b in zip(
        one.predict(new, return_std=True), two.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(b, 1024.0 * a, rtol=1e-9)


# What is shared


def test_targets_share_a_forest_and_have_their_own_calibration(data):
    X, Y = data
    model = shared().fit(X, Y)
    (forest,) = model.forests_
    assert forest.n_targets == 3
    assert forest.model.alpha.shape == Y.shape
    part = model._stream.fitted[0]
    assert len({stage.scale for stage in part.stages}) == 3
    assert len(model.importances_) == 3
    for one in model.importances_[1:]:
        np.testing.assert_array_equal(one.prior, model.importances_[0].prior)
    assert np.ptp(model.feature_importances_, axis=1).min() > 0
    assert model.training_curve_.names == ("all targets",)
    assert model.n_iter_ >= 1
    assert not model.diverged_
    assert np.shape(model.log_marginal_likelihood_error_) == (3,)


def test_all_that_an_estimator_does(data, tmp_path):
    X, Y = data
    model, new = shared().fit(X, Y), new_rows(X)
    shapes = [np.shape(part)[1] for part in answers(model, new)]
    assert shapes == [3] * len(shapes)
    assert model.sample_y(new, 4, random_state=0).shape == (45, 3, 4)
    drawn = model.sample_functions(2, random_state=0)(new)
    assert drawn.shape == (45, 3, 2)
    assert model.log_density(new, np.zeros((45, 3))).shape == (45, 3)
    assert model.predict_interval(new).shape == (45, 2, 3)
    assert model.score(X, Y) > 0.8
    density = (model.loo_log_density() - model.loo_optimism_).sum(axis=1).mean()
    assert model.loo_score_ == pytest.approx(density, rel=ROUNDING)
    model.save(tmp_path / "m", training_data=True)
    for other in (triegp.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert other.get_params() == model.get_params()
        for a, b in zip(answers(model, new), answers(other, new), strict=True):
            np.testing.assert_array_equal(a, b)
    again = clone(model)
    assert again.multi_target == "shared"
    np.testing.assert_array_equal(again.fit(X, Y).predict(new), model.predict(new))


def test_samples_of_targets_are_independent():
    """Draws of two equal targets differ, and have the deviations of `predict`."""
    X, Y = problem()
    model = shared().fit(X, np.stack([Y[:, 0], Y[:, 0]], axis=1))
    new = X[:3] * 0.9 + 0.05
    drawn = model.sample_y(new, 400, random_state=0, latent=True)
    _, std = model.predict(new, return_std=True, latent=True)
    np.testing.assert_allclose(drawn.std(axis=2), std, rtol=0.15)
    both = np.corrcoef(drawn[0])
    assert abs(both[0, 1]) < 0.2


def test_variances_are_computed_once_for_all_targets(monkeypatch):
    X, Y = problem()
    model, new = shared().fit(X, Y), new_rows(X)
    calls, real = [], fitted.forest_variance

    def counted(*given):
        calls.append(1)
        return real(*given)

    monkeypatch.setattr(fitted, "forest_variance", counted)
    model.predict(new, return_std=True)
    assert len(calls) == 2  # the rows, and the nearest rows of the box to those outside
    one = TrieGPRegressor(**QUICK).fit(X, Y)
    calls.clear()
    one.predict(new, return_std=True)
    assert len(calls) == 6


def test_variances_can_be_exact_later(monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 1_000)
    X, Y = problem(1_100)
    model, new = shared().fit(X, Y), new_rows(X)[:5]
    near = model.predict(new, return_std=True)[1]
    exact = model.set_params(variance="exact").predict(new, return_std=True)[1]
    assert (near != exact).any()
    np.testing.assert_allclose(exact, near, rtol=0.5)


# Adding rows


def test_added_rows_are_those_of_a_model_conditioned_on_all(monkeypatch):
    solve_tightly(monkeypatch)
    X, Y = problem()
    inner = np.clip(0.9 * X[:40] + 0.05, X.min(axis=0), X.max(axis=0))
    model = shared(calibrated=False, refit=False).fit(X, Y)
    before = model.forests_[0].model
    model.partial_fit(inner, Y[:40])
    found = model.forests_[0].model
    assert found.orders == before.orders
    every = np.vstack([X, inner])
    standard = (np.vstack([Y, Y[:40]]) - model.target_mean_) / model.target_scale_
    index = model._stream.observations.index
    dense = own_kernel(found, every, every) + np.diag(found.variance[index])
    np.testing.assert_allclose(found.alpha[index], np.linalg.solve(dense, standard), **SOLVED)
    assert model.loo_predict()[0].shape == (160, 3)


def test_a_refit_is_a_fit_on_all_rows():
    X, Y = problem(240)
    model = shared().fit(X[:110], Y[:110]).partial_fit(X[110:], Y[110:])
    whole, new = shared().fit(X, Y), new_rows(X)
    np.testing.assert_allclose(model.predict(new), whole.predict(new), rtol=HANDFUL)
    some = shared(refit=False).fit(X[:110], Y[:110])
    some.partial_fit(np.clip(X[110:], X[:110].min(axis=0), X[:110].max(axis=0)), Y[110:])
    assert (some.predict(new) != whole.predict(new)).any()
    assert some.refresh().n_rows_ == 240


def test_scale_and_tails_are_learned_again_for_each_target():
    X, Y = problem(300)
    X[:6] = np.vstack([np.eye(3), 0 * np.eye(3)])  # the corners of the box
    model = shared().fit(X[:200], Y[:200])
    before = [stage.scale for stage in model._stream.fitted[0].stages]
    model.partial_fit(X[200:], Y[200:])
    after = [stage.scale for stage in model._inserted().fitted[0].stages]
    assert all(a != b for a, b in zip(after, before, strict=True))


# Weights, known noise, transforms


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_a_weight_is_that_many_rows(monkeypatch):
    solve_tightly(monkeypatch)
    X, Y = problem()
    rng = np.random.default_rng(2)
    weight = rng.integers(1, 4, len(X))
    copies = np.repeat(np.arange(len(X)), weight)
    noisy = Y[copies] + 0.05 * UNITS * rng.standard_normal((copies.size, 3))
    one = shared(calibrated=False).fit(X[copies], noisy)
    rows = one.forests_[0].model.rows
    assert rows.n_rows == len(X)
    assert rows.scatter.shape == (len(X), 3)
    new = new_rows(X)
    two = shared(calibrated=False).fit(X[copies], noisy, np.ones(copies.size))
    np.testing.assert_allclose(two.predict(new), one.predict(new), rtol=1e-6)
    half = shared(calibrated=False).fit(X, Y, np.where(np.arange(len(X)) % 2, 2.0, 1.0))
    assert half.predict(new).shape == (45, 3)


@pytest.mark.parametrize("weights", ["frequency", "precision"])
def test_weights_of_0_are_rows_that_are_not_there(weights):
    X, Y = problem()
    weight = np.random.default_rng(3).integers(0, 3, len(X)).astype(float)
    weight[np.r_[X.argmin(axis=0), X.argmax(axis=0)]] = 1.0
    new = new_rows(X)
    used = weight > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        one = shared(weights=weights).fit(X, Y, weight)
        two = shared(weights=weights).fit(X[used], Y[used], weight[used])
    np.testing.assert_allclose(one.predict(new), two.predict(new), rtol=1e-9)
    assert np.isnan(one.loo_targets()[~used]).all()
    np.testing.assert_allclose(one.loo_targets()[used], Y[used], rtol=1e-9)


def test_repeated_measurements_have_a_scatter_for_each_target():
    X, Y = problem()
    twice = np.vstack([X, X[:40]])
    rng = np.random.default_rng(4)
    again = np.vstack([Y, Y[:40] + 0.2 * UNITS * rng.standard_normal((40, 3))])
    model = shared().fit(twice, again)
    found = model.forests_[0].model
    scatter = found.rows.scatter * np.square(model.target_scale_)
    largest = 0.5 * np.square(again[120:] - again[:40]).max(axis=0)
    np.testing.assert_allclose(scatter.max(axis=0), largest, rtol=1e-9)
    assert all(stage.repeats is not None for stage in model._stream.fitted[0].stages)
    assert model.loo_predict()[0].shape == (160, 3)


def test_known_noise_gives_all_targets_one_scale():
    X, Y = problem()
    Y = Y / UNITS
    known = np.where(np.arange(len(X)) % 2, 0.5, 0.0)
    model = shared().fit(X, Y, known_noise=known)
    scale = np.sqrt(np.mean(np.var(Y, axis=0, ddof=1)))
    np.testing.assert_allclose(model.target_scale_, scale, rtol=ROUNDING)
    found = model.forests_[0].model
    noise = found.rows.noise[model._stream.observations.index]
    np.testing.assert_allclose(noise - found.new_noise, known / scale**2, atol=1e-12)
    new = new_rows(X)
    before = model.predict(new)
    model.partial_fit(X[:10] * 0.9 + 0.05, Y[:10], known_noise=np.full(10, 0.1))
    assert (model.predict(new) != before).any()
    plain = shared(refit=False).fit(X, Y)
    with pytest.raises(ValueError, match="known_noise of targets that share a model"):
        plain.partial_fit(X[:10] * 0.9 + 0.05, Y[:10], known_noise=np.full(10, 0.1))
    own = TrieGPRegressor(**QUICK).fit(X, Y, known_noise=known)
    np.testing.assert_allclose(own.target_scale_, Y.std(axis=0, ddof=1), rtol=ROUNDING)


def test_known_noise_with_constant_and_huge_targets():
    X, Y = problem()
    known = np.full(len(X), 0.1)
    constant = np.stack([Y[:, 0], np.full(len(X), 1e6)], axis=1)
    with pytest.raises(ValueError, match=r"about the same scale, got deviations of 0, a constant"):
        shared().fit(X, constant, known_noise=known)
    apart = Y * np.where(np.arange(Y.shape[1]) % 2, 30.0, 1.0)
    with pytest.raises(ValueError, match=r"about the same scale, got deviations of .* to "):
        shared().fit(X, apart, known_noise=known)
    flat = shared().fit(X, np.full((len(X), 2), 7.0), known_noise=known)
    np.testing.assert_allclose(flat.predict(X), 7.0, rtol=1e-6)
    huge = shared().fit(X, 1e200 * Y / Y.std(axis=0), known_noise=1e300 * known)
    assert np.isfinite(huge.predict(X, return_std=True)).all()


def test_a_constant_target_beside_others():
    X, Y = problem()
    model = shared().fit(X, np.stack([Y[:, 0], np.full(len(X), 3.0)], axis=1))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 3.0, rtol=1e-6)
    assert (std > 0).all()
    assert "1 of them constant" in repr(model)


def test_each_target_has_its_own_transform():
    X, Y = problem()
    positive = np.stack([np.exp(Y[:, 0]), 1.0 + np.square(Y[:, 0])], axis=1)
    model = shared(target_transform="quantile").fit(X, positive)
    assert model.target_transform_ == ["quantile", "quantile"]
    mean = model.predict(X)
    assert np.corrcoef(mean[:, 0], positive[:, 0])[0, 1] > 0.9
    chosen = shared(target_transform="auto").fit(X, positive)
    assert len(chosen.target_transform_) == 2
    assert (shared(target_transform="log").fit(X, positive).predict(new_rows(X)) > 0).all()


# Limits


def test_a_time_budget_ends_training(data):
    X, Y = data
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model = shared(max_iter=5_000, time_budget=0.5).fit(X, Y)
    assert model.stopped_early_
    mean, std = model.predict(new_rows(X), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize("keep", ["keep", "raise"])
def test_ctrl_c(keep, monkeypatch):
    X, Y = problem(1_100)
    real, calls = walk.exact_gradient, []

    def pressed(*given):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(walk, "exact_gradient", pressed)
    model = shared(on_interrupt=keep, max_iter=20)
    if keep == "raise":
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        assert not hasattr(model, "forests_")
        return
    with pytest.warns(ConvergenceWarning, match="Ctrl-C"):
        model.fit(X, Y)
    assert model.predict(X).shape == Y.shape


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_few_rows(n):
    X, Y = problem()
    model = shared().fit(X[:n], Y[:n])
    mean, std = model.predict(new_rows(X), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_orders_of_single_trees():
    X, Y = problem()
    model = shared(init="trained").fit(X, Y)
    assert model.score(X, Y) > 0.8


def test_names_and_categories():
    pd = pytest.importorskip("pandas")
    X, Y = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(np.where(X[:, 0] > 0.5, "x", "y"))
    model = shared().fit(frame, Y)
    unseen = frame.iloc[:6].copy()
    unseen["kind"] = pd.Categorical(["z"] * 6)
    mean, std = model.predict(unseen, return_std=True)
    assert mean.shape == std.shape == (6, 3)
    assert model.feature_importances_.shape == (4, 3)
    assert model.predict(unseen, return_cov=True)[1].shape == (6, 6, 3)


def test_the_parameter_is_checked():
    X, Y = problem()
    with pytest.raises(ValueError, match=r"multi_target must be one of .*, got 'each'"):
        shared(multi_target="each").fit(X, Y)


def test_the_representation_says_the_noise_of_each_target():
    X, Y = problem()
    text = repr(shared().fit(X, Y))
    assert "3 targets, 6 trees, noise" in text
    assert base_of(shared().fit(X, Y)._stream.fitted[0]).n_targets == 3


def test_the_threads_change_nothing():
    X, Y = problem()
    new = new_rows(X)
    one, two = (shared(n_jobs=k).fit(X, Y) for k in (1, 2))
    for a, b in zip(answers(one, new), answers(two, new), strict=True):
        np.testing.assert_array_equal(a, b)


def test_all_targets_are_learned_from():
    """Each target depends on a feature of its own."""
    X, _ = problem(300)
    rng = np.random.default_rng(6)
    Y = np.sin(6 * X[:, :2]) + 0.1 * rng.standard_normal((300, 2))
    model = shared(max_iter=40, smooth=False, n_trees=16).fit(X, Y)
    assert model.score(X, Y) > 0.9
    prior = model.importances_[0].prior
    assert min(prior[0], prior[1]) > prior[2]
    explained = model.feature_importances_
    assert explained[0, 0] > 0.6
    assert explained[1, 1] > 0.6
