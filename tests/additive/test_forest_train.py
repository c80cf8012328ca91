"""Training a forest from rows to predictions."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    assert_sampled,
    dense_posterior,
    make_problem,
    mean_at,
    variance_at,
)
from tolerances import SOLVED, USUAL_SOLVE
from triegp.additive import train as train_module
from triegp.additive.settings import Settings
from triegp.additive.tails import FACTORS
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
    return train_forest([encoder], rows, settings, run).fitted


@pytest.mark.parametrize("init", ["even", "random", "trained"])
def test_a_trained_forest_predicts_what_its_kernel_says(init, monkeypatch):
    monkeypatch.setattr(train_module, "INIT_MEMBERS", 3)
    problem = make_problem(n=99)
    trained = train(problem, init=init)
    found = trained.model
    assert trained.n_steps == 4 + 1  # on 50 rows, and on all
    assert len(trained.nll_per_row) == 2 + 2
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, atol=USUAL_SOLVE)
    assert_sampled(variance_at(found, problem.new), np.diag(cov), found.n_samples)
    assert found.tails.weight.size == FACTORS.size


def test_rows_of_weight_zero_do_not_count():
    problem = make_problem(n=99)
    X = np.vstack([problem.X, problem.new])
    weight = np.append(np.ones(99), np.zeros(30))
    rows = Rows(np.append(problem.rows.y, np.full(30, 1e3))[:, None], None, weight, X)
    one, two = train(problem).model, train(problem, rows).model
    np.testing.assert_array_equal(two.present, weight > 0)
    np.testing.assert_allclose(two.alpha, one.alpha, **SOLVED)
    np.testing.assert_allclose(
        variance_at(two, problem.new), variance_at(one, problem.new), **SOLVED
    )


def test_training_a_forest_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=99)
    one, two = (train(problem, n_threads=k).model for k in (1, 3))
    np.testing.assert_array_equal(one.alpha, two.alpha)
    np.testing.assert_array_equal(one.tails.weight, two.tails.weight)
    np.testing.assert_array_equal(variance_at(one, problem.new), variance_at(two, problem.new))


def test_tails_of_many_rows_are_learned_from_fewer(monkeypatch):
    monkeypatch.setattr(train_module, "FEW_ROWS", 50)
    problem = make_problem(n=300)
    all_rows = train(problem).model
    monkeypatch.setattr(train_module, "MANY_ROWS", 200)
    monkeypatch.setattr(train_module, "SOME_ROWS", 150)
    some_rows = train(problem).model
    np.testing.assert_array_equal(all_rows.alpha, some_rows.alpha)
    assert not np.array_equal(all_rows.tails.weight, some_rows.tails.weight)
    sizes = [m.tails.weight @ np.square(m.tails.factor) for m in (all_rows, some_rows)]
    assert 0.4 < sizes[0] / sizes[1] < 2.5
