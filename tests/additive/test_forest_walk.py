"""Training a forest: what it finds, when it stops, that it repeats."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import copies_of, make_problem
from tolerances import SUMMED, WEIGHTED_TRAINING_NATS, WEIGHTED_TRAINING_SHARE
from triegp.additive import forest_level_products, walk
from triegp.additive.forest import build_forest
from triegp.additive.settings import Settings
from triegp.additive.start import Parameters, start_random
from triegp.additive.walk import train_stage
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows


def train(problem, watch=None, progress=silent, n_steps=12, n_threads=0, **settings):
    return train_stage(
        problem.data,
        problem.parameters,
        n_steps,
        Settings(**{"check_every": 4, "rank": 60, **settings}),
        CpuEngine(n_threads),
        Run(np.random.default_rng(0), n_threads, watch or Stopwatch(), progress),
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
def test_training_returns_the_best_it_saw(rate, known):
    problem = make_problem(n=150, known=known)
    found = train(problem, rate=rate)
    nll = problem.nll(found.parameters)
    assert nll == pytest.approx(150 * min(found.nll_per_row), rel=SUMMED)
    assert nll <= problem.nll() + 1e-6
    if rate == 0.1:
        assert nll < problem.nll() - 5.0
        assert not found.diverged
        assert found.n_steps == 12
        assert len(found.nll_per_row) == 4


@pytest.mark.parametrize("rate", [1.0, 5.0, 50.0])
@pytest.mark.parametrize("n", [60, 250])
def test_training_too_fast_is_no_worse_than_its_start(rate, n):
    problem = make_problem(n=n)
    found = train(problem, rate=rate, tree_rate=rate, n_steps=60, check_every=20)
    assert np.isfinite(found.nll_per_row[0])
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6
    if found.nll_per_row[-1] >= found.nll_per_row[0]:
        assert found.diverged


@pytest.mark.parametrize("noise", [1e-3, 0.3, 10.0])
def test_training_with_weights_is_training_with_copies(noise):
    problem = make_problem(n=60, weighted=True, noise=noise)
    found = train(problem, n_steps=24)
    copies = np.repeat(np.arange(60), copies_of(problem.rows))
    rows = Rows(problem.rows.y[copies], None, None)
    other = train(replace(problem, X=problem.X[copies], rows=rows), n_steps=24)
    nll, copied = problem.nll(found.parameters), problem.nll(other.parameters)
    assert nll <= problem.nll() + 1e-6
    assert not found.diverged
    assert nll == pytest.approx(
        copied, abs=WEIGHTED_TRAINING_SHARE * abs(problem.nll() - copied) + WEIGHTED_TRAINING_NATS
    )


def test_training_finds_the_feature_that_matters():
    rng = np.random.default_rng(0)
    problem = make_problem(n=200, d=3, n_trees=4)
    y = np.sign(problem.X[:, 1] - 0.4) + 0.1 * rng.standard_normal(200)
    problem = replace(problem, rows=Rows(y - y.mean(), None, None))
    found = train(problem, n_steps=40, check_every=10)
    for phi, features in zip(found.parameters.phi, problem.features, strict=True):
        means = [phi[features == j].mean() for j in range(3)]
        assert np.argmax(means) == 1


def test_training_stops_when_asked():
    problem = make_problem(n=60)
    watch = Stopwatch()
    watch.halt()
    found = train(problem, watch)
    assert found.stopped
    assert found.n_steps == 0
    assert len(found.nll_per_row) == 1
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6

    watch, seen = Stopwatch(), []

    def stop_at_three(what, done, total):
        seen.append((what, done, total))
        if done == 3:
            watch.halt()

    found = train(problem, watch, stop_at_three)
    assert found.stopped
    assert found.n_steps == 3
    assert seen == [("steps", k, 12) for k in (1, 2, 3)]
    assert len(found.nll_per_row) == 2  # it is looked at once more
    assert problem.nll(found.parameters) == pytest.approx(60 * min(found.nll_per_row), rel=SUMMED)


@pytest.mark.parametrize("quick", [True, False])
def test_ctrl_c_keeps_the_last_step(monkeypatch, quick):
    """Not quick: the likelihood is not evaluated again, and the last step is taken as the best."""
    monkeypatch.setattr(walk, "LOOK_SECONDS", np.inf if quick else -1.0)
    problem, watch = make_problem(n=150), Stopwatch()

    def press(what, done, total):
        if done == 7:
            watch.interrupt()

    found = train(problem, watch, press, check_every=50)
    assert found.stopped
    assert found.n_steps == 7
    assert len(found.nll_per_row) == (2 if quick else 1)
    assert problem.nll(found.parameters) < problem.nll() - 5.0


def test_a_step_is_not_taken_if_the_watch_stops_its_solve(monkeypatch):
    problem, watch = make_problem(n=150, noise=1e-4), Stopwatch()
    real, calls = walk.solve_held, []

    def pressed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:  # the scale takes the first
            watch.interrupt()
        return real(*args, **kwargs)

    monkeypatch.setattr(walk, "solve_held", pressed)
    found = train(problem, watch, rank=2, solve_tol=1e-9)
    assert found.stopped
    assert not found.diverged
    assert found.n_steps <= 2
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6


def test_training_gives_up_where_solves_fail(monkeypatch):
    monkeypatch.setattr(walk, "MAX_SOLVE_STEPS", 1)
    problem = make_problem(n=150, noise=1e-4)
    found = train(problem, rank=2, solve_tol=1e-3)
    assert found.diverged
    assert found.n_steps < 12
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6


def test_training_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=100)
    one, two = (
        train(problem, n_steps=6, n_threads=k, check_every=50, rank=50).parameters for k in (1, 3)
    )
    np.testing.assert_array_equal(np.concatenate(one.phi), np.concatenate(two.phi))
    np.testing.assert_array_equal(one.log_scale, two.log_scale)
    assert one.log_noise == two.log_noise


def test_a_forest_built_from_another_is_the_same():
    problem = make_problem()
    engine, rng = CpuEngine(), np.random.default_rng(0)
    before = build_forest(problem.codes, problem.orders, engine)
    phi = tuple(start_random(e, rng) for e in problem.encoders)
    orders = Parameters((problem.parameters.phi[0], *phi[1:]), np.zeros(4), 0.0).orders()
    fresh = build_forest(problem.codes, orders, engine)
    again = build_forest(problem.codes, orders, engine, before)
    x = rng.standard_normal((80, 2))
    for a, b in zip(fresh.tries, again.tries, strict=True):
        np.testing.assert_array_equal(a.row_idx, b.row_idx)
        np.testing.assert_array_equal(a.links.lcp, b.links.lcp)
    pairs = zip(forest_level_products(fresh, x, x), forest_level_products(again, x, x), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)
