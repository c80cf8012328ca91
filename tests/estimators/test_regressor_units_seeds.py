"""Fits in other units, with other seeds and on other numbers of threads."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from regressor_problems import QUICK, make_data, new_rows
from tolerances import FITTED, LOOSE, STEPPED
from triegp import BinaryTreeGPRegressor
from triegp.engines import one_blas_thread
from triegp.mixture import optimise as training

# Units, seeds, threads.


@pytest.mark.parametrize(("a", "b"), [(8.0, 0.0), (-3.7, 1000.0), (1e-6, 0.0), (1e9, -5e9)])
@pytest.mark.parametrize("preset", ["default", "paper-bte"])
def test_everything_follows_the_units_of_y(a, b, preset):
    X, y = make_data()
    options = QUICK | {"noise": None, "preset": preset, "max_iter": 5}
    plain = BinaryTreeGPRegressor(**options).fit(X, y)
    other = BinaryTreeGPRegressor(**options).fit(X, a * y + b)
    new, at = new_rows(), np.linspace(10, 30, 9)
    size = {"rtol": FITTED, "atol": FITTED * abs(a)}
    mean, cov = plain.predict(new, return_cov=True)
    got_mean, got_cov = other.predict(new, return_cov=True)
    np.testing.assert_allclose(got_mean, a * mean + b, **size)
    np.testing.assert_allclose(got_cov, a**2 * cov, rtol=FITTED, atol=FITTED * a**2)
    np.testing.assert_allclose(
        other.log_density(new, a * at + b), plain.log_density(new, at) - np.log(abs(a)), **LOOSE
    )
    np.testing.assert_allclose(other.loo_predict()[1], abs(a) * plain.loo_predict()[1], **size)
    ends = a * plain.predict_interval(new) + b
    np.testing.assert_allclose(other.predict_interval(new), np.sort(ends, axis=1), **size)
    assert other.log_marginal_likelihood_ == pytest.approx(
        plain.log_marginal_likelihood_ - 40 * np.log(abs(a)), rel=STEPPED
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
    seen, real = [], training.rows_likelihood

    def spy(*args, **kwargs):
        seen.append(n_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "rows_likelihood", spy)
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
    for bad in ((X[:, :1], y[:3]), (np.full_like(X, np.inf), y), (X, np.full(40, np.inf))):
        with pytest.raises(ValueError, match=r"rows|finite"):
            model.fit(*bad)
    with pytest.raises(ValueError, match="known_noise"):
        model.fit(X[:, :1], y, known_noise=-np.ones(40))
    with pytest.raises(ValueError, match="rows"):
        model.partial_fit(X, y[:3])
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_number_of_blas_threads_changes_nothing(weighted):
    """From some 10,000 rows on, BLAS shares sums between its threads, which rounds otherwise."""
    rng = np.random.default_rng(0)
    X = rng.random((21_000, 3))
    X[20_000:] = 0.1 + 0.8 * X[20_000:]  # inside the box of the others
    y = np.sin(5 * X[:, 0]) + (0.1 + X[:, 1]) * rng.standard_normal(len(X))
    weight = rng.exponential(1.0, 20_000) if weighted else None
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            quick = {"n_members": 2, "n_candidates": 2, "max_iter": 2, "random_state": 0}
            model = BinaryTreeGPRegressor(**quick, weights="precision")
            model.fit(X[:20_000], y[:20_000], sample_weight=weight)
            model.partial_fit(X[20_000:], y[20_000:])
            answers = [*model.predict(X[:500], return_std=True), *model.loo_predict()]
            found.append([*answers, model.log_marginal_likelihood_, model.loo_score_])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
