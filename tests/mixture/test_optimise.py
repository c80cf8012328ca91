"""Training: candidates, the pick among them, the objective and its gradient, fits."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from optimise_problems import PRECISION, SETTINGS, make_problem, train_alone
from tolerances import DIFFERENCE, ROUNDING, VALUE
from triegp.encoding import pack_codes
from triegp.encoding.encoder import BitEncoder
from triegp.engines import CpuEngine
from triegp.estimators.inputs import location_and_scale
from triegp.mixture.candidates import (
    boltzmann_pick,
    draw_candidates,
    drawn_precision,
    nll_per_row,
)
from triegp.mixture.optimise import (
    Follower,
    Objective,
    Problem,
    train_order,
)
from triegp.models.jobs import Stopwatch
from triegp.tree import BitOrder, random_bits, uniform_weights
from triegp.tree.rows import Rows


def objective_of(problem, settings=SETTINGS, watch=None):
    follow = Follower(problem, settings.noise, CpuEngine(n_threads=1))
    return Objective(problem.n_terms, settings, watch or Stopwatch(), follow)


def random_point(settings, rng):
    phi = np.log(rng.uniform(0.05, 1.0, int(PRECISION.sum())))
    return np.append(phi, 0.3) if settings.learn_scale else phi


@pytest.mark.parametrize("learn_scale", [True, False])
@pytest.mark.parametrize("nugget", ["row", "bit"])
@pytest.mark.parametrize("extras", [{}, {"weight": True}, {"known_noise": True}])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_gradient_against_central_differences(learn_scale, nugget, extras, n_targets):
    settings = replace(SETTINGS, learn_scale=learn_scale, nugget=nugget)
    problem = make_problem(1, 40, n_targets, **extras)
    objective = objective_of(problem, settings)
    z = random_point(settings, np.random.default_rng(2))
    _, gradient = objective(z)
    step = 1e-5
    numeric = [
        (objective(z + step * e)[0] - objective(z - step * e)[0]) / (2 * step)
        for e in np.eye(z.size)
    ]
    np.testing.assert_allclose(gradient, numeric, **DIFFERENCE)
    assert np.abs(gradient).max() > 1e-3  # or nothing was compared


@pytest.mark.parametrize("n_targets", [1, 2])
def test_value_is_the_dense_nll_a_term(n_targets):
    """Repeated rows, known noise and all targets, by Cholesky."""
    problem = make_problem(3, 30, n_targets, weight=True, known_noise=True)
    objective = objective_of(problem)
    z = random_point(SETTINGS, np.random.default_rng(4))
    order = objective.order(z)
    rows = np.repeat(np.arange(30), problem.targets[0].weight.astype(int))
    bits = oracle.unpack_bits(problem.codes, order.key_bits)[rows]
    levels = order.weights[: order.n_levels] * order.scale
    prior = oracle.kernel(bits, bits, levels)
    total = 0.0
    for j in range(n_targets):
        noise = SETTINGS.noise + order.nugget_variance + problem.targets[j].known_noise[rows]
        y = problem.targets[j].y[rows]
        covariance = prior + np.diag(noise)
        total += 0.5 * y @ np.linalg.solve(covariance, y)
        total += 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    value, _ = objective(z)
    np.testing.assert_allclose(value, total / (rows.size * n_targets), **VALUE)


def test_a_point_and_its_order():
    order = BitOrder.from_phi(np.log([0.2, 1.0, 0.5]), scale=2.5)
    objective = objective_of(make_problem())
    z = objective.start(order)
    np.testing.assert_allclose(z, [*np.log([0.2, 1.0, 0.5]), np.log(2.5)], rtol=ROUNDING)
    again = objective.order(z)
    np.testing.assert_array_equal(again.bits, order.bits)
    np.testing.assert_allclose(again.remaining, order.remaining, rtol=ROUNDING)


def test_the_objective_remembers_the_best():
    objective = objective_of(make_problem())
    rng = np.random.default_rng(5)
    points = [random_point(SETTINGS, rng) for _ in range(6)]
    values = [objective(z)[0] for z in points]
    assert objective.n_evaluations == 6
    best, order = objective.best
    assert best == min(values)
    assert order == objective.order(points[int(np.argmin(values))])


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("learn_scale", [True, False])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_fit_decreases_the_nll_to_a_local_minimum(optimizer, learn_scale, n_targets):
    settings = replace(SETTINGS, optimizer=optimizer, learn_scale=learn_scale, max_iter=300)
    problem = make_problem(6, 120, n_targets)
    start, *_ = draw_candidates(PRECISION, settings, np.random.default_rng(0))
    before, _ = objective_of(problem, settings)(objective_of(problem, settings).start(start))
    fit = train_alone(start, problem, settings, Stopwatch())
    fresh = objective_of(problem, settings)
    z = fresh.start(fit.order)
    assert fit.converged
    assert fit.nll_per_row < before - 0.01
    np.testing.assert_allclose(fresh(z)[0], fit.nll_per_row, **VALUE)
    # The minimum may be a kink, where two bits swap: look around instead of at the gradient.
    moves = 1e-2 * np.random.default_rng(1).standard_normal((40, z.size))
    around = [fresh(z + move)[0] for move in moves]
    assert min(around) > fit.nll_per_row - 1e-4
    assert max(around) > fit.nll_per_row + 1e-4
    assert fit.n_evaluations > 3
    if not learn_scale:
        assert fit.order.scale == 1.0


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
def test_a_fit_that_runs_out_of_steps_has_not_converged(optimizer):
    settings = replace(SETTINGS, optimizer=optimizer, max_iter=1, tol=1e-12)
    start, *_ = draw_candidates(PRECISION, settings, np.random.default_rng(0))
    fit = train_alone(start, make_problem(), settings, Stopwatch())
    assert not fit.converged


def test_the_same_fit_with_one_thread_and_two():
    problem = make_problem(7, 300)
    start, *_ = draw_candidates(PRECISION, SETTINGS, np.random.default_rng(0))
    one, two = (train_alone(start, problem, SETTINGS, Stopwatch(), n) for n in (1, 2))
    assert one.order == two.order
    assert one.nll_per_row == two.nll_per_row
    assert one.n_evaluations == two.n_evaluations


class StopsAfter(Stopwatch):
    """Says stop from the (n + 1)-th look on."""

    def __init__(self, n_looks):
        super().__init__()
        self.looks_left = n_looks

    @property
    def stop(self):
        self.looks_left -= 1
        return self.looks_left < 0


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("n_looks", [0, 1, 4])
def test_a_stopped_fit_returns_the_best_seen(optimizer, n_looks):
    problem = make_problem(8)
    settings = replace(SETTINGS, optimizer=optimizer, tol=1e-9)
    start, *_ = draw_candidates(PRECISION, settings, np.random.default_rng(0))
    values = []

    class Recording(CpuEngine):
        def evaluate(self, *args, **kwargs):
            sums, adjoints = super().evaluate(*args, **kwargs)
            values.append(sums.nll / problem.n_terms)
            return sums, adjoints

    follow = Follower(problem, settings.noise, Recording(n_threads=1))
    fit = train_order(start, problem.n_terms, settings, StopsAfter(n_looks), follow)
    assert not fit.converged
    assert fit.n_evaluations == len(values) == max(1, n_looks)  # one evaluation is always made
    assert fit.nll_per_row == min(values)
    if n_looks <= 1:
        np.testing.assert_allclose(fit.order.remaining, start.remaining, rtol=ROUNDING)


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e9])
def test_fits_of_targets_off_scale_end(optimizer, size):
    """All targets 0 or far from deviation 1: the scale runs away, the fit stays finite."""
    problem = make_problem(9)
    target = replace(problem.targets[0], y=size * problem.targets[0].y)
    problem = problem._replace(targets=(target,))
    settings = replace(SETTINGS, optimizer=optimizer)
    start, *_ = draw_candidates(PRECISION, settings, np.random.default_rng(0))
    fit = train_alone(start, problem, settings, Stopwatch())
    assert np.isfinite(fit.nll_per_row)
    assert np.isfinite(fit.order.remaining).all()
    assert fit.order.scale > 0


def test_one_bit_and_one_row():
    problem = Problem(pack_codes([[1]], [1]), (Rows(np.zeros(1)),))
    (start,) = draw_candidates(
        np.array([1]),
        replace(SETTINGS, n_candidates=1, last_weights=(0.5,)),
        np.random.default_rng(0),
    )
    fit = train_alone(start, problem, SETTINGS, Stopwatch())
    assert np.isfinite(fit.nll_per_row)
    assert fit.order.bits.tolist() == [0]


def test_candidates_keep_the_order_of_significance():
    rng = np.random.default_rng(10)
    orders = list(draw_candidates(PRECISION, replace(SETTINGS, n_candidates=50), rng))
    ends = np.cumsum(PRECISION)
    for order in orders:
        place = np.argsort(order.bits)
        for first, last in zip(ends - PRECISION, ends, strict=True):
            assert (np.diff(place[first:last]) > 0).all()
    assert len({order.bits.tobytes() for order in orders}) > 40
    features = {int(order.bits[0]) for order in orders}
    assert features == set((ends - PRECISION).tolist())  # any feature may come first


@pytest.mark.parametrize("nugget", ["row", "bit"])
def test_candidates_take_last_weights_in_turns(nugget):
    settings = replace(SETTINGS, n_candidates=7, nugget=nugget)
    orders = list(draw_candidates(PRECISION, settings, np.random.default_rng(11)))
    uniform = 1 / PRECISION.sum()
    last = [order.weights[-1] for order in orders]
    expected = [uniform, 0.5, 0.9, uniform, 0.5, 0.9, uniform]
    np.testing.assert_allclose(last, expected, rtol=ROUNDING)
    for order in orders:
        assert np.ptp(order.weights[:-1]) < 1e-12
        assert order.scale == 1.0
        assert order.nugget == nugget


def test_the_pick_begins_with_the_best_and_repeats_none():
    rng = np.random.default_rng(12)
    for n_picks in (1, 3, 8, 20):
        log_likelihood = rng.standard_normal(8)
        picks = boltzmann_pick(log_likelihood, n_picks, rng)
        assert picks[0] == np.argmax(log_likelihood)
        assert len(picks) == min(n_picks, 8)
        assert len(set(picks)) == len(picks)


@pytest.mark.parametrize("shift", [0.0, -1e6])
def test_the_pick_has_boltzmann_frequencies(shift):
    """Of three candidates the best is always in; the second is drawn among the other two."""
    log_likelihood = np.array([-3.0, 4.0, -1.0])
    z = (log_likelihood - log_likelihood.mean()) / log_likelihood.std()
    exact = np.exp(z[2]) / (np.exp(z[0]) + np.exp(z[2]))
    rng = np.random.default_rng(13)
    n = 4_000
    seconds = [boltzmann_pick(log_likelihood + shift, 2, rng)[1] for _ in range(n)]
    assert set(seconds) == {0, 2}
    error = np.sqrt(exact * (1 - exact) / n)
    assert abs(np.mean(np.array(seconds) == 2) - exact) < 4 * error


def test_the_pick_among_equals_is_even():
    rng = np.random.default_rng(14)
    picks = [boltzmann_pick(np.full(3, -7.0), 3, rng) for _ in range(2_000)]
    assert {tuple(p) for p in picks} == {(0, 1, 2), (0, 2, 1)}
    assert abs(np.mean([p[1] == 1 for p in picks]) - 0.5) < 4 * 0.5 / np.sqrt(2_000)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_location_and_scale(size):
    """Weights count as copies; weights below 1 in all must not shrink the scale."""
    rng = np.random.default_rng(15)
    y = size * rng.standard_normal((40, 2))
    count = rng.integers(0, 3, 40)
    mean, scale = location_and_scale(y, count.astype(float))
    again = location_and_scale(np.repeat(y, count, axis=0), None)
    np.testing.assert_allclose(mean, again[0], rtol=ROUNDING)
    np.testing.assert_allclose(scale, again[1], rtol=ROUNDING)
    unit = y / size
    np.testing.assert_allclose(again[1] / size, np.repeat(unit, count, axis=0).std(axis=0, ddof=1))
    _, faint = location_and_scale(y, np.full(40, 1e-6))
    np.testing.assert_allclose(faint / size, unit.std(axis=0))


def test_location_and_scale_of_constants():
    mean, scale = location_and_scale(np.array([[3.0, 0.0]] * 5), None)
    np.testing.assert_array_equal(mean, [3.0, 0.0])
    np.testing.assert_allclose(scale, np.array([3.0, 1.0]) / (25 * np.sqrt(7)))
    _, scale = location_and_scale(np.full((1, 1), 3.0), None)  # one row says little
    np.testing.assert_allclose(scale, [3.0 / np.sqrt(3)])


def test_bits_that_a_feature_does_not_have_are_left_out_of_a_drawn_order():
    precision, drawn = np.array([1, 3, 1]), np.array([4, 3, 2])
    kept = [0, 4, 5, 6, 7]  # of the bits drawn
    settings = replace(SETTINGS, n_candidates=20)
    found = list(draw_candidates(precision, settings, np.random.default_rng(13), drawn))
    rng = np.random.default_rng(13)
    for i, order in enumerate(found):
        whole = random_bits(drawn, rng).tolist()
        assert order.bits.tolist() == [kept.index(bit) for bit in whole if bit in kept]
        before = uniform_weights(9, last=settings.last_weights[i % 3])
        sums, place = np.zeros(5), 0
        for k, bit in enumerate(whole):
            place += k > 0 and bit in kept
            sums[place] += before[k]
        np.testing.assert_allclose(order.weights, sums, **VALUE)
    first = np.mean([order.bits[0] == 0 for order in found])
    assert first > 1 / 5  # the feature drawn with four bits comes early


def test_two_valued_features_are_drawn_as_early_as_others():
    rng = np.random.default_rng(14)
    X = np.column_stack([rng.integers(0, 2, 200), rng.normal(size=(200, 2))])
    encoder = BitEncoder(precision="paper").fit(X)
    assert drawn_precision(encoder).tolist() == [8, 8, 8]
    encoder = BitEncoder().fit(X).with_shift(np.zeros(3))
    assert encoder.precision_.tolist() == [1, 9, 9]
    assert drawn_precision(encoder).tolist() == [9, 9, 9]
    encoder.two_valued_ = None
    assert drawn_precision(encoder).tolist() == [1, 9, 9]


def test_constant_bits_that_are_left_out_do_not_change_the_likelihood():
    rng = np.random.default_rng(15)
    raw = rng.integers(0, 2, (150, 6))
    targets = (Rows(rng.standard_normal(150)),)
    one, two = np.ones(6, int), np.full(6, 2)
    settings = replace(SETTINGS, n_candidates=12, nugget="bit")
    short = draw_candidates(one, settings, np.random.default_rng(1), two)
    long = draw_candidates(two, settings, np.random.default_rng(1))
    for few, many in zip(short, long, strict=True):
        assert many.bits[0] % 2 == 0  # never a constant bit
        mine = nll_per_row(Problem(pack_codes(raw, one), targets), few, 0.1)
        whole = nll_per_row(Problem(pack_codes(2 * raw, two), targets), many, 0.1)
        np.testing.assert_allclose(mine, whole, **VALUE)
