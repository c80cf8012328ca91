"""Several targets that share a forest: against dense algebra, and against one target at a time."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    SMOOTH,
    dense_left_out,
    dense_posterior,
    make_problem,
    mean_at,
    own_kernel,
    solve_tightly,
    variance_at,
)
from tolerances import DENSE, DIFFERENCE, FITS, GRADIENT, ROUNDING, SOLVED, SUMMED, VALUE
from triegp import BitEncoder
from triegp.additive import conditioning, fitted
from triegp.additive.budget import Work, calibration_rows, plan_forest, solve_seconds
from triegp.additive.fitted import FittedForest
from triegp.additive.gradient import exact_gradient, held_scores
from triegp.additive.insertion import insert_into_forest
from triegp.additive.settings import Settings
from triegp.additive.start import joint_rows, row_noise
from triegp.additive.train import train_forest
from triegp.additive.variance import leave_out
from triegp.additive.walk import Walk, train_stage
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows

CASES = [(False, False), (True, False), (False, True), (True, True)]
N_TARGETS = 3


def shared(problem, seed=5):
    """The problem with three targets: its own, a related one and noise."""
    y, rng = problem.rows.y, np.random.default_rng(seed)
    more = [np.square(y) - 1.0, rng.standard_normal(y.size)]
    return replace(problem, rows=replace(problem.rows, y=np.stack([y, *more], axis=1)))


def alone(problem, column):
    """The problem with one of its targets."""
    return replace(problem, rows=problem.rows.target(column))


def each(problem):
    return [alone(problem, column) for column in range(N_TARGETS)]


def total_nll(problem, parameters=None):
    """By definition, summed over the targets."""
    return sum(one.nll(parameters) for one in each(problem))


def scattered(n=30, seed=1):
    """Rows that stand for several observations each, which differ."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 5, n).astype(float)
    y, scatter = rng.standard_normal((n, N_TARGETS)), rng.random((n, N_TARGETS))
    return Rows(y, None, weight, None, np.full(n, 0.3), None, scatter)


@pytest.fixture
def tight(monkeypatch):
    solve_tightly(monkeypatch)


# The likelihood


@pytest.mark.parametrize("smooth", [None, "dense"])
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_likelihood_is_the_dense_sum(weighted, known, smooth):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth=smooth)
    problem = shared(problem)
    nll, _ = exact_gradient(problem.data, problem.parameters, CpuEngine())
    assert nll == pytest.approx(total_nll(problem), rel=DENSE)


@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_gradient_is_that_of_the_dense_sum(weighted, known):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth="dense")
    problem = shared(problem)
    start, step = problem.parameters, 1e-5
    _, found = exact_gradient(problem.data, start, CpuEngine())

    def slope(change):
        return (total_nll(problem, change(step)) - total_nll(problem, change(-step))) / (2 * step)

    unit = np.zeros(start.phi[1].size)
    unit[3] = 1.0
    phi = slope(lambda h: replace(start, phi=(start.phi[0], start.phi[1] + h * unit, start.phi[2])))
    np.testing.assert_allclose(found.phi[1][3], phi, **DIFFERENCE)
    first = np.array([1.0, 0.0, 0.0])
    scale = slope(lambda h: replace(start, log_scale=start.log_scale + h * first))
    np.testing.assert_allclose(found.log_scale[0], scale, **DIFFERENCE)
    noise = slope(lambda h: replace(start, log_noise=start.log_noise + h))
    np.testing.assert_allclose(found.noise * start.noise, noise, **DIFFERENCE)
    own = start.smooth
    along = np.eye(own.lengthscale.size)[0]

    def longer(h):
        return replace(start, smooth=replace(own, lengthscale=own.lengthscale * np.exp(h * along)))

    length = slope(longer)
    np.testing.assert_allclose(found.log_lengthscale[0], length, **DIFFERENCE)
    larger = slope(lambda h: replace(start, smooth=own.rescaled(float(np.exp(h)))))
    np.testing.assert_allclose(found.log_smooth, larger, **DIFFERENCE)


@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_gradient_is_the_sum_over_the_targets(weighted, known):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth="dense")
    problem = shared(problem)
    if weighted:
        scatter = np.random.default_rng(2).random(problem.rows.y.shape)
        problem = replace(problem, rows=replace(problem.rows, scatter=scatter))
    given = (problem.parameters, CpuEngine())
    nll, found = exact_gradient(problem.data, *given)
    parts = [exact_gradient(one.data, *given) for one in each(problem)]
    assert nll == pytest.approx(sum(one for one, _ in parts), rel=DENSE)
    for name in ("log_scale", "noise", "log_lengthscale", "log_smooth"):
        total = sum(getattr(one, name) for _, one in parts)
        np.testing.assert_allclose(getattr(found, name), total, **GRADIENT)
    for t in range(3):
        np.testing.assert_allclose(found.phi[t], sum(one.phi[t] for _, one in parts), **GRADIENT)


def test_scores_of_some_rows_are_those_of_each_target():
    problem = shared(make_problem(n=40, n_trees=3, smooth="dense"))
    given = (problem.parameters, 15, CpuEngine())
    log_det, scores = held_scores(problem.data, *given)
    assert scores.shape == (15, N_TARGETS)
    for column, one in enumerate(each(problem)):
        own_log_det, own = held_scores(one.data, *given)
        assert log_det == pytest.approx(own_log_det, rel=DENSE)
        np.testing.assert_allclose(scores[:, [column]], own, **VALUE)


def test_what_weights_and_scatter_add_is_summed_over_the_targets():
    rows = scattered()
    parts = [rows.target(column) for column in range(N_TARGETS)]
    assert rows.constant == pytest.approx(sum(one.constant for one in parts), rel=ROUNDING)
    assert rows.within == pytest.approx(sum(one.within for one in parts), rel=ROUNDING)
    by_variance = np.random.default_rng(3).standard_normal((N_TARGETS, rows.n_rows))
    total = sum(one.noise_gradient(own) for one, own in zip(parts, by_variance, strict=True))
    np.testing.assert_allclose(rows.noise_gradient(by_variance.sum(axis=0)), total, rtol=ROUNDING)
    assert rows.count == parts[0].count


@pytest.mark.parametrize("n_held", [0, 12])
def test_looks_and_the_gain_of_a_smooth_part_are_means_over_the_targets(n_held):
    """With known noise, there is no scale that they share."""
    problem = shared(make_problem(n=40, n_trees=3, known=True, smooth="dense"))
    seen, held = np.split(np.arange(40), [40 - n_held])

    def walk(one):
        rng = np.random.default_rng(0)
        return Walk(one.data, one.parameters, seen, held, Settings(), CpuEngine(), rng)

    for ask in (Walk.look, Walk.smooth_gain):
        expected = np.mean([ask(walk(one)) for one in each(problem)])
        assert ask(walk(problem)) == pytest.approx(expected, rel=DENSE)


# Training


def steps_of(problem, n=40, n_held=0):
    every, run = np.arange(n), Run(np.random.default_rng(0), 1, Stopwatch())
    given = (every[: n - n_held], every[n - n_held :], Settings(max_iter=12), CpuEngine(), run)
    return train_stage(problem.data, problem.parameters, *given)


@pytest.mark.parametrize("n_held", [0, 10])
def test_training_on_equal_targets_is_training_on_one(n_held):
    problem = make_problem(n=40, n_trees=3, smooth="dense")
    four = np.repeat(problem.rows.y[:, None], 4, axis=1)  # sums of four are exact
    same = replace(problem, rows=replace(problem.rows, y=four))
    one, two = steps_of(problem, n_held=n_held), steps_of(same, n_held=n_held)
    np.testing.assert_allclose(two.nll_per_row, one.nll_per_row, **FITS)
    np.testing.assert_allclose(two.curve.nll[0], one.curve.nll[0], **FITS)
    for a, b in zip(one.parameters.phi, two.parameters.phi, strict=True):
        np.testing.assert_allclose(b, a, **FITS)
    assert two.parameters.log_noise == pytest.approx(one.parameters.log_noise, rel=1e-6)
    length = (part.parameters.smooth.lengthscale for part in (one, two))
    np.testing.assert_allclose(*length, **FITS)


def test_the_scale_is_that_of_all_targets():
    problem = shared(make_problem(n=40, n_trees=3, smooth="dense"))
    given = (np.arange(40), np.arange(0), Settings(), CpuEngine(), np.random.default_rng(0))
    walk = Walk(problem.data, problem.parameters, *given)
    walk.optimise_scale()
    variance = row_noise(problem.rows, problem.orders, problem.parameters.noise).variance
    dense = problem.kernel() + np.diag(variance)
    factor = np.sum(problem.rows.y * np.linalg.solve(dense, problem.rows.y)) / (40 * N_TARGETS)
    assert walk.parameters.noise == pytest.approx(factor * problem.parameters.noise, rel=DENSE)


# Conditioning


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize(("weighted", "known"), CASES)
@pytest.mark.usefixtures("tight")
def test_predictions_are_the_dense_ones(weighted, known, smooth):
    problem = make_problem(n=60, d=3, weighted=weighted, known=known, smooth=smooth)
    problem = shared(problem)
    found = problem.condition()
    assert found.alpha.shape == found.rows.y.shape == (60, N_TARGETS)
    assert found.variance.shape == (60,)
    dense = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    np.testing.assert_allclose(found.alpha, np.linalg.solve(dense, problem.rows.y), **SOLVED)
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean_at(found, problem.new), mean, **SOLVED)
    few = mean_at(found, problem.new[:7])  # another route: all trees at once
    np.testing.assert_allclose(few, mean[:7], **SOLVED)
    np.testing.assert_allclose(variance_at(found, problem.new), np.diag(cov), **SOLVED)
    left, var = leave_out(found)
    for column in range(N_TARGETS):
        one = replace(found, rows=found.rows.target(column))
        expected = dense_left_out(one, problem.X)
        np.testing.assert_allclose(left[:, column], expected[0], **SOLVED)
        np.testing.assert_allclose(var, expected[1], **SOLVED)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_the_scale_is_the_most_likely_one_of_all_targets(weighted):
    problem = shared(make_problem(weighted=weighted, smooth="dense"))
    found = problem.condition()
    variance = row_noise(problem.rows, problem.orders, problem.parameters.noise).variance
    dense = problem.kernel() + np.diag(variance)
    square = np.sum(problem.rows.y * np.linalg.solve(dense, problem.rows.y))
    factor = square / (N_TARGETS * problem.rows.count)
    assert found.noise == pytest.approx(factor * problem.parameters.noise, rel=SOLVED["rtol"])


@pytest.mark.usefixtures("tight")
def test_many_rows_are_conditioned_on_from_some():
    """Under a time budget, the solve starts from the solution on some of the rows."""
    problem = shared(make_problem(n=600, smooth=None))
    limits = conditioning.Limits(Stopwatch(), 0.0, 200)
    usual, hurried = problem.condition(), problem.condition(limits=limits)
    np.testing.assert_allclose(hurried.alpha, usual.alpha, atol=1e-3 * np.abs(usual.alpha).max())


@pytest.mark.parametrize("exact", [True, False])
def test_evidence_is_the_dense_one_of_each_target(exact, monkeypatch):
    problem = shared(make_problem(n=60, weighted=True, known=True, smooth="inducing"))
    found = problem.condition()
    if not exact:
        monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 10)
    whole = FittedForest(found, (), 0, False)
    for column, one in enumerate(each(problem)):
        assert whole.evidence[column].exact == exact
        error = whole.evidence[column].error
        assert (error == 0.0) == exact
        assert whole.log_evidence(column) == pytest.approx(-one.nll(), rel=SUMMED, abs=5 * error)
    assert len({one.log_det for one in whole.evidence}) == 1


# Adding rows


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_adding_rows_is_conditioning_on_all(weighted, smooth):
    problem = shared(make_problem(n=30, smooth=smooth))
    found, rng = problem.condition(), np.random.default_rng(7)
    weight = rng.integers(0, 3, 30).astype(float) if weighted else None
    more = Rows(rng.standard_normal((30, N_TARGETS)), rng.uniform(0, 0.3, 30), weight, problem.new)
    grown = insert_into_forest(found, more)
    kept = np.ones(30, bool) if weight is None else weight > 0
    X, y = np.vstack([problem.X, problem.new[kept]]), np.concatenate([problem.rows.y, more.y[kept]])
    dense = own_kernel(found, X, X) + np.diag(grown.variance)
    np.testing.assert_allclose(grown.alpha, np.linalg.solve(dense, y), **SOLVED)
    again = insert_into_forest(grown, more.select(np.empty(0, int)))
    np.testing.assert_array_equal(again.alpha, grown.alpha)


@pytest.mark.usefixtures("tight")
def test_one_row_is_added_by_a_correction(monkeypatch):
    """It is the full solve if all rows are near."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    monkeypatch.setattr("triegp.additive.nearby.SINGLE_NOISE", np.inf)
    problem = shared(make_problem(n=120, smooth="inducing"))
    found, y = problem.condition(), np.array([[1.0, -2.0, 0.5]])
    grown = insert_into_forest(found, Rows(y, None, None, problem.new[[3]]))
    assert grown.n_pending == 1
    X = np.vstack([problem.X, problem.new[[3]]])
    dense = own_kernel(found, X, X) + np.diag(grown.variance)
    expected = np.linalg.solve(dense, np.concatenate([problem.rows.y, y]))
    np.testing.assert_allclose(grown.alpha, expected, **SOLVED)


# The interface


@pytest.fixture
def both(monkeypatch):
    """A model of three targets, and three of one target each; known noise: scales stay."""
    solve_tightly(monkeypatch)
    problem = shared(make_problem(n=60, known=True, smooth="inducing"))
    parts = [FittedForest(one.condition(), (), 0, False) for one in each(problem)]
    return problem, FittedForest(problem.condition(), (), 0, False), parts


def test_each_target_is_predicted_as_by_a_model_of_its_own(both):
    problem, whole, parts = both
    new = np.vstack([problem.new, problem.X[:5]])  # training rows stand apart
    points = whole.read(new, var=True)
    names = np.arange(len(new)).astype(np.uint64)
    groups = np.array([[0, 4], [33, 2]])
    for column, one in enumerate(parts):
        own = one.read(new, var=True)
        for latent in (False, True):
            a = whole.predict(points, column, var=True, latent=latent)
            b = one.predict(own, 0, var=True, latent=latent)
            np.testing.assert_allclose(a.mean(), b.mean(), **SOLVED)
            np.testing.assert_allclose(a.var(), b.var(), **SOLVED)
            a = whole.predict_covariance(points, column, latent=latent)
            b = one.predict_covariance(own, 0, latent=latent)
            for left, right in zip(a, b, strict=True):
                np.testing.assert_allclose(left, right, **SOLVED)
            seeded = (np.random.default_rng(4) for _ in range(2))
            a = whole.sample(points, column, 3, next(seeded), latent=latent)
            b = one.sample(own, 0, 3, next(seeded), latent=latent)
            np.testing.assert_allclose(a, b, **SOLVED)
        a = whole.group_covariance(points, column, groups)
        b = one.group_covariance(own, 0, groups)
        for left, right in zip(a, b, strict=True):
            np.testing.assert_allclose(left, right, **SOLVED)
        seeds = np.array([3, 9], np.uint64)
        a = whole.evaluate_draws(points, column, whole.prepare_draws(column, seeds), names)
        b = one.evaluate_draws(own, 0, one.prepare_draws(0, seeds), names)
        np.testing.assert_allclose(a, b, **SOLVED)
        a, b = whole.leave_one_out(column), one.leave_one_out(0)
        np.testing.assert_allclose(a.mean(), b.mean(), **SOLVED)
        np.testing.assert_allclose(a.var(), b.var(), **SOLVED)
        a, b = whole.residuals(column), one.residuals(0)
        np.testing.assert_allclose(a.mean, b.mean, **SOLVED)
        np.testing.assert_array_equal(a.y, b.y)
        np.testing.assert_array_equal(whole.observed(column)[0], one.observed(0)[0])
        assert whole.log_evidence(column) == pytest.approx(one.log_evidence(0), rel=SUMMED)
        assert whole.noise(column) == one.noise(0)
    assert whole.n_targets == N_TARGETS
    assert whole.n_observations == parts[0].n_observations


def test_what_targets_share_is_computed_once(both, monkeypatch):
    problem, whole, _ = both
    count = {}

    def counted(name):
        real = getattr(fitted, name)

        def work(*given, **more):
            count[name] = count.get(name, 0) + 1
            return real(*given, **more)

        monkeypatch.setattr(fitted, name, work)

    names = ("forest_mean", "forest_variance", "forest_covariance", "stand_apart")
    for name in names:
        counted(name)
    points = whole.read(problem.new, var=True)
    told = [whole.predict(points, c, var=True, latent=False) for c in range(N_TARGETS)]
    for column in range(N_TARGETS):
        before = told[column].mean().copy()
        told[column].means[:] = np.nan  # what a caller does to its arrays changes nothing
        told[column].variances[:] = np.nan
        cov = whole.predict_covariance(points, column, latent=True)[1]
        cov[:] = np.nan
        again = whole.predict(points, column, var=True, latent=True)
        np.testing.assert_array_equal(again.mean(), before)
        assert np.isfinite(again.var()).all()
    assert count == dict.fromkeys(names, 1)


def test_left_out_variances_are_computed_once(both, monkeypatch):
    _, whole, _ = both
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 10)
    calls = []
    monkeypatch.setattr(
        "triegp.additive.model.left_out_variance",
        lambda near, **more: calls.append(1) or np.full(60, 0.2),
    )
    for column in range(N_TARGETS):
        whole.residuals(column)
        whole.leave_one_out(column)
    assert len(calls) == 1


def test_rows_are_checked_and_inserted_for_all_targets(both):
    problem, whole, parts = both
    y = np.random.default_rng(8).standard_normal((30, N_TARGETS))
    more = Rows(y, np.full((30, N_TARGETS), 0.1), None, problem.new)
    whole.check(more)
    grown = whole.insert(more)
    for column, one in enumerate(parts):
        own = one.insert(more.targets([column]))
        np.testing.assert_allclose(grown.model.alpha[:, column], own.model.alpha, **SOLVED)


def test_known_noise_must_be_the_same_for_all_targets(both):
    problem, whole, _ = both
    known = np.full((30, N_TARGETS), 0.1)
    known[4, 1] = 0.2
    rows = Rows(np.zeros((30, N_TARGETS)), known, None, problem.new)
    for ask in (whole.check, whole.insert, joint_rows):
        with pytest.raises(ValueError, match=r"known_noise .* \[0.1, 0.2, 0.1\] at row 4"):
            ask(rows)


def test_one_target_is_a_vector():
    rows = Rows(np.ones((5, 1)), np.ones((5, 1)))
    assert joint_rows(rows).y.shape == joint_rows(rows).known_noise.shape == (5,)
    both = joint_rows(Rows(np.ones((5, 2)), np.ones((5, 2))))
    assert both.y.shape == (5, 2)
    assert both.known_noise.shape == (5,)


# Training as a whole


@pytest.mark.parametrize("init", ["even", "trained"])
def test_targets_are_trained_together(init):
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    y = np.stack([np.sin(5 * X[:, 0]), X[:, 1] ** 2, X.sum(axis=1)], axis=1)
    y = (y - y.mean(axis=0)) / y.std(axis=0) + 0.1 * rng.standard_normal(y.shape)
    settings = Settings(n_trees=4, max_iter=5, init=init)
    run = Run(np.random.default_rng(1), 1, Stopwatch())
    trained = train_forest([BitEncoder(precision=4).fit(X)], Rows(y, X=X), settings, run)
    assert trained.fitted.n_targets == len(trained.residuals) == 3
    points = trained.fitted.read(X, var=True)
    for column, left in enumerate(trained.residuals):
        np.testing.assert_array_equal(left.y, y[:, column])
        mean = trained.fitted.predict(points, column, var=False, latent=True).mean()
        assert np.mean(np.square(mean - y[:, column])) < 0.1
    assert trained.residuals[0].var is trained.residuals[1].var


def test_the_plan_counts_the_targets():
    work = Work(10_000, 64, True, 1e-8)
    many = replace(work, n_targets=7)
    assert solve_seconds(many, 1.0) > solve_seconds(work, 1.0)
    one, ten = (plan_forest(1e4, replace(work, n_targets=k), True) for k in (1, 10))
    assert ten.tails == pytest.approx(10 * one.tails)
    assert calibration_rows(3.0) == 30_000
    assert calibration_rows(6.6, 2) == 33_000
    assert [calibration_rows(left, 3) for left in (0.0, 1e9)] == [20_000, 40_000]


def test_the_oracle_agrees_that_targets_are_independent():
    """The sum of the nll is that of all targets as one vector with a block-diagonal covariance."""
    problem = shared(make_problem(n=20, n_trees=2))
    variance = row_noise(problem.rows, problem.orders, problem.parameters.noise).variance
    dense = problem.kernel() + np.diag(variance)
    stacked = oracle.nll(np.kron(np.eye(N_TARGETS), dense), problem.rows.y.T.ravel())
    nll, _ = exact_gradient(problem.data, problem.parameters, CpuEngine())
    np.testing.assert_allclose(nll, stacked, **VALUE)
