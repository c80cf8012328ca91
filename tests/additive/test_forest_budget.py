"""What of a forest fits into a time budget, and solves that end early."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from forest_problems import make_problem
from triegp import TrieGPRegressor
from triegp.additive import train as training
from triegp.additive.budget import (
    SHARES,
    SOLVE_SHARE,
    TAIL_SHARE,
    Work,
    fitting_share,
    measure_unit,
    plan_forest,
    solve_seconds,
    start_rows,
)
from triegp.additive.conditioning import Limits, condition_forest, smooth_sizes
from triegp.additive.fitted import FittedForest
from triegp.additive.preconditioner import make_preconditioner
from triegp.additive.settings import Settings
from triegp.additive.solve import LEAST_MORE_STEPS, LEAST_STEPS, solve_forest
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch

UNIT = 4e-9  # seconds per row and column of a product with one tree
TREES, LINEAR = Work(20_000, 64, False, UNIT), Work(20_000, 64, True, UNIT)


@pytest.mark.parametrize("work", [TREES, LINEAR])
def test_the_stages_share_the_time_left(work):
    ample = plan_forest(1e6, work, True)
    assert ample.solve == solve_seconds(work, 1.0)
    assert 0 < ample.tails < 10.0
    for left in (0.0, 0.5, 5.0, 50.0):
        plan = plan_forest(left, work, True)
        assert plan.solve <= SOLVE_SHARE * left
        assert plan.tails <= TAIL_SHARE * left
    assert plan_forest(50.0, work, False).tails == 0.0
    more = [plan_forest(1e6, replace(work, n_rows=n), True).tails for n in (10**6, 10**7)]
    assert more[0] == more[1]


@pytest.mark.parametrize("work", [TREES, LINEAR])
def test_what_is_made_fits_the_time(work):
    seconds = [solve_seconds(work, share) for share in SHARES]
    assert seconds[0] > 1.5 * seconds[-1]  # with fewer neighbours a solve takes more steps
    assert fitting_share(1e6, work) == 1.0
    assert fitting_share(0.0, work) == 0.0
    for share, needed in zip(SHARES, seconds, strict=True):
        assert solve_seconds(work, fitting_share(needed, work)) <= needed
        assert fitting_share(needed, work) >= share
    assert start_rows(1e6, work) == 5_000
    assert start_rows(0.0, work) == 625
    assert start_rows(1.0, replace(work, n_rows=300)) == 0


def test_a_smaller_share_has_fewer_inducing_rows_and_neighbours():
    assert smooth_sizes(10_000, 0.5) == (128, 256)
    assert smooth_sizes(100_000, 0.5) == (128, 84)
    for n, share in ((10_000, 0.125), (10**7, 0.25), (10_000, 0.0)):
        assert smooth_sizes(n, share) == (64, 64)


@pytest.mark.parametrize("smooth", [None, "inducing"])
def test_the_unit_of_work_is_a_positive_time(smooth):
    problem = make_problem(n=50, smooth=smooth)
    unit = measure_unit(problem.data, problem.parameters, CpuEngine(), Stopwatch(1e6))
    assert unit > 0


def stopped_watch():
    watch = Stopwatch()
    watch.halt()
    return watch


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.parametrize("started", [False, True])
def test_a_solve_ends_when_the_watch_stops(started, smooth):
    problem = make_problem(n=300, noise=1e-4, smooth=smooth)
    forest = problem.forest()
    b = problem.rows.y
    start = 0.1 * b if started else None
    shares = []
    found = solve_forest(
        forest, 1e-4, b, start=start, tolerance=1e-12, watch=stopped_watch(), tell=shares.append
    )
    assert found.n_steps == (LEAST_MORE_STEPS if started else LEAST_STEPS)
    assert not found.converged
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] == 1.0


def test_a_watch_that_does_not_stop_changes_no_bit():
    problem = make_problem(n=300, smooth="inducing")
    forest = problem.forest()
    one, two = (
        make_preconditioner(forest, 0.1, 50, np.random.default_rng(0), watch)
        for watch in (None, Stopwatch(1e9))
    )
    np.testing.assert_array_equal(one.gain, two.gain)
    solved = [
        solve_forest(forest, 0.1, problem.rows.y, preconditioner=one, watch=watch).x
        for watch in (None, Stopwatch(1e9))
    ]
    np.testing.assert_array_equal(*solved)


def test_a_preconditioner_that_is_cut_short_has_a_smaller_rank():
    problem = make_problem(n=300, smooth="inducing")
    forest = problem.forest()
    made = make_preconditioner(forest, 0.1, 200, np.random.default_rng(0), stopped_watch())
    assert 0 < made.core.shape[0] < 200
    found = solve_forest(forest, 0.1, problem.rows.y, preconditioner=made)
    assert found.converged


@pytest.mark.parametrize("smooth", [None, "inducing"])
def test_a_solve_that_begins_with_fewer_rows_is_no_worse_than_these(smooth):
    problem = make_problem(n=400, smooth=smooth)
    given = (problem.data, problem.parameters, Settings(), 0, CpuEngine())
    whole = condition_forest(*given, None, Limits(Stopwatch(), 0.0))
    hurried = condition_forest(*given, None, Limits(Stopwatch(0.0).last(), 0.0, 200))
    patient = condition_forest(*given, None, Limits(Stopwatch(), 0.0, 200))
    assert hurried.residual < 0.5
    np.testing.assert_allclose(patient.alpha, whole.alpha, atol=1e-3 * np.abs(whole.alpha).max())
    assert whole.known_preconditioner is None or patient.known_preconditioner is None


def fit(n=1200, **options):
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    model = TrieGPRegressor(n_trees=4, max_iter=4, random_state=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(w.message) for w in caught if w.category is ConvergenceWarning]


def test_without_time_there_is_a_model_and_one_warning_says_what_is_missing():
    model, said = fit(time_budget=1e-6)
    assert len(said) == 1
    for part in ("4 of 4 training steps", "the calibration"):
        assert part in said[0]
    assert isinstance(model._stream.fitted[0], FittedForest)
    assert model.stopped_early_
    assert np.isfinite(model.predict(np.full((1, 2), 0.5))).all()


def test_a_budget_that_is_not_used_changes_no_bit():
    ample, said = fit(time_budget=1e6)
    assert said == []
    free, _ = fit()
    X = np.random.default_rng(1).random((20, 2))
    pairs = zip(ample.predict(X, return_std=True), free.predict(X, return_std=True), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def test_ctrl_c_in_the_last_solve_lets_it_finish(monkeypatch):
    real = training.condition_forest

    def pressed(data, parameters, settings, seed, engine, solver, limits, held):
        if data.rows.n_rows == 1200:
            limits.watch.interrupt()
        return real(data, parameters, settings, seed, engine, solver, limits, held)

    monkeypatch.setattr(training, "condition_forest", pressed)
    model, said = fit(on_interrupt="keep")
    assert model.forests_[0].model.residual < 1e-4
    assert len(said) == 1
    assert "Ctrl-C" in said[0]
    assert model.forests_[0].n_steps == 4


def test_progress_moves_in_every_stage(monkeypatch):
    seen = {}

    def note(stage, done, total):
        seen.setdefault(stage, []).append(done / total)

    monkeypatch.setattr("triegp.estimators.base.progress_bars", lambda verbose: note)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    fit()
    assert {"steps", "preconditioner", "solve", "fits"} <= set(seen)
    for shares in seen.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_what_ctrl_c_skips_after_training_is_said(monkeypatch):
    real = training.train_stage

    def train_and_press(*given):
        found = real(*given)
        given[-1].watch.interrupt()
        return found

    monkeypatch.setattr(training, "train_stage", train_and_press)
    X = np.random.default_rng(0).random((60, 2))
    model = TrieGPRegressor(n_trees=4, max_iter=2, on_interrupt="keep", random_state=0)
    with pytest.warns(ConvergenceWarning, match=training.NO_TEST):
        model.fit(X, X[:, 0])
    assert model.stopped_early_
