"""What of a forest fits into a time budget, and solves that end early."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from forest_problems import make_problem
from triegp import TrieGPRegressor
from triegp.additive import train as training
from triegp.additive.budget import (
    LEAST_ROWS,
    SOLVE_SHARE,
    TAIL_SHARE,
    fitting_rank,
    plan_forest,
    precondition_seconds,
    start_rows,
    tail_rows,
    tails_seconds,
)
from triegp.additive.conditioning import Limits, condition_forest
from triegp.additive.fitted import FittedForest
from triegp.additive.forest import build_forest
from triegp.additive.model import rank_for
from triegp.additive.preconditioner import make_preconditioner
from triegp.additive.settings import Settings
from triegp.additive.solve import LEAST_MORE_STEPS, LEAST_STEPS, solve_forest
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch

UNIT = 5e-7  # seconds per row and column of a product


def test_a_forest_is_thinned_to_the_time_left():
    ample = plan_forest(1e6, UNIT, 20_000, 5_000, True)
    assert ample.train_rows == 5_000
    assert ample.tails == tails_seconds(20_000, 20_000, UNIT)
    for left in (0.0, 0.5, 5.0, 50.0):
        plan = plan_forest(left, UNIT, 20_000, 5_000, True)
        assert LEAST_ROWS <= plan.train_rows <= 5_000
        assert plan.solve <= SOLVE_SHARE * left
        assert plan.tails <= TAIL_SHARE * left
    assert plan_forest(0.5, UNIT, 20_000, 100, True).train_rows == 100
    assert plan_forest(50.0, UNIT, 20_000, 5_000, False).tails == 0.0
    assert plan_forest(50.0, 0.0, 20_000, 5_000, True).train_rows == 5_000


def test_preconditioner_start_and_tails_fit_the_time():
    assert fitting_rank(1e6, 20_000, UNIT) == rank_for(20_000)
    assert fitting_rank(0.0, 20_000, UNIT) == 0
    middle = fitting_rank(5.0, 20_000, UNIT)
    assert 0 < middle < rank_for(20_000)
    assert precondition_seconds(20_000, middle, UNIT) < 5.0
    assert start_rows(1e6, 20_000, UNIT) == 5_000
    assert start_rows(0.0, 20_000, UNIT) == 625
    assert start_rows(1.0, 300, UNIT) == 0
    rows = [tail_rows(left, 20_000, UNIT) for left in (0.0, 0.3, 1.0, 5.0, 1e6)]
    assert rows == sorted(rows)
    assert rows[0] == 0
    assert 0 < rows[1] < 20_000
    assert rows[-1] == 20_000
    for left, n in zip((0.3, 1.0, 5.0), rows[1:4], strict=True):
        assert tails_seconds(n, 20_000, UNIT) <= left


def stopped_watch():
    watch = Stopwatch()
    watch.halt()
    return watch


@pytest.mark.parametrize("started", [False, True])
def test_a_solve_ends_when_the_watch_stops(started):
    problem = make_problem(n=300, noise=1e-4)
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
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
    problem = make_problem(n=300)
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
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
    problem = make_problem(n=300)
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    made = make_preconditioner(forest, 0.1, 200, np.random.default_rng(0), stopped_watch())
    assert 0 < made.core.shape[0] < 200
    found = solve_forest(forest, 0.1, problem.rows.y, preconditioner=made)
    assert found.converged


def test_a_solve_that_begins_with_fewer_rows_is_no_worse_than_these():
    problem = make_problem(n=400)
    given = (problem.data, problem.parameters, Settings(), 0, CpuEngine())
    whole = condition_forest(*given)
    hurried = condition_forest(*given, None, Limits(Stopwatch(0.0).last(), 0, 200))
    patient = condition_forest(*given, None, Limits(Stopwatch(), 0, 200))
    assert hurried.residual < 0.5
    np.testing.assert_allclose(patient.alpha, whole.alpha, atol=1e-3 * np.abs(whole.alpha).max())
    assert whole.known_preconditioner is None or patient.known_preconditioner is None


def fit(n=3000, **options):
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    model = TrieGPRegressor(n_trees=4, max_iter=4, train_rows=400, random_state=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(w.message) for w in caught if w.category is ConvergenceWarning]


def test_without_time_there_is_a_model_and_one_warning_says_what_is_missing():
    model, said = fit(time_budget=1e-6)
    assert len(said) == 1
    for part in (
        "150 of 400 training rows",
        "4 of 4 training steps",
        "1600 rows",
        "the calibration",
    ):
        assert part in said[0]
    assert isinstance(model._stream.fitted[0], FittedForest)
    assert model.stopped_early_


def test_a_budget_that_is_not_used_changes_no_bit():
    ample, said = fit(time_budget=1e6)
    assert said == []
    free, _ = fit()
    X = np.random.default_rng(1).random((20, 2))
    pairs = zip(ample.predict(X, return_std=True), free.predict(X, return_std=True), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def test_ctrl_c_in_the_last_solve_lets_it_finish_and_shortens_the_calibration(monkeypatch):
    real = training.condition_forest

    def pressed(data, parameters, settings, seed, engine, solver=None, limits=None):
        if data.rows.n_rows == 3000:
            limits.watch.interrupt()
        return real(data, parameters, settings, seed, engine, solver, limits)

    monkeypatch.setattr(training, "condition_forest", pressed)
    monkeypatch.setattr(training, "measure_unit", lambda *given: 1e-6)
    model, said = fit(on_interrupt="keep")
    assert model.forests_[0].model.residual < 1e-4
    assert len(said) == 1
    assert "Ctrl-C" in said[0]
    assert "rows for the calibration" in said[0]
    assert model.forests_[0].n_steps == 5


def test_progress_moves_in_every_stage(monkeypatch):
    seen = {}

    def note(stage, done, total):
        seen.setdefault(stage, []).append(done / total)

    monkeypatch.setattr("triegp.estimators.base.progress_bars", lambda verbose: note)
    fit()
    assert list(seen) == [
        "steps",
        "more steps",
        "preconditioner",
        "solve",
        "leave-one-out",
        "fits",
        "calibration",
    ]
    for shares in seen.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
