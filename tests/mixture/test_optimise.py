"""Training: candidates, the pick among them, the objective and its gradient, fits."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from optimise_problems import PLAN, PRECISION, make_data
from tolerances import DIFFERENCE, ROUNDING, VALUE
from triegp.encoding import pack_codes
from triegp.engines import CpuEngine
from triegp.mixture.optimise import (
    Data,
    Objective,
    boltzmann_pick,
    draw_candidates,
    fit_order,
)
from triegp.models.jobs import Stopwatch
from triegp.models.rows import location_and_scale
from triegp.tree import BitOrder


def objective_of(data, plan=PLAN, watch=None):
    return Objective(data, plan, CpuEngine(n_threads=1), watch or Stopwatch())


def random_point(plan, rng):
    phi = np.log(rng.uniform(0.05, 1.0, int(PRECISION.sum())))
    return np.append(phi, 0.3) if plan.learn_scale else phi


@pytest.mark.parametrize("learn_scale", [True, False])
@pytest.mark.parametrize("nugget", ["row", "bit"])
@pytest.mark.parametrize("extras", [{}, {"weight": True}, {"known_noise": True}])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_gradient_against_central_differences(learn_scale, nugget, extras, n_targets):
    plan = replace(PLAN, learn_scale=learn_scale, nugget=nugget)
    data = make_data(1, 40, n_targets, **extras)
    objective = objective_of(data, plan)
    z = random_point(plan, np.random.default_rng(2))
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
    data = make_data(3, 30, n_targets, weight=True, known_noise=True)
    objective = objective_of(data)
    z = random_point(PLAN, np.random.default_rng(4))
    order = objective.order(z)
    rows = np.repeat(np.arange(30), data.weight.astype(int))
    bits = oracle.unpack_bits(data.codes, order.key_bits)[rows]
    levels = order.weights[: order.n_levels] * order.scale
    prior = oracle.kernel(bits, bits, levels)
    total = 0.0
    for j in range(n_targets):
        noise = data.noise + order.nugget_variance + data.known_noise[rows, j]
        y = data.targets[rows, j]
        covariance = prior + np.diag(noise)
        total += 0.5 * y @ np.linalg.solve(covariance, y)
        total += 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    value, _ = objective(z)
    np.testing.assert_allclose(value, total / (rows.size * n_targets), **VALUE)


def test_a_point_and_its_order():
    order = BitOrder.from_phi(np.log([0.2, 1.0, 0.5]), scale=2.5)
    objective = objective_of(make_data())
    z = objective.start(order)
    np.testing.assert_allclose(z, [*np.log([0.2, 1.0, 0.5]), np.log(2.5)], rtol=ROUNDING)
    again = objective.order(z)
    np.testing.assert_array_equal(again.bits, order.bits)
    np.testing.assert_allclose(again.remaining, order.remaining, rtol=ROUNDING)


def test_the_objective_remembers_the_best():
    objective = objective_of(make_data())
    rng = np.random.default_rng(5)
    points = [random_point(PLAN, rng) for _ in range(6)]
    values = [objective(z)[0] for z in points]
    assert objective.n_evaluations == 6
    best, order = objective.best
    assert best == min(values)
    assert order == objective.order(points[int(np.argmin(values))])


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("learn_scale", [True, False])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_fit_decreases_the_nll_to_a_local_minimum(optimizer, learn_scale, n_targets):
    plan = replace(PLAN, optimizer=optimizer, learn_scale=learn_scale, max_iter=300)
    data = make_data(6, 120, n_targets)
    (start,) = draw_candidates(PRECISION, replace(plan, n_candidates=1), np.random.default_rng(0))
    before, _ = objective_of(data, plan)(objective_of(data, plan).start(start))
    fit = fit_order(start, data, plan, CpuEngine(n_threads=1), Stopwatch())
    fresh = objective_of(data, plan)
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
    plan = replace(PLAN, optimizer=optimizer, max_iter=1, tolerance=1e-12)
    (start,) = draw_candidates(PRECISION, replace(plan, n_candidates=1), np.random.default_rng(0))
    fit = fit_order(start, make_data(), plan, CpuEngine(n_threads=1), Stopwatch())
    assert not fit.converged


def test_the_same_fit_with_one_thread_and_two():
    data = make_data(7, 300)
    start, *_ = draw_candidates(PRECISION, PLAN, np.random.default_rng(0))
    one, two = (fit_order(start, data, PLAN, CpuEngine(n_threads=n), Stopwatch()) for n in (1, 2))
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
    data = make_data(8)
    plan = replace(PLAN, optimizer=optimizer, tolerance=1e-9)
    start, *_ = draw_candidates(PRECISION, plan, np.random.default_rng(0))
    values = []

    class Recording(CpuEngine):
        def evaluate(self, *args, **kwargs):
            sums, adjoints = super().evaluate(*args, **kwargs)
            values.append(sums.nll / data.n_terms)
            return sums, adjoints

    fit = fit_order(start, data, plan, Recording(n_threads=1), StopsAfter(n_looks))
    assert not fit.converged
    assert fit.n_evaluations == len(values) == max(1, n_looks)  # one evaluation is always made
    assert fit.nll_per_row == min(values)
    if n_looks <= 1:
        np.testing.assert_allclose(fit.order.remaining, start.remaining, rtol=ROUNDING)


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e9])
def test_fits_of_targets_off_scale_end(optimizer, size):
    """All targets 0 or far from deviation 1: the scale runs away, the fit stays finite."""
    data = make_data(9)
    data = replace(data, targets=size * data.targets)
    plan = replace(PLAN, optimizer=optimizer)
    start, *_ = draw_candidates(PRECISION, plan, np.random.default_rng(0))
    fit = fit_order(start, data, plan, CpuEngine(n_threads=1), Stopwatch())
    assert np.isfinite(fit.nll_per_row)
    assert np.isfinite(fit.order.remaining).all()
    assert fit.order.scale > 0


def test_one_bit_and_one_row():
    data = Data(pack_codes([[1]], [1]), np.zeros((1, 1)), noise=1e-2)
    (start,) = draw_candidates(
        np.array([1]), replace(PLAN, n_candidates=1, last_weights=(0.5,)), np.random.default_rng(0)
    )
    fit = fit_order(start, data, PLAN, CpuEngine(n_threads=1), Stopwatch())
    assert np.isfinite(fit.nll_per_row)
    assert fit.order.bits.tolist() == [0]


def test_candidates_keep_the_order_of_significance():
    rng = np.random.default_rng(10)
    orders = draw_candidates(PRECISION, replace(PLAN, n_candidates=50), rng)
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
    plan = replace(PLAN, n_candidates=7, nugget=nugget)
    orders = draw_candidates(PRECISION, plan, np.random.default_rng(11))
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
    np.testing.assert_array_equal(scale, [1.0, 1.0])
