"""Training from rows to predictions."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import (
    dense_posterior,
    make_problem,
    mean_at,
    own_kernel,
    solve_tightly,
    variance_at,
)
from tolerances import DENSE, SINGLE, SOLVED, USUAL_SOLVE
from triegp.additive import singles as singles_module
from triegp.additive import train as train_module
from triegp.additive.conditioning import smooth_sizes
from triegp.additive.forest import multiply
from triegp.additive.model import tolerance_for
from triegp.additive.settings import Settings
from triegp.additive.train import train_forest
from triegp.models.folds import find_folds
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.smooth import KERNELS
from triegp.tree.rows import Rows


def train(problem, rows=None, n_threads=2, run=None, **settings):
    encoder = problem.encoders[0].with_shift(None)
    given = {"n_trees": 4, "slope": 1.0, "max_iter": 4, "smooth": True}
    if rows is None:
        rows = replace(problem.rows, y=problem.rows.y[:, None], X=problem.X)
    run = run or Run(np.random.default_rng(0), n_threads, Stopwatch())
    return train_forest([encoder], rows, Settings(**(given | settings)), run)


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("init", ["even", "random", "trained"])
def test_a_trained_model_predicts_what_its_kernel_says(init, smooth, monkeypatch):
    monkeypatch.setattr(singles_module, "N_SINGLES", 3)
    problem = make_problem(n=99)
    trained = train(problem, init=init, smooth=smooth)
    found = trained.fitted.model
    assert (found.smooth is not None) == smooth
    assert trained.fitted.n_steps == 4
    assert len(trained.fitted.nll_per_row) == 5  # before the first step, and after each
    assert found.residual <= tolerance_for(found.rows)
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, atol=USUAL_SOLVE)
    for kind in ("nearby", "exact"):
        var = variance_at(found, problem.new, kind)
        np.testing.assert_allclose(var, np.diag(cov), **SINGLE)
    (residuals,) = trained.residuals
    cov = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    for fold in find_folds(99):
        rest = np.setdiff1d(np.arange(99), fold)
        weights = np.linalg.solve(cov[np.ix_(rest, rest)], cov[np.ix_(rest, fold)])
        mean, var = weights.T @ found.rows.y[rest], cov[np.ix_(fold, fold)]
        var = np.diag(var - weights.T @ cov[np.ix_(rest, fold)])
        np.testing.assert_allclose(residuals.mean[fold], mean, atol=USUAL_SOLVE)
        np.testing.assert_allclose(residuals.var[fold], var, rtol=USUAL_SOLVE)
    np.testing.assert_array_equal(residuals.rows, np.arange(99))
    assert not residuals.fresh.any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_can_be_trained(kernel):
    problem = make_problem(n=60)
    found = train(problem, kernel=kernel).fitted.model
    assert found.smooth.kernel.name == kernel
    mean, _ = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, atol=USUAL_SOLVE)


@pytest.mark.parametrize("smooth", [True, False])
def test_rows_of_weight_zero_do_not_count(smooth, monkeypatch):
    solve_tightly(monkeypatch)
    problem = make_problem(n=99)
    X = np.vstack([problem.X, problem.new])
    weight = np.append(np.ones(99), np.zeros(30))
    rows = Rows(np.append(problem.rows.y, np.full(30, 1e3))[:, None], None, weight, X)
    first, second = train(problem, smooth=smooth), train(problem, rows, smooth=smooth)
    one, two = first.fitted.model, second.fitted.model
    np.testing.assert_array_equal(first.residuals[0].rows, second.residuals[0].rows)
    np.testing.assert_array_equal(two.present, weight > 0)
    np.testing.assert_allclose(two.alpha, one.alpha, **SOLVED)
    np.testing.assert_allclose(
        variance_at(two, problem.new), variance_at(one, problem.new), **SOLVED
    )


def test_training_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=99)
    trained = [train(problem, n_threads=k) for k in (1, 3)]
    one, two = (part.fitted.model for part in trained)
    np.testing.assert_array_equal(one.alpha, two.alpha)
    np.testing.assert_array_equal(*(part.residuals[0].mean for part in trained))
    for kind in ("nearby", "exact"):
        np.testing.assert_array_equal(
            variance_at(one, problem.new, kind), variance_at(two, problem.new, kind)
        )


def test_residuals_of_many_rows_are_those_of_fewer(monkeypatch):
    monkeypatch.setattr("triegp.models.folds.FEW_ROWS", 50)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    problem = make_problem(n=300)
    weight = np.append(np.zeros(4), np.ones(296))
    rows = Rows(problem.rows.y[:, None], None, weight, problem.X)
    every = train(problem, rows)
    monkeypatch.setattr(train_module, "calibration_rows", lambda left, n_targets: 150)
    some = train(problem, rows)
    np.testing.assert_array_equal(every.fitted.model.alpha, some.fitted.model.alpha)
    (all_left,), (left,) = every.residuals, some.residuals
    np.testing.assert_array_equal(all_left.rows, np.arange(4, 300))
    assert 150 <= left.rows.size == np.unique(left.rows).size < 296
    assert left.fresh.sum() == all_left.fresh.sum() == 296 // 5
    # Rows are those of the model, and what was held out is the same.
    np.testing.assert_array_equal(left.y, problem.rows.y[left.rows])
    fresh = [np.sort(part.rows[part.fresh]) for part in (left, all_left)]
    np.testing.assert_array_equal(*fresh)
    same = np.isin(all_left.rows, left.rows)
    for name in ("mean", "var"):
        np.testing.assert_array_equal(getattr(left, name), getattr(all_left, name)[same])


def test_held_out_rows_are_not_trained_on(monkeypatch):
    """Targets of held-out rows do not move the parameters, except for the choice of the best."""
    monkeypatch.setattr("triegp.models.folds.FEW_ROWS", 50)
    problem = make_problem(n=200)
    (residuals,) = train(problem).residuals
    held = residuals.rows[residuals.fresh]
    seen = []
    real = train_module.train_stage

    def note(data, parameters, own, out, *given):
        seen.append((own, out))
        return real(data, parameters, own, out, *given)

    monkeypatch.setattr(train_module, "train_stage", note)
    train(problem)
    ((own, out),) = seen
    np.testing.assert_array_equal(np.sort(out), np.sort(held))
    np.testing.assert_array_equal(np.sort(np.append(own, out)), np.arange(200))


# The smooth part is kept if it helps


def set_gain(monkeypatch, gain):
    """Train as ever, but report this gain of the smooth part."""
    real = train_module.train_stage
    monkeypatch.setattr(
        train_module, "train_stage", lambda *given: replace(real(*given), smooth_gain=gain)
    )


@pytest.mark.parametrize(
    ("smooth", "gain", "kept"),
    [("auto", 0.1, True), ("auto", 1e-4, False), ("auto", -1.0, False), (True, -1.0, True)],
)
def test_a_smooth_part_that_gains_nothing_is_dropped(smooth, gain, kept, monkeypatch):
    set_gain(monkeypatch, gain)
    problem = make_problem(n=60)
    found = train(problem, smooth=smooth).fitted.model
    assert (found.smooth is not None) == kept
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, atol=USUAL_SOLVE)
    np.testing.assert_allclose(variance_at(found, problem.new), np.diag(cov), **SINGLE)


@pytest.mark.parametrize("smooth", ["auto", True])
def test_a_smooth_part_without_a_test_is_kept(smooth, monkeypatch):
    set_gain(monkeypatch, None)
    run = Run(np.random.default_rng(0), 2, Stopwatch())
    found = train(make_problem(n=60), run=run, smooth=smooth).fitted.model
    assert found.smooth is not None
    assert run.left_out == ([train_module.NO_TEST] if smooth == "auto" else [])


def test_a_smooth_function_keeps_it_and_steps_drop_it():
    rng = np.random.default_rng(0)
    problem = make_problem(n=300, precision=8)
    X = problem.X
    smooth = np.sin(3.0 * X[:, 0] + 2.0 * X[:, 1])
    cells = rng.standard_normal((16, 16))[tuple((16 * X).astype(int).T)]
    kept = []
    for y in (smooth, cells):
        y = (y - y.mean()) / y.std() + 0.05 * rng.standard_normal(300)
        rows = Rows(y[:, None], None, None, X)
        found = train(problem, rows, smooth="auto", max_iter=60, n_trees=8)
        kept.append(found.fitted.model.smooth)
    assert kept[0] is not None
    assert kept[1] is None or kept[1].kernel.scale < kept[0].kernel.scale


def test_without_features_that_vary_there_is_no_smooth_part():
    problem = make_problem(n=40)
    rows = Rows(problem.rows.y[:, None], None, None, np.full((40, 2), 0.5))
    found = train(problem, rows).fitted.model
    assert found.smooth is None
    assert found.inputs.shape == (40, 0)
    assert np.isfinite(variance_at(found, np.full((3, 2), 0.5), "nearby")).all()


# Sizes


def test_many_rows_have_fewer_neighbours():
    assert smooth_sizes(1) == smooth_sizes(32_768) == (256, 512)
    assert smooth_sizes(262_144) == (256, 64)
    sizes = [smooth_sizes(n) for n in (32_768, 100_000, 10**6, 10**7)]
    assert sizes == sorted(sizes, reverse=True)


def test_the_solve_ends_where_its_error_is_small_beside_the_noise():
    def rows(n, noise):
        return Rows(np.zeros(n), noise=np.full(n, noise))

    assert tolerance_for(rows(20_000, 0.25)) == 1e-5
    assert tolerance_for(rows(20_001, 0.25)) == 1e-2
    assert tolerance_for(rows(30_000, 1e-4)) == pytest.approx(2e-4)
    assert tolerance_for(rows(30_000, 1e-9)) == 1e-5


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_held_out_rows_of_many_are_predicted_by_the_others(n_targets, smooth, monkeypatch):
    monkeypatch.setattr("triegp.models.folds.FEW_ROWS", 50)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    solve_tightly(monkeypatch)
    problem = make_problem(n=99)
    y = np.stack([problem.rows.y, problem.rows.y**2], axis=1)[:, :n_targets]
    trained = train(problem, Rows(y, X=problem.X), smooth=smooth)
    model, residuals = trained.fitted.model, trained.residuals
    cov = multiply(model.forest, np.eye(99)) + np.diag(model.variance)
    held, rest = np.split(np.arange(99), [80])[::-1]
    weights = np.linalg.solve(cov[np.ix_(rest, rest)], cov[np.ix_(rest, held)])
    for left, target in zip(residuals, y.T, strict=True):
        assert left.alone
        np.testing.assert_array_equal(left.fresh, np.arange(99) >= 80)
        np.testing.assert_allclose(left.mean[held], weights.T @ target[rest], atol=USUAL_SOLVE)


def test_few_rows_are_left_out_with_their_folds(monkeypatch):
    monkeypatch.setattr("triegp.models.folds.FEW_ROWS", 50)
    problem = make_problem(n=99)
    trained = train(problem, Rows(problem.rows.y[:, None], X=problem.X))
    model, (left,) = trained.fitted.model, trained.residuals
    cov = multiply(model.forest, np.eye(99)) + np.diag(model.variance)
    for fold in find_folds(99):
        rest = np.setdiff1d(np.arange(99), fold)
        weights = np.linalg.solve(cov[np.ix_(rest, rest)], cov[np.ix_(rest, fold)])
        np.testing.assert_allclose(left.mean[fold], weights.T @ problem.rows.y[rest], atol=DENSE)
        inner = cov[np.ix_(fold, fold)] - weights.T @ cov[np.ix_(rest, fold)]
        np.testing.assert_allclose(left.var[fold], np.diag(inner), rtol=DENSE)
    assert not left.alone
