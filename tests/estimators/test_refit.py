"""Streams: models are calibrated again and fitted anew as rows come."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import triegp
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.engines import available_cores
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.parameters import count_threads

MIXTURE = {"n_members": 3, "n_candidates": 4, "max_iter": 10, "random_state": 0}
FOREST = {"n_trees": 6, "max_iter": 3, "random_state": 0}
KINDS = [(BinaryTreeGPRegressor, MIXTURE), (TrieGPRegressor, FOREST)]
both = pytest.mark.parametrize(("kind", "settings"), KINDS)


def make_data(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + noise * rng.standard_normal(n)


def corners(n, seed=0, noise=0.1):
    """Rows of which the first two span the box."""
    X, y = make_data(n, seed, noise)
    X[0], X[1] = 0.0, 1.0
    return X, y


def new_rows(n=50, seed=99):
    return np.random.default_rng(seed).random((n, 2)) * 0.9 + 0.05


def count_fits(monkeypatch):
    calls, real = [], TreeGPRegressor._fit_rows

    def counted(self, rows, *args):
        calls.append(rows.n_rows)
        return real(self, rows, *args)

    monkeypatch.setattr(TreeGPRegressor, "_fit_rows", counted)
    return calls


@both
def test_twice_the_rows_are_fitted_anew(kind, settings, monkeypatch):
    X, y = corners(80)
    model = kind(**settings).fit(X[:40], y[:40])
    calls = count_fits(monkeypatch)
    model.partial_fit(X[40:79], y[40:79])
    model.predict(X)
    assert calls == []
    model.partial_fit(X[79:], y[79:])
    assert calls == []  # the work waits for a question
    found = model.predict(X, return_std=True)
    assert calls == [80]
    whole = kind(**settings).fit(X, y)
    np.testing.assert_array_equal(found, whole.predict(X, return_std=True))
    np.testing.assert_array_equal(found, model.refresh().predict(X, return_std=True))
    np.testing.assert_array_equal(model.encoders_[0].high_, whole.encoders_[0].high_)
    assert model.rows_.n_rows == 80


def sources():
    return 0, np.random.default_rng(3), np.random.RandomState(3)


@pytest.mark.parametrize("source", range(3))
def test_nothing_depends_on_when_questions_are_asked(source):
    X, y = make_data(400)
    X[20:30] += 3.0  # outside the box of the first rows
    often, once = (
        BinaryTreeGPRegressor(**(MIXTURE | {"random_state": sources()[source]})) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(np.arange(20, 400), 12, replace=False))
    for k, (Xk, yk) in enumerate(zip(np.split(X, cuts), np.split(y, cuts), strict=True)):
        for model in (often, once):
            model.partial_fit(Xk, yk)
        if k % 2:
            often.predict(X[:5])
    np.testing.assert_array_equal(
        often.predict(X, return_std=True), once.predict(X, return_std=True)
    )


def test_only_the_last_due_fit_is_done(monkeypatch):
    X, y = corners(200)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X[:10], y[:10])
    calls = count_fits(monkeypatch)
    for k in range(10, 200, 5):
        model.partial_fit(X[k : k + 5], y[k : k + 5])
    model.predict(X)
    assert calls == [160]
    assert model.rows_.n_rows == 200


@both
def test_refit_can_be_turned_off(kind, settings, monkeypatch):
    X, y = corners(100)
    model = kind(**settings, refit=False).fit(X[:20], y[:20])
    calls = count_fits(monkeypatch)
    scale, stages = model.target_scale_, model._stream.fitted[0].stages
    model.partial_fit(X[20:], y[20:])
    model.predict(X)
    assert calls == []
    np.testing.assert_array_equal(model.target_scale_, scale)
    assert model._stream.fitted[0].stages[0].scale == stages[0].scale


@pytest.mark.parametrize("refit", [True, None, "never", 1])
def test_other_values_of_refit_are_refused(refit):
    with pytest.raises(ValueError, match="refit must be 'auto' or False"):
        BinaryTreeGPRegressor(refit=refit).fit(*make_data(10))


@both
@pytest.mark.parametrize("first", [1, 10, 100])
def test_small_first_batches_end_well(kind, settings, first):
    X, y = make_data(700 + first, seed=first)
    larger = {"n_members": 8} if kind is BinaryTreeGPRegressor else {"n_trees": 24, "max_iter": 10}
    model = kind(**(settings | larger)).partial_fit(X[:first], y[:first])
    model.partial_fit(X[first:], y[first:])
    Xt, yt = make_data(1000, seed=1000)
    low, high = model.predict_interval(Xt).T
    covered = np.mean((low < yt) & (yt < high))
    assert abs(covered - 0.9) < 0.06  # three standard errors are 0.03


def test_a_target_that_was_constant():
    X, y = corners(300)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X[:200], np.where(X[:200, 0] > -1, 2.0, 0.0))
    assert model.target_scale_[0] == pytest.approx(2.0 / (200**2 * np.sqrt(202)))
    model.partial_fit(X[200:201], [2.0])
    assert model._stream.plan.n_fit == 200
    model.partial_fit(X[201:], y[201:])
    assert model._stream.plan.n_fit == 300
    assert model.target_scale_[0] == pytest.approx(model.rows_.y.std(ddof=1))


def test_between_fits_the_error_bars_follow_the_rows():
    X, y = corners(200)
    X2, y2 = make_data(150, seed=1, noise=1.0)
    fixed, auto = (
        BinaryTreeGPRegressor(**MIXTURE, refit=refit).fit(X, y).partial_fit(X2, y2)
        for refit in (False, "auto")
    )
    assert auto._stream.plan.n_fit == 200
    Xt, yt = make_data(1000, seed=2, noise=1.0)
    covered = []
    for model in (fixed, auto):
        low, high = quiet_interval(model, Xt).T
        covered.append(np.mean((low < yt) & (yt < high)))
    assert covered[1] > covered[0]
    assert covered[1] > 0.8


def quiet_interval(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.predict_interval(X)


# Rows outside the box


@both
def test_rows_outside_do_not_speak_for_the_border(kind, settings):
    X, y = corners(100)
    model = kind(**settings).fit(X, y)
    new = np.array([[1.0, 1.0], [0.99, 0.99], [0.5, 0.5]])
    before = model.predict(new, return_std=True)
    model.partial_fit(np.full((11, 2), 1.2), np.full(11, 50.0))
    np.testing.assert_array_equal(model.predict(new, return_std=True), before)
    mean, std = model.loo_predict()
    assert mean.shape == (111,)
    assert np.isfinite([mean, std]).all()
    outside = model.rows_.features[100:]
    with pytest.warns(UserWarning, match="outside the training box"):
        there = model.predict(outside, return_std=True)
    np.testing.assert_allclose((mean[100:], std[100:]), there, rtol=1e-12)
    np.testing.assert_allclose(
        model.loo_log_density()[100:], model.log_density(outside, np.full(11, 50.0))
    )
    np.testing.assert_allclose(model.loo_distribution().mean(), mean, rtol=1e-9)
    assert np.isnan(model.loo_targets()[100:]).all()  # what is not learned from does not score
    np.testing.assert_allclose(
        model.loo_score_, np.mean(model.loo_log_density()[:100]) - model.loo_optimism_
    )
    assert model.rows_.n_rows == 111
    inside = np.array([[0.5, 0.4], [0.2, 0.3]])
    model.partial_fit(inside, [0.0, 0.0])  # rows after those set aside are rows of the model
    assert np.flatnonzero(np.isnan(model.loo_targets())).tolist() == list(range(100, 111))
    assert np.isfinite(model.loo_predict()).all()


@both
def test_many_rows_outside_make_a_new_box(kind, settings):
    X, y = corners(100)
    model = kind(**settings).fit(X, y)
    model.partial_fit(X[:10] + 1.0, y[:10])
    assert model.outside_box([[1.5, 1.5]])[0]
    model.partial_fit(X[10:20] + 1.0, y[10:20])
    assert not model.outside_box([[1.05, 1.05]])[0]
    assert np.isfinite(model.loo_predict()[0]).all()


def test_set_aside_for_good_is_told_once():
    X, y = corners(60)
    model = BinaryTreeGPRegressor(**MIXTURE, refit=False).fit(X, y)
    with pytest.warns(UserWarning, match=r"2 added rows lie outside .* refresh\(\) uses them"):
        model.partial_fit([[2.0, 2.0], [2.0, 2.5]], [0.0, 0.1])
    model.partial_fit([[2.5, 2.0], [3.0, 2.5]], [0.2, 0.0])
    model.predict(X)
    assert model.outside_box([[1.5, 1.5]])[0]
    assert not model.refresh().outside_box([[1.5, 1.5]])[0]


def test_a_single_row_that_is_set_aside_is_told_in_the_singular():
    X, y = corners(60)
    model = BinaryTreeGPRegressor(**MIXTURE, refit=False).fit(X, y)
    with pytest.warns(UserWarning, match="1 added row lies outside the training box, or has gaps"):
        model.partial_fit([[2.0, 2.0]], [0.0])


def test_leave_one_out_of_what_is_set_aside_or_not_used(tmp_path):
    """Unknown categories and gaps are predicted as new rows are; weights of 0 are not."""
    import pandas as pd

    X, y = corners(100)
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0.5, "high", "low")})
    model = BinaryTreeGPRegressor(**MIXTURE, refit=False, target_transform="yeo-johnson")
    model.fit(table[:90], y[:90])
    quiet_interval(model, table.assign(a=9.0))  # warns of rows outside, once
    added = table[90:].assign(b=["new", None, *table["b"][92:]], a=[0.5, 0.5, 9.0, *X[93:, 0]])
    weight = np.array([1.0] * 9 + [0.0])
    with pytest.warns(UserWarning, match="3 added rows lie"):
        model.partial_fit(added, y[90:], sample_weight=weight)
    mean, std = model.loo_predict()
    np.testing.assert_array_equal(np.isnan(mean), np.arange(100) == 99)
    there = model.predict(added[:3], return_std=True)
    np.testing.assert_allclose((mean[90:93], std[90:93]), there, rtol=1e-12)
    model.save(tmp_path / "m")  # without rows
    without = triegp.load(tmp_path / "m").loo_predict()[0]
    mean[90:93] = np.nan
    np.testing.assert_array_equal(without, mean)


def test_rows_outside_of_weight_0_count_for_nothing():
    X, y = corners(60)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X, y)
    before = model.predict(new_rows())
    model.partial_fit(np.full((20, 2), 2.0), np.full(20, 9.0), sample_weight=np.zeros(20))
    np.testing.assert_array_equal(model.predict(new_rows()), before)
    assert model.outside_box([[1.5, 1.5]])[0]


# Rows that are not kept, files, threads


def test_without_kept_rows_a_due_fit_is_told_once():
    X, y = corners(60)
    X2, y2 = make_data(300, seed=1, noise=1.0)
    model = BinaryTreeGPRegressor(**MIXTURE, keep_rows=False).fit(X, y)
    narrow = model.predict(new_rows(), return_std=True)[1]
    with pytest.warns(UserWarning, match="fitted to 60 rows and has been passed 210"):
        model.partial_fit(X2[:150], y2[:150])
    model.partial_fit(X2[150:], y2[150:])
    assert model.rows_ is None
    assert model.predict(new_rows(), return_std=True)[1].mean() > narrow.mean()


@both
@pytest.mark.parametrize("how", ["file", "pickle"])
def test_a_stored_model_goes_on_counting(kind, settings, how, tmp_path):
    X, y = corners(130)
    model = kind(**settings).fit(X[:50], y[:50])
    model.partial_fit(X[50:90], y[50:90]).partial_fit(1 + X[2:5], y[2:5])
    if how == "file":
        model.save(tmp_path / "m", training_data=True)
        again = triegp.load(tmp_path / "m")
    else:
        again = copy.deepcopy(model)
    for one in (model, again):
        assert np.isnan(one.loo_targets()[90:]).all()
        one.partial_fit(X[90:], y[90:])
        assert one._stream.plan.fit_at == 133
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.loo_predict(), model.loo_predict())


def test_a_file_without_rows_cannot_fit_anew(tmp_path):
    X, y = corners(60)
    BinaryTreeGPRegressor(**MIXTURE).fit(X[:20], y[:20]).save(tmp_path / "m")
    with pytest.warns(UserWarning, match="rows are not kept"):
        triegp.load(tmp_path / "m").partial_fit(X[20:], y[20:])


def test_one_fit_for_all_who_ask(monkeypatch):
    X, y = corners(80)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X[:30], y[:30])
    calls = count_fits(monkeypatch)
    model.partial_fit(X[30:], y[30:])
    with ThreadPoolExecutor(4) as pool:
        answers = [job.result() for job in [pool.submit(model.predict, X) for _ in range(4)]]
    for answer in answers:
        np.testing.assert_array_equal(answer, answers[0])
    assert calls == [80]


def test_a_fit_that_fails_loses_nothing(monkeypatch):
    X, y = corners(80)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:])

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BinaryTreeGPRegressor, "_train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.predict(X)
    whole = BinaryTreeGPRegressor(**MIXTURE).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_names_and_several_targets_survive_a_refit():
    import pandas as pd

    X, y = corners(60)
    frame = pd.DataFrame(X, columns=["a", "b"])
    both_targets = np.stack([y, -y], axis=1)
    model = BinaryTreeGPRegressor(**MIXTURE).fit(frame[:20], both_targets[:20])
    model.partial_fit(frame[20:], both_targets[20:])
    assert model.predict(frame).shape == (60, 2)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert model.encoders_[0].feature_names_in_.tolist() == ["a", "b"]


# Parameters that came with a file, or were set since the fit.


@both
def test_a_refit_checks_the_parameters(kind, settings):
    X, y = corners(40)
    model = kind(**settings).fit(X[:20], y[:20])
    model.set_params(time_budget=-1.0)
    with pytest.raises(ValueError, match="time_budget must be positive"):
        model.refresh()
    model.set_params(time_budget=None, n_jobs=0)
    model.partial_fit(X[20:], y[20:])  # a fit is due
    for _ in range(2):
        with pytest.raises(ValueError, match="n_jobs must be"):
            model.predict(X)
    model.set_params(n_jobs=1)
    np.testing.assert_array_equal(model.predict(X), kind(**settings).fit(X, y).predict(X))


def test_a_model_with_a_bad_parameter_is_not_saved(tmp_path):
    """It could not be read again."""
    model = BinaryTreeGPRegressor(**MIXTURE).fit(*make_data(20)).set_params(tol=-1.0)
    with pytest.raises(ValueError, match="tol must be positive"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_there_are_no_more_threads_than_64_or_cores():
    most = max(64, available_cores())
    assert [count_threads(n) for n in (1, 3, 10**6, 10**400)] == [1, 3, most, most]
    assert count_threads(-1) == available_cores()
    assert count_threads(-(10**400)) == 1


def test_a_time_budget_ends_any_number_of_candidates_and_steps():
    X, y = make_data(60)
    settings = MIXTURE | {"n_candidates": 10**12, "max_iter": 10**12, "tol": 1e-300}
    with pytest.warns(ConvergenceWarning, match="time_budget"):
        model = BinaryTreeGPRegressor(**settings, time_budget=0.2).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(("kind", "name"), [(KINDS[0][0], "n_members"), (KINDS[1][0], "n_trees")])
def test_the_number_of_trees_is_limited(kind, name):
    with pytest.raises(ValueError, match=rf"{name} must be at most 10,000, got 1000000000"):
        kind(**{name: 10**9}).fit(*make_data(20))


def test_any_tolerance_is_one():
    X, y = make_data(40)
    for tol in (1e-320, 1e308):
        model = BinaryTreeGPRegressor(**(MIXTURE | {"tol": tol})).fit(X, y)
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("value", ["x" * 10**6, [3] * 10**5, [["x" * 10**6]], 10**400])
@pytest.mark.parametrize("name", ["precision", "n_members", "tol", "random_state", "outside"])
def test_errors_about_long_parameters_are_short(name, value):
    model = BinaryTreeGPRegressor(**(MIXTURE | {name: value}))
    with pytest.raises(ValueError, match=name) as caught:
        model.fit(*make_data(20))
    assert len(str(caught.value)) < 1000
