"""Training: what it finds, which rows it looks at, when it stops, that it repeats."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import t as student

from forest_problems import copies_of, make_problem
from tolerances import DENSE, FITTED, ROUNDING, SUMMED, VALUE
from triegp.additive import walk
from triegp.additive.gradient import exact_gradient
from triegp.additive.prior import Prior
from triegp.additive.settings import Settings
from triegp.additive.start import rescale, row_noise
from triegp.additive.walk import Walk, train_stage
from triegp.engines import CpuEngine
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

NONE = np.empty(0, np.int64)
SMOOTH = [None, "dense"]
CASES = [(False, False), (True, False), (False, True), (True, True)]


def parts_of(problem, n_held):
    every = np.arange(problem.rows.n_rows)
    return every[: every.size - n_held], every[every.size - n_held :]


def train(problem, n_held=0, watch=None, progress=silent, n_steps=12, n_threads=1, **settings):
    seen, held = parts_of(problem, n_held)
    settings = Settings(max_iter=n_steps, **settings)
    run = Run(np.random.default_rng(0), n_threads, watch or Stopwatch(), progress)
    given = (problem.data, problem.parameters, seen, held, settings)
    return train_stage(*given, CpuEngine(n_threads), run)


def make_walk(problem, n_held=0, **settings):
    seen, held = parts_of(problem, n_held)
    given = (problem.data, problem.parameters, seen, held, Settings(**settings))
    return Walk(*given, CpuEngine(1), np.random.default_rng(0))


def rows_of(problem, part):
    """The rows of a part, which their targets tell apart."""
    order = np.argsort(problem.rows.y)
    rows = order[np.searchsorted(problem.rows.y[order], part.rows.y)]
    np.testing.assert_array_equal(problem.rows.y[rows], part.rows.y)
    return rows


def dense_scores(problem, parameters, looks):
    """Scores and log deviations of what walks look at, each row given those before it."""
    noise = row_noise(problem.rows, parameters.orders(), parameters.noise).variance
    dense, y = problem.kernel(parameters=parameters) + np.diag(noise), problem.rows.y
    scores, logs = [], []
    for part, n_held in looks:
        rows = rows_of(problem, part)
        factor = np.linalg.cholesky(dense[np.ix_(rows, rows)])
        scores.append(np.linalg.solve(factor, y[rows])[-n_held:])
        logs.append(np.log(np.diag(factor))[-n_held:])
    return np.concatenate(scores), np.concatenate(logs)


def student_at(scores, logs, log_scale):
    """Nll per row by Student's t3, with all deviations times a factor."""
    scaled = student(3).logpdf(scores * np.exp(-log_scale)) - log_scale - logs
    return -np.mean(scaled)


def student_nll(problem, parameters, looks):
    """By definition, at the best of some factors unless noise is known."""
    found = dense_scores(problem, parameters, looks)
    if problem.rows.known_noise is not None:
        return student_at(*found, 0.0)
    return min(student_at(*found, log) for log in np.linspace(-4.0, 4.0, 321))


# Without held-out rows


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("known", [False, True])
def test_training_lowers_the_nll(known, smooth):
    problem = make_problem(n=150, known=known, smooth=smooth)
    found = train(problem)
    assert problem.nll(found.parameters) < problem.nll() - 5.0
    assert not found.diverged
    assert not found.stopped
    assert found.n_steps == 12
    assert len(found.nll_per_row) == 1 + 12 // 2
    assert (found.parameters.smooth is None) == (smooth is None)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
def test_training_records_the_nll_with_that_of_the_prior(weighted, smooth):
    problem = make_problem(n=60, weighted=weighted, smooth=smooth)
    steps = make_walk(problem)
    prior = Prior(problem.parameters, problem.features)
    steps.optimise_scale()
    found = train(problem, n_steps=4)
    for k, nll in enumerate(found.nll_per_row):
        expected = problem.nll(steps.parameters) + prior.nll(steps.parameters)
        assert nll == pytest.approx(expected / copies_of(problem.rows).sum(), rel=SUMMED)
        steps.step(walk._share(k, 4, Stopwatch(), 0.0))


@pytest.mark.parametrize("whole", [640, 50])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0, 50.0])
def test_training_without_held_out_rows_returns_the_most_likely_parameters(
    rate, whole, monkeypatch
):
    monkeypatch.setattr(walk, "WHOLE_ROWS", whole)
    for name in ("N_CLUSTERS", "CLUSTER_ROWS", "RANDOM_ROWS"):
        monkeypatch.setattr(walk, name, {"N_CLUSTERS": 2}.get(name, 30))
    problem = make_problem(n=100, smooth="dense")
    found = train(problem, rate=rate, n_steps=24)
    kept = make_walk(problem)
    kept.parameters = found.parameters
    assert kept.look() == pytest.approx(min(found.nll_per_row), rel=SUMMED)
    assert found.diverged == (min(found.nll_per_row) == found.nll_per_row[0])


def test_few_rows_teach_no_single_phi():
    problem = make_problem(n=60, smooth="dense")
    few, many = make_walk(problem), make_walk(problem, 20)
    for steps in (few, many):
        steps.step(1.0)
    start = problem.parameters.phi

    def spread(steps):
        """Changes of phi within a feature that are no common factor."""
        out = 0.0
        for phi, old, features in zip(steps.parameters.phi, start, problem.features, strict=True):
            for j in np.unique(features):
                own = features == j
                line = np.polyfit(old[own], phi[own], 1)
                out = max(out, np.abs(np.polyval(line, old[own]) - phi[own]).max())
        return out

    assert spread(few) < 1e-12
    assert spread(many) > 1e-3


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_scale_is_the_most_likely_one(weighted, smooth):
    problem = make_problem(n=60, weighted=weighted, smooth=smooth)
    begun = make_walk(problem)
    begun.optimise_scale()
    at = [problem.nll(rescale(begun.parameters, s)) for s in (0.99, 1.0, 1.01)]
    assert at[1] == min(at)
    known = make_walk(make_problem(n=60, known=True, smooth=smooth))
    before = known.parameters
    known.optimise_scale()
    assert known.parameters is before


def test_training_with_weights_is_training_with_copies():
    problem = make_problem(n=60, weighted=True, smooth="dense")
    found = train(problem, n_steps=24)
    copies = np.repeat(np.arange(60), copies_of(problem.rows))
    rows = Rows(problem.rows.y[copies], None, None)
    other = train(replace(problem, X=problem.X[copies], rows=rows), n_steps=24)
    nll, copied = problem.nll(found.parameters), problem.nll(other.parameters)
    assert nll < problem.nll()
    assert nll == pytest.approx(copied, rel=FITTED)


def test_training_finds_the_feature_that_matters():
    rng = np.random.default_rng(0)
    problem = make_problem(n=200, d=3, smooth="dense")
    y = np.sign(problem.X[:, 1] - 0.4) + 0.1 * rng.standard_normal(200)
    problem = replace(problem, rows=Rows(y - y.mean(), None, None))
    found = train(problem, n_steps=40)
    for phi, features in zip(found.parameters.phi, problem.features, strict=True):
        means = [phi[features == j].mean() for j in range(3)]
        assert np.argmax(means) == 1


# With held-out rows


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_a_look_is_the_likelihood_of_held_out_rows(weighted, known, smooth, monkeypatch):
    monkeypatch.setattr(walk, "LOOK_NEAREST", 1_000)
    problem = make_problem(n=90, weighted=weighted, known=known, smooth=smooth)
    steps = make_walk(problem, 30)
    assert len(steps._looks) == 1  # as many as the held-out rows fill, at most 12
    for part, n_held in steps._looks:  # all rows, the held-out ones last, in a random order
        rows = rows_of(problem, part)
        assert n_held == 30
        np.testing.assert_array_equal(rows[:60], np.arange(60))
        np.testing.assert_array_equal(np.sort(rows[60:]), np.arange(60, 90))
    for _ in range(2):
        expected = student_nll(problem, steps.parameters, steps._looks)
        assert steps.look() == pytest.approx(expected, rel=SUMMED)
        steps.step(1.0)


@pytest.mark.parametrize("factor", [1e-2, 0.3, 1.0, 3.0, 1e2])
def test_a_look_is_at_the_best_scale(factor):
    """Steps of 1/40 of a logarithm miss the best one by 1/80, of a curvature of at most 2."""
    problem = make_problem(n=90, smooth="dense")
    scaled = replace(problem, parameters=rescale(problem.parameters, factor))
    steps = make_walk(scaled, 30)
    given = dense_scores(scaled, scaled.parameters, steps._looks)
    best = minimize_scalar(
        lambda log: student_at(*given, log), bounds=(-4, 4), method="bounded"
    ).fun
    assert best - 1e-9 <= steps.look() <= best + (1.0 / 80.0) ** 2
    known = replace(scaled.rows, known_noise=np.zeros(90))
    alone = make_walk(replace(scaled, rows=known), 30)
    assert alone.look() == pytest.approx(student_at(*given, 0.0), rel=SUMMED)
    assert alone.look() >= steps.look()


def test_an_outlier_counts_for_little_in_a_look():
    """A normal distribution would charge z^2 / 2 for it, 4 nats per row or more."""
    problem = make_problem(n=90, smooth="dense")
    looks = []
    for size in (0.0, 15.0):
        y = problem.rows.y.copy()
        y[75] += size
        looks.append(make_walk(replace(problem, rows=replace(problem.rows, y=y)), 30))
    plain, other = (steps.look() for steps in looks)
    normal = []
    for steps in looks:
        data, given = steps._data.rows, (steps.parameters, steps._looks)
        scores, logs = dense_scores(replace(problem, rows=data), *given)
        normal.append(np.mean(0.5 * np.square(scores) + logs))
    assert plain < other < plain + 0.6
    assert normal[1] > normal[0] + 4.0


def test_a_look_does_not_change_what_follows():
    problem = make_problem(n=90, smooth="dense")
    one, two = make_walk(problem, 30), make_walk(problem, 30)
    assert one.look() == one.look()
    one.step(1.0)
    two.step(1.0)
    assert one.parameters.log_noise == two.parameters.log_noise


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
def test_training_returns_what_predicts_held_out_rows_best(rate, smooth, monkeypatch):
    monkeypatch.setattr(walk, "LOOK_NEAREST", 1_000)
    problem = make_problem(n=150, smooth=smooth)
    found = train(problem, 40, rate=rate)
    looks = make_walk(problem, 40)._looks  # of the same seed
    best = student_nll(problem, found.parameters, looks)
    assert best == pytest.approx(min(found.nll_per_row), rel=SUMMED)
    if rate == 0.1:
        assert min(found.nll_per_row) <= found.nll_per_row[0]
        assert not found.diverged


@pytest.mark.parametrize("n_held", [0, 20])
@pytest.mark.parametrize("gain", [0.0, 1.0, -1.0])
def test_all_steps_are_taken_whatever_looks_gain(gain, n_held, monkeypatch):
    """Step sizes are full for 40 % of the steps, then they fall."""
    looks = iter(-gain * np.arange(100.0))
    monkeypatch.setattr(walk.Walk, "look", lambda _: next(looks))
    shares, real = [], walk.Walk.step
    monkeypatch.setattr(
        walk.Walk, "step", lambda one, share: shares.append(share) or real(one, share)
    )
    found = train(make_problem(n=100, smooth="dense"), n_held, n_steps=20)
    assert found.n_steps == len(shares) == 20
    assert len(found.nll_per_row) == 11
    assert not found.stopped
    assert found.diverged == (gain < 0 and not n_held)
    assert shares[:9] == pytest.approx([1.0] * 9, rel=ROUNDING)
    assert (np.diff(shares[8:19]) < 0).all()
    assert shares[19] == walk.LEAST_SHARE


@pytest.mark.parametrize("rate", [5.0, 50.0])
@pytest.mark.parametrize("smooth", SMOOTH)
def test_training_too_fast_is_no_worse_than_its_start(rate, smooth, monkeypatch):
    monkeypatch.setattr(walk, "LOOK_NEAREST", 1_000)
    problem = make_problem(n=100, smooth=smooth)
    found = train(problem, 30, rate=rate, tree_rate=rate, n_steps=24)
    begun = make_walk(problem, 30)
    begun.optimise_scale()
    start = student_nll(problem, begun.parameters, begun._looks)
    assert found.nll_per_row[0] == pytest.approx(start, rel=SUMMED)
    assert student_nll(problem, found.parameters, begun._looks) <= start + 1e-6


def test_a_matrix_that_is_not_positive_definite_ends_training(monkeypatch):
    calls = []

    def fail(*given):
        calls.append(1)
        if len(calls) == 5:
            raise np.linalg.LinAlgError
        return exact_gradient(*given)

    monkeypatch.setattr(walk, "exact_gradient", fail)
    problem = make_problem(n=60)
    for n_held in (0, 20):
        calls.clear()
        found = train(problem, n_held)
        assert found.diverged
        assert not found.stopped
        assert found.n_steps == 4
        assert np.isfinite(problem.nll(found.parameters))


def test_training_whose_likelihood_falls_has_diverged():
    found = train(make_problem(n=60), rate=5.0, tree_rate=5.0)
    assert found.nll_per_row[-1] > found.nll_per_row[0]
    assert found.diverged


def test_the_smooth_part_follows_the_feature_that_matters():
    problem = make_problem(n=200, d=3, smooth="dense")
    y = np.sin(4.0 * problem.X[:, 1]) + 0.1 * np.random.default_rng(0).standard_normal(200)
    found = train(replace(problem, rows=Rows(y - y.mean())), n_steps=40)
    shorter = problem.parameters.smooth.lengthscale / found.parameters.smooth.lengthscale
    assert np.argmax(shorter) == 1


# The rows of a step


def numbered(n, smooth=None):
    """A problem whose targets tell the rows apart."""
    problem = make_problem(n=n, smooth=smooth)
    return replace(problem, rows=Rows(np.linspace(-1.0, 1.0, n)))


@pytest.mark.parametrize("smooth", SMOOTH)
def test_steps_take_clusters_and_random_rows_but_none_held_out(smooth, monkeypatch):
    sizes = {"N_CLUSTERS": 3, "CLUSTER_ROWS": 10, "RANDOM_ROWS": 15, "WHOLE_ROWS": 50}
    for name, value in sizes.items():
        monkeypatch.setattr(walk, name, value)
    problem, drawn = numbered(200, smooth), []

    def note(part, *given):
        drawn.append(np.searchsorted(problem.rows.y, part.rows.y))
        return exact_gradient(part, *given)

    monkeypatch.setattr(walk, "exact_gradient", note)
    train(problem, 40, n_steps=6)
    assert len(drawn) == 12  # two parts per step
    inputs = problem.inputs
    for rows in drawn:
        assert np.unique(rows).size == rows.size <= 45
        assert rows.max() < 160
        apart = np.square(inputs[rows][:, None] - inputs[rows]).sum(axis=2)
        near = np.sort(apart, axis=1)[:, 9]
        # Ten rows within the distance of a dense cluster: closer than random rows would be.
        every = np.square(inputs[:, None] - inputs).sum(axis=2)
        assert near.min() < 2.0 * np.sort(every, axis=1)[:, 9].max()
    assert len({tuple(rows) for rows in drawn}) == 12


def test_a_cluster_is_the_rows_nearest_to_a_row_by_lengthscales():
    problem = numbered(80, "dense")
    steps = make_walk(problem)
    scaled = problem.inputs / problem.parameters.smooth.lengthscale
    found = steps._near(problem.inputs[[7, 30]], 9)
    for part, i in zip(found.reshape(2, 9), (7, 30), strict=True):
        apart = np.square(scaled - scaled[i]).sum(axis=1)
        np.testing.assert_array_equal(np.sort(part), np.sort(np.argsort(apart)[:9]))


def test_of_many_rows_clusters_are_drawn_from_some(monkeypatch):
    monkeypatch.setattr(walk, "POOL_ROWS", 60)
    monkeypatch.setattr(walk, "WHOLE_ROWS", 50)
    problem = numbered(200)
    steps = make_walk(problem)
    steps.step(1.0)
    assert steps._near(problem.inputs[:1], 100).size == 60


# When it ends


def test_training_stops_when_asked():
    problem = make_problem(n=60)
    watch = Stopwatch()
    watch.halt()
    found = train(problem, watch=watch)
    assert found.stopped
    assert not found.diverged
    assert found.n_steps == 0
    assert found.nll_per_row == ()
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6


@pytest.mark.parametrize("n_held", [0, 20])
def test_training_that_is_stopped_keeps_what_it_found(n_held):
    problem, watch, seen = make_problem(n=60), Stopwatch(), []

    def stop_at_three(what, done, total):
        seen.append((what, done, total))
        if done == 3:
            watch.halt()

    found = train(problem, n_held, watch, stop_at_three)
    assert found.stopped
    assert not found.diverged
    assert found.n_steps == 3
    assert seen == [("steps", k, 12) for k in (1, 2, 3)]
    assert problem.nll(found.parameters) < problem.nll()
    if n_held:  # after steps 2 and 3, and before
        assert len(found.nll_per_row) == 3


def test_ctrl_c_keeps_the_last_step():
    problem, watch = make_problem(n=60), Stopwatch()

    def press(what, done, total):
        if done == 7:
            raise KeyboardInterrupt

    found = train(problem, 0, watch, press)
    assert found.stopped
    assert watch.interrupted
    assert found.n_steps == 7
    assert problem.nll(found.parameters) < problem.nll()


def test_no_steps_at_all():
    problem = make_problem(n=60, smooth="dense")
    found = train(problem, n_steps=0)
    assert found.n_steps == 0
    assert not found.stopped
    factor = found.parameters.noise / problem.parameters.noise
    same = rescale(problem.parameters, factor)
    np.testing.assert_allclose(found.parameters.log_scale, same.log_scale, rtol=DENSE)
    assert found.parameters.smooth.scale == pytest.approx(same.smooth.scale, rel=DENSE)


def test_step_sizes_fall_with_the_steps_or_with_the_time():
    free = Stopwatch()
    shares = [walk._share(k, 100, free, 0.0) for k in range(101)]
    cosine = 0.5 + 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, 61))
    assert shares[:41] == pytest.approx([1.0] * 41, rel=ROUNDING)
    assert shares[40:] == pytest.approx(np.maximum(cosine, walk.LEAST_SHARE), rel=ROUNDING)
    assert shares[0] == 1.0
    assert shares[-1] == walk.LEAST_SHARE == 0.05
    assert shares == sorted(shares, reverse=True)
    spent = Stopwatch(1e-9)
    assert walk._share(1, 100, spent, -10.0) == walk.LEAST_SHARE
    ample = Stopwatch(1e9)
    assert [walk._share(k, 100, ample, 0.0) for k in range(101)] == shares
    # 7 of 10 seconds, since training began, are as good as 70 of 100 steps.
    late = SimpleNamespace(limited=True, elapsed=lambda: 12.0, left=lambda: 3.0)
    assert walk._share(1, 100, late, 5.0) == pytest.approx(shares[70], rel=ROUNDING)
    assert walk._share(90, 100, late, 5.0) == shares[90]
    assert walk._share(0, 100, late, 5.0) == 1.0


def test_training_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=100, smooth="dense")
    one, two = (train(problem, 20, n_steps=6, n_threads=k).parameters for k in (1, 3))
    np.testing.assert_array_equal(np.concatenate(one.phi), np.concatenate(two.phi))
    np.testing.assert_array_equal(one.log_scale, two.log_scale)
    np.testing.assert_array_equal(one.smooth.lengthscale, two.smooth.lengthscale)
    assert one.log_noise == two.log_noise


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [200, 50])
def test_a_step_follows_the_mean_gradient_of_its_parts(n, n_threads, monkeypatch):
    """The step and its nll are those of the parts one by one; up to WHOLE_ROWS there is one."""
    monkeypatch.setattr(walk, "WHOLE_ROWS", 50)
    for name in ("N_CLUSTERS", "CLUSTER_ROWS", "RANDOM_ROWS"):
        monkeypatch.setattr(walk, name, {"N_CLUSTERS": 2}.get(name, 15))
    problem, given, taken = make_problem(n=n, smooth="dense"), [], []
    steps, other = make_walk(problem, 10), make_walk(problem, 10)
    steps._engine = CpuEngine(n_threads)
    monkeypatch.setattr(steps._optimiser, "step", lambda *told: given.append(told) or told[0])
    nll = steps.step(0.3)
    for _ in range(2 if n > 60 else 1):
        part = problem.data.select(other._draw())
        value, gradient = exact_gradient(part, problem.parameters, CpuEngine(1))
        weight = part.rows.n_rows / (n - 10)
        gradient = Prior(problem.parameters, problem.features).add(
            gradient, problem.parameters, weight
        )
        taken.append((value / part.rows.n_rows, gradient))
    ((start, found, share),) = given
    assert start is problem.parameters
    assert share == 0.3
    assert nll == pytest.approx(np.mean([value for value, _ in taken]), rel=ROUNDING)
    for name in ("log_scale", "noise", "log_lengthscale", "log_smooth"):
        expected = sum(getattr(one, name) for _, one in taken) / len(taken)
        np.testing.assert_allclose(getattr(found, name), expected, **VALUE)
    for t, phi in enumerate(found.phi):
        np.testing.assert_allclose(phi, sum(one.phi[t] for _, one in taken) / len(taken), **VALUE)


# What the smooth part is worth


@pytest.mark.parametrize("n_held", [0, 30])
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_gain_of_the_smooth_part(weighted, known, n_held):
    """Against dense algebra and scipy's Student, with either kernel at its best scale."""
    problem = make_problem(n=80, known=known, weighted=weighted, smooth="dense")
    steps = make_walk(problem, n_held)
    (part, n_last), *_ = steps._looks
    if not n_held:  # all rows, each given those before
        assert n_last == 80
        np.testing.assert_array_equal(rows_of(problem, part), np.arange(80))
    without = replace(problem.parameters, smooth=None)
    before, after = (
        student_nll(problem, one, steps._looks) for one in (without, problem.parameters)
    )
    assert abs(before - after) > 1e-3
    assert steps.smooth_gain() == pytest.approx(before - after, rel=SUMMED, abs=SUMMED)
    assert steps.parameters is problem.parameters


def test_the_gain_is_that_of_the_parameters_that_are_kept():
    problem = make_problem(n=80, smooth="dense")
    for n_held in (0, 30):
        found = train(problem, n_held, smooth="auto")
        steps = make_walk(problem, n_held)
        steps.parameters = found.parameters
        assert found.smooth_gain == steps.smooth_gain()


@pytest.mark.parametrize("n_held", [0, 30])
def test_the_gain_is_asked_for_if_it_decides(n_held):
    problem, halted = make_problem(n=80, smooth="dense"), Stopwatch()
    halted.halt()
    assert train(problem, n_held, smooth=True).smooth_gain is None
    assert train(problem, n_held, halted, smooth="auto").smooth_gain is None
    assert train(make_problem(n=80), n_held, smooth="auto").smooth_gain is None
    assert train(problem, n_held, smooth="auto").smooth_gain is not None


def test_the_gain_is_infinite_if_trees_alone_are_not_positive_definite(monkeypatch):
    steps, real = make_walk(make_problem(n=20, smooth="dense")), walk.held_scores

    def fail(data, parameters, *given):
        if parameters.smooth is None:
            raise np.linalg.LinAlgError
        return real(data, parameters, *given)

    monkeypatch.setattr(walk, "held_scores", fail)
    assert steps.smooth_gain() == np.inf


@pytest.mark.parametrize("n_held", [0, 30])
def test_a_smooth_part_of_no_variance_gains_nothing(n_held):
    problem = make_problem(n=80, smooth="dense")
    tiny = replace(problem.parameters.smooth, scale=1e-12)
    parameters = replace(problem.parameters, smooth=tiny)
    steps = make_walk(replace(problem, parameters=parameters), n_held)
    assert abs(steps.smooth_gain()) < SUMMED
