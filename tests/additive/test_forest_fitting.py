"""Fitting a forest from rows to predictions, and adding rows to it."""

import numpy as np
import pytest

import oracle
from forest_problems import (
    assert_sampled,
    dense_left_out,
    dense_posterior,
    make_problem,
    own_kernel,
    solve_tightly,
)
from tolerances import SOLVED, USUAL_SOLVE, VALUE
from triegp.additive import train as fitting
from triegp.additive.model import Manner, forest_mean
from triegp.additive.tails import FACTORS
from triegp.additive.train import ForestPlan, add_rows, train_forest
from triegp.additive.variance import forest_variance, leave_out, with_diagonal
from triegp.additive.walk import Schedule
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch
from triegp.tree.observations import Measured


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


def fit(
    problem, rows=None, X=None, n_threads=0, start="even", trained=(), stages=((50, 4), (99, 4))
):
    encoder = problem.encoders[0].with_shift(None)
    plan = ForestPlan(
        n_trees=4,
        start=start,
        slope=1.0,
        stages=stages,
        schedule=Schedule(n_steps=0, rank=40),
        calibrated=True,
        manner=Manner("samples", 0.3),
    )
    return train_forest(
        [encoder],
        problem.X if X is None else X,
        problem.rows if rows is None else rows,
        plan,
        np.random.default_rng(0),
        CpuEngine(n_threads),
        Stopwatch(),
        lambda *_: None,
        trained,
        host=CpuEngine(n_threads),
    )


@pytest.mark.parametrize("start", ["even", "random", "trained"])
def test_a_fitted_forest_predicts_what_its_kernel_says(start):
    problem = make_problem(n=99)
    trained = [(problem.encoders[t], problem.orders[t]) for t in range(3)]
    grown = fit(problem, start=start, trained=trained)
    found = grown.model
    assert [stage.n_steps for stage in grown.stages] == [4, 4]
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(forest_mean(found, problem.new), mean, atol=USUAL_SOLVE)
    assert_sampled(forest_variance(found, problem.new), np.diag(cov), found.manner.n_samples)
    assert found.tails.weight.size == FACTORS.size


def test_rows_of_weight_zero_do_not_count():
    problem = make_problem(n=99)
    X = np.vstack([problem.X, problem.new])
    weight = np.append(np.ones(99), np.zeros(30))
    rows = Measured(np.append(problem.rows.y, np.full(30, 1e3)), None, weight)
    one, two = fit(problem).model, fit(problem, rows, X).model
    np.testing.assert_array_equal(two.present, weight > 0)
    np.testing.assert_allclose(two.alpha, one.alpha, **SOLVED)
    np.testing.assert_allclose(
        forest_variance(two, problem.new), forest_variance(one, problem.new), **SOLVED
    )


def test_fitting_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=99)
    one, two = (fit(problem, n_threads=k).model for k in (1, 3))
    np.testing.assert_array_equal(one.alpha, two.alpha)
    np.testing.assert_array_equal(one.tails.weight, two.tails.weight)
    np.testing.assert_array_equal(
        forest_variance(one, problem.new), forest_variance(two, problem.new)
    )


@pytest.mark.parametrize("weighted", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.usefixtures("tight")
def test_adding_rows_is_conditioning_on_all(weighted, known):
    problem = make_problem(n=30, weighted=weighted[0])
    found = with_diagonal(problem.condition())
    rng = np.random.default_rng(7)
    more = Measured(
        rng.standard_normal(30),
        rng.uniform(0.0, 0.3, 30) if known else None,
        rng.integers(0, 3, 30).astype(float) if weighted[1] else None,
    )
    grown = add_rows(found, problem.new, more)
    kept = np.ones(30, bool) if more.weight is None else more.weight > 0
    X = np.vstack([problem.X, problem.new[kept]])
    np.testing.assert_array_equal(grown.present, np.append(np.ones(30, bool), kept))
    assert grown.n_rows == 60
    assert grown.orders == found.orders
    assert grown.noise == found.noise
    assert grown.known_diagonal is None
    extra = 0.0 if more.known_noise is None else more.known_noise[kept]
    counts = np.ones(kept.sum()) if more.weight is None else more.weight[kept]
    variance = np.append(found.variance, (found.new_noise + extra) / counts)
    np.testing.assert_allclose(grown.variance, variance, **VALUE)
    y = np.append(problem.rows.y, more.y[kept])
    dense = own_kernel(found, X, X)
    np.testing.assert_allclose(grown.alpha, np.linalg.solve(dense + np.diag(variance), y), **SOLVED)
    other = problem.new + 0.01 * (0.5 - problem.new)
    mean, cov = oracle.posterior(
        dense, variance, own_kernel(found, X, other), own_kernel(found, other, other), y
    )
    np.testing.assert_allclose(forest_mean(grown, other), mean, **SOLVED)
    np.testing.assert_allclose(forest_variance(grown, other), np.diag(cov), **SOLVED)
    for a, b in zip(leave_out(grown), dense_left_out(grown, X), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)
    again = add_rows(grown, problem.new[:0], Measured(np.empty(0), None, None))
    np.testing.assert_array_equal(again.alpha, grown.alpha)


def test_rows_of_no_weight_add_nothing_but_their_number():
    problem = make_problem(n=60)
    found = problem.condition()
    grown = add_rows(found, problem.new, Measured(np.ones(30), None, np.zeros(30)))
    assert grown.n_rows == 90
    assert grown.forest.n_rows == 60
    np.testing.assert_array_equal(grown.alpha, found.alpha)


def test_rows_outside_the_box_are_not_added():
    problem = make_problem(n=60)
    with pytest.raises(ValueError, match="inside the box"):
        add_rows(problem.condition(), problem.new + 5.0, Measured(np.ones(30), None, None))


def test_tails_of_many_rows_are_learned_from_fewer(monkeypatch):
    monkeypatch.setattr(fitting, "FEW_ROWS", 50)
    problem = make_problem(n=300)
    all_rows = fit(problem).model
    monkeypatch.setattr(fitting, "MANY_ROWS", 200)
    monkeypatch.setattr(fitting, "SOME_ROWS", 150)
    some_rows = fit(problem).model
    np.testing.assert_array_equal(all_rows.alpha, some_rows.alpha)
    assert not np.array_equal(all_rows.tails.weight, some_rows.tails.weight)
    sizes = [m.tails.weight @ np.square(m.tails.factor) for m in (all_rows, some_rows)]
    assert 0.4 < sizes[0] / sizes[1] < 2.5
