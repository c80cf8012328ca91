"""Training a forest from rows to predictions."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    assert_sampled,
    dense_left_out,
    dense_posterior,
    make_problem,
    mean_at,
    variance_at,
)
from tolerances import SOLVED, USUAL_SOLVE
from triegp.additive import train as train_module
from triegp.additive.settings import Settings
from triegp.additive.train import train_forest
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


def train(problem, rows=None, n_threads=2, init="even"):
    encoder = problem.encoders[0].with_shift(None)
    settings = Settings(
        n_trees=4,
        init=init,
        slope=1.0,
        max_iter=4,
        train_rows=50,
        rank=40,
        variance="samples",
        variance_error=0.3,
    )
    if rows is None:
        rows = replace(problem.rows, y=problem.rows.y[:, None], X=problem.X)
    run = Run(np.random.default_rng(0), n_threads, Stopwatch())
    return train_forest([encoder], rows, settings, run)


@pytest.mark.parametrize("init", ["even", "random", "trained"])
def test_a_trained_forest_predicts_what_its_kernel_says(init, monkeypatch):
    monkeypatch.setattr(train_module, "INIT_MEMBERS", 3)
    problem = make_problem(n=99)
    trained = train(problem, init=init)
    found = trained.fitted.model
    assert trained.fitted.n_steps == 4 + 1  # on 50 rows, and on all
    assert len(trained.fitted.nll_per_row) == 2 + 2
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, atol=USUAL_SOLVE)
    assert_sampled(variance_at(found, problem.new), np.diag(cov), found.n_samples)
    (residuals,) = trained.residuals
    left, var = dense_left_out(found, problem.X)
    np.testing.assert_allclose(residuals.mean, left, atol=USUAL_SOLVE)
    np.testing.assert_allclose(residuals.var, var + found.rows.noise, rtol=USUAL_SOLVE)
    np.testing.assert_array_equal(residuals.rows, np.arange(99))


def test_rows_of_weight_zero_do_not_count():
    problem = make_problem(n=99)
    X = np.vstack([problem.X, problem.new])
    weight = np.append(np.ones(99), np.zeros(30))
    rows = Rows(np.append(problem.rows.y, np.full(30, 1e3))[:, None], None, weight, X)
    first, second = train(problem), train(problem, rows)
    one, two = first.fitted.model, second.fitted.model
    np.testing.assert_array_equal(first.residuals[0].rows, second.residuals[0].rows)
    np.testing.assert_array_equal(two.present, weight > 0)
    np.testing.assert_allclose(two.alpha, one.alpha, **SOLVED)
    np.testing.assert_allclose(
        variance_at(two, problem.new), variance_at(one, problem.new), **SOLVED
    )


def test_training_a_forest_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=99)
    trained = [train(problem, n_threads=k) for k in (1, 3)]
    one, two = (part.fitted.model for part in trained)
    np.testing.assert_array_equal(one.alpha, two.alpha)
    np.testing.assert_array_equal(*(part.residuals[0].mean for part in trained))
    np.testing.assert_array_equal(variance_at(one, problem.new), variance_at(two, problem.new))


def test_residuals_of_many_rows_are_those_of_fewer(monkeypatch):
    monkeypatch.setattr(train_module, "FEW_ROWS", 50)
    problem = make_problem(n=300)
    weight = np.append(np.zeros(4), np.ones(296))
    rows = Rows(problem.rows.y[:, None], None, weight, problem.X)
    every = train(problem, rows)
    monkeypatch.setattr(train_module, "MANY_ROWS", 200)
    monkeypatch.setattr(train_module, "SOME_ROWS", 150)
    some = train(problem, rows)
    np.testing.assert_array_equal(every.fitted.model.alpha, some.fitted.model.alpha)
    (all_left,), (left,) = every.residuals, some.residuals
    np.testing.assert_array_equal(all_left.rows, np.arange(4, 300))
    assert left.rows.size == np.unique(left.rows).size == 150
    assert 0 < left.fresh.sum() == all_left.fresh.sum()
    # Rows are those of the model, and what was held out is the same.
    np.testing.assert_array_equal(left.y, problem.rows.y[left.rows])
    fresh = [np.sort(part.rows[part.fresh]) for part in (left, all_left)]
    np.testing.assert_array_equal(*fresh)
    sizes = [np.mean(np.square(part.y - part.mean) / part.var) for part in (all_left, left)]
    assert 0.4 < sizes[0] / sizes[1] < 2.5
