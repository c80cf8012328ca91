"""A forest as a model: gradient, training, conditioning, predicting, against dense algebra."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import qmc

import oracle
from tolerances import DIFFERENCE, VALUE
from triegp import BitEncoder, CpuEngine, build_trie, condition, leave_one_out, predict
from triegp.forest import NotConverged, fitting, forest_level_products, model, spread, training
from triegp.forest.fitting import (
    ForestPlan,
    add_rows,
    calibrate_forest,
    condition_forest,
    fit_forest,
)
from triegp.forest.gradient import forest_gradient
from triegp.forest.model import Manner, forest_mean
from triegp.forest.planting import (
    Parameters,
    depths_of,
    draw_grids,
    features_of,
    rescale,
    start_even,
    start_random,
)
from triegp.forest.sampling import draw_prior
from triegp.forest.spread import (
    draw_forest,
    forest_covariance,
    forest_variance,
    leave_out,
    with_diagonal,
)
from triegp.forest.tails import (
    FACTORS,
    GAUSSIAN,
    UNSEEN,
    learn_tails,
    second_moment,
    spread_out,
)
from triegp.forest.training import Schedule, build_forest, row_noise, train_forest
from triegp.jobs import Stopwatch
from triegp.mixture import log_density, mixture_mean, mixture_var, quantiles
from triegp.observations import Measured

SOLVED = {"rtol": 1e-7, "atol": 1e-7}  # what comes of solves to 1e-11, condition < 1e4
SAMPLED = {"max": 5.0, "rms": 1.6}  # of errors in standard errors
EXACT = Manner("exact")


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, the forest's parameters, and rows to predict at."""

    X: np.ndarray
    rows: Measured
    encoders: tuple
    parameters: Parameters
    new: np.ndarray  # inside the box

    @property
    def orders(self):
        return self.parameters.orders()

    @property
    def codes(self):
        return [encoder.encode(self.X) for encoder in self.encoders]

    @property
    def features(self):
        return [features_of(encoder) for encoder in self.encoders]

    def kernel(self, A=None, B=None, orders=None):
        """Dense K between rows, by definition."""
        A = self.X if A is None else A
        return dense_kernel(self.encoders, orders or self.orders, A, A if B is None else B)

    def nll(self, parameters=None):
        """Of all copies of all rows, by definition."""
        parameters = parameters or self.parameters
        orders = parameters.orders()
        copies = np.repeat(np.arange(self.rows.y.size), copies_of(self.rows))
        noise = row_noise(orders, parameters.noise, self.rows)
        dense = self.kernel(orders=orders)[np.ix_(copies, copies)] + np.diag(noise[copies])
        return oracle.nll(dense, self.rows.y[copies])

    def condition(self, manner=EXACT, engine=None):
        present = np.ones(self.rows.y.size, bool)
        return condition_forest(
            self.encoders,
            self.codes,
            self.parameters,
            self.rows,
            present,
            manner,
            engine or CpuEngine(),
        )


def dense_kernel(encoders, orders, A, B):
    total = np.zeros((A.shape[0], B.shape[0]))
    for encoder, order in zip(encoders, orders, strict=True):
        a, b = (oracle.unpack_bits(encoder.encode(Z), order.key_bits) for Z in (A, B))
        total += oracle.kernel(a, b, order.weights[: order.n_levels] * order.scale)
    return total


def copies_of(rows):
    return np.ones(rows.y.size, int) if rows.weight is None else rows.weight.astype(int)


def make_problem(
    n=80,
    n_trees=4,
    d=2,
    seed=0,
    *,
    noise=0.1,
    slope=1.0,
    precision=4,
    weighted=False,
    known=False,
    outside="unrelated",
):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    y = np.sin(5.0 * X).sum(axis=1) + 0.3 * rng.standard_normal(n)
    encoder = BitEncoder(precision=precision, outside=outside).fit(X)
    encoders = draw_grids([encoder], n_trees, rng)
    phi = tuple(start_even(e, slope, rng) for e in encoders)
    parameters = Parameters(phi, np.log(rng.uniform(0.2, 0.6, n_trees)), float(np.log(noise)))
    rows = Measured(
        y - y.mean(),
        rng.uniform(0.0, 0.3, n) if known else None,
        rng.integers(1, 5, n).astype(float) if weighted else None,
    )
    new = rng.uniform(X.min(axis=0), X.max(axis=0), (30, d))
    return Problem(X, rows, encoders, parameters, new)


def quiet_problem(noise, n=120):
    """Little noise and next to no nuggets: close rows make K + noise nearly singular."""
    return make_problem(n=n, d=2, n_trees=5, noise=noise, slope=2.0, precision=8)


@pytest.fixture
def tight(monkeypatch):
    """Solves as exact as float64 allows, so that values can be compared tightly."""
    monkeypatch.setattr(fitting, "TOLERANCE", 1e-11)
    monkeypatch.setattr(spread, "EXACT_TOLERANCE", 1e-11)
    monkeypatch.setattr(spread, "SAMPLE_TOLERANCE", 1e-11)


def own_kernel(found, A, B):
    """Dense K of a model's own encoders and orders."""
    return dense_kernel(found.encoders, found.orders, A, B)


def dense_posterior(found, X, new):
    """Mean and covariance of f at new rows, of a model's own kernel, noise and weights."""
    return oracle.posterior(
        own_kernel(found, X, X),
        found.rows.variance,
        own_kernel(found, X, new),
        own_kernel(found, new, new),
        found.rows.y,
    )


def assert_sampled(found, exact, n_samples):
    """Variances by samples are the exact ones, times chi-square / S."""
    error = (found / exact - 1.0) / np.sqrt(2.0 / n_samples)
    assert np.abs(error).max() < SAMPLED["max"]
    assert np.sqrt(np.mean(np.square(error))) < SAMPLED["rms"]


# Planting


@pytest.mark.parametrize("n_trees", [1, 2, 5, 16])
def test_grids_are_spread_evenly(n_trees):
    rng = np.random.default_rng(0)
    X = rng.random((50, 3))
    encoders = [BitEncoder(precision=4, scaling=s).fit(X) for s in ("minmax", "ecdf")]
    grids = draw_grids(encoders, n_trees, rng)
    assert [grid.scaling for grid in grids] == [("minmax", "ecdf")[t % 2] for t in range(n_trees)]
    shifts = np.array([grid.shift_ for grid in grids])
    assert ((shifts >= 0) & (shifts < 1)).all()
    for grid in grids:
        np.testing.assert_array_equal(grid.precision_, [5, 5, 5])
    if n_trees == 16:
        for column in shifts.T:  # one shift in each sixteenth
            np.testing.assert_array_equal(np.sort((16 * column).astype(int)), np.arange(16))
        at_random = [qmc.discrepancy(rng.random((16, 3))) for _ in range(20)]
        assert qmc.discrepancy(shifts) < 0.5 * np.median(at_random)


def test_every_encoder_has_evenly_spread_grids():
    X = np.random.default_rng(0).random((50, 7))
    encoders = [BitEncoder(precision=4, scaling=s).fit(X) for s in ("minmax", "ecdf")]
    grids = draw_grids(encoders, 16, np.random.default_rng(0))
    for first in (0, 1):
        shifts = np.array([grid.shift_ for grid in grids[first::2]])
        np.testing.assert_array_equal((shifts < 0.5).sum(axis=0), np.full(7, 4))


def test_grids_of_very_many_features(monkeypatch):
    monkeypatch.setattr("triegp.forest.planting.MAX_SOBOL", 2)
    X = np.random.default_rng(0).random((20, 3))
    grids = draw_grids([BitEncoder(precision=2).fit(X)], 4, np.random.default_rng(0))
    shifts = np.array([grid.shift_ for grid in grids])
    assert ((shifts >= 0) & (shifts < 1)).all()
    assert np.unique(shifts).size == 12


@pytest.mark.parametrize("start", [lambda e, rng: start_even(e, 0.7, rng), start_random])
def test_starts_take_a_features_bits_in_turn(start):
    rng = np.random.default_rng(0)
    encoder = BitEncoder(precision=[3, 5, 1], shift="random", random_state=0)
    encoder.fit(rng.random((40, 3)))
    np.testing.assert_array_equal(encoder.precision_, [4, 6, 2])
    np.testing.assert_array_equal(features_of(encoder), [0] * 4 + [1] * 6 + [2] * 2)
    np.testing.assert_array_equal(depths_of(encoder), [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1])
    seen = set()
    for _ in range(20):
        phi = start(encoder, rng)
        orders = Parameters((phi,), np.zeros(1), 0.0).orders()
        assert orders[0].scale == 1
        rank = np.argsort(orders[0].bits)
        for j in range(3):
            assert (np.diff(rank[features_of(encoder) == j]) > 0).all()
        assert (np.diff(orders[0].levels) < 0).all()
        seen.add(tuple(orders[0].bits.tolist()))
    assert len(seen) > 3  # trees differ


def test_the_starts_profiles():
    encoder = BitEncoder(precision=6).fit(np.random.default_rng(0).random((40, 2)))
    rng = np.random.default_rng(1)
    order = Parameters((start_random(encoder, rng),), np.log([3.0]), 0.0).orders()[0]
    np.testing.assert_allclose(order.levels, 3.0 * np.exp(-np.arange(12) / 2), **VALUE)
    theta = np.exp(start_even(encoder, 0.7, rng)).reshape(2, 6)
    np.testing.assert_allclose(theta[:, 1:] / theta[:, :-1], 0.5**0.7, **VALUE)


def test_rescaling_multiplies_every_variance():
    problem = make_problem()
    other = rescale(problem.parameters, 2.5)
    assert other.noise == pytest.approx(2.5 * problem.parameters.noise)
    for a, b in zip(other.orders(), problem.orders, strict=True):
        np.testing.assert_allclose(a.remaining, 2.5 * b.remaining, **VALUE)
    np.testing.assert_allclose(
        problem.kernel(orders=other.orders()), 2.5 * problem.kernel(), **VALUE
    )


# The gradient


def exact_gradient(problem, targets=None):
    """The gradient with exact solves, and probes whose mean z z' is I."""
    n = problem.rows.y.size
    targets = problem.rows.y[:, None] if targets is None else targets
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    noise = row_noise(problem.orders, problem.parameters.noise, problem.rows)
    weight = problem.rows.weight
    dense = problem.kernel() + np.diag(noise if weight is None else noise / weight)
    probes = np.sqrt(n) * np.eye(n)
    return forest_gradient(
        forest,
        problem.orders,
        np.linalg.solve(dense, targets),
        probes,
        np.linalg.solve(dense, probes),
        weight,
        noise,
    )


def difference(value, at, step=1e-5):
    """Central differences of value(x) by every entry of x."""
    out = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        out[i] = (value(at + move) - value(at - move)) / (2.0 * step)
    return out


@pytest.mark.parametrize(
    ("weighted", "known"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_the_gradient_is_that_of_the_dense_nll(weighted, known):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known)
    found, start = exact_gradient(problem), problem.parameters

    def by_phi(t):
        def value(phi):
            parts = (*start.phi[:t], phi, *start.phi[t + 1 :])
            return problem.nll(replace(start, phi=parts))

        return difference(value, start.phi[t])

    for t in range(3):
        np.testing.assert_allclose(found.phi[t], by_phi(t), **DIFFERENCE)
    by_scale = difference(lambda s: problem.nll(replace(start, log_scale=s)), start.log_scale)
    np.testing.assert_allclose(found.log_scale, by_scale, **DIFFERENCE)
    by_noise = difference(
        lambda v: problem.nll(replace(start, log_noise=float(np.log(v[0])))),
        np.array([start.noise]),
    )
    np.testing.assert_allclose(found.noise, by_noise[0], **DIFFERENCE)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_several_targets_is_their_sum(weighted):
    problem = make_problem(n=40, n_trees=3, weighted=weighted)
    targets = np.random.default_rng(1).standard_normal((40, 3))
    both = exact_gradient(problem, targets)
    parts = [exact_gradient(problem, targets[:, [k]]) for k in range(3)]
    np.testing.assert_allclose(both.log_scale, sum(p.log_scale for p in parts), **VALUE)
    np.testing.assert_allclose(both.noise, sum(p.noise for p in parts), **VALUE)
    for t in range(3):
        np.testing.assert_allclose(both.phi[t], sum(p.phi[t] for p in parts), **VALUE)


def test_random_probes_give_the_gradient_on_average():
    problem = make_problem(n=40, n_trees=3)
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    dense = problem.kernel() + np.diag(row_noise(problem.orders, 0.1, problem.rows))
    alpha = np.linalg.solve(dense, problem.rows.y[:, None])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        z = rng.choice([-1.0, 1.0], size=(40, 4))
        solved = np.linalg.solve(dense, z)
        part = forest_gradient(forest, problem.orders, alpha, z, solved)
        found.append(np.concatenate([*part.phi, part.log_scale, [part.noise]]))
    exact = exact_gradient(problem)
    exact = np.concatenate([*exact.phi, exact.log_scale, [exact.noise]])
    bar = np.std(found, axis=0, ddof=1) / np.sqrt(200)
    assert (np.abs(np.mean(found, axis=0) - exact) < 4.5 * bar + 1e-12).all()


# Conditioning


@pytest.mark.parametrize(
    ("weighted", "known"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.usefixtures("tight")
def test_the_mean_is_the_dense_one(weighted, known):
    problem = make_problem(n=120, d=3, n_trees=5, weighted=weighted, known=known)
    found = problem.condition()
    noise = row_noise(problem.orders, problem.parameters.noise, problem.rows)
    variance = noise if problem.rows.weight is None else noise / problem.rows.weight
    dense = problem.kernel() + np.diag(variance)
    alpha = np.linalg.solve(dense, problem.rows.y)
    factor = 1.0 if known else problem.rows.y @ alpha / copies_of(problem.rows).sum()
    mean = problem.kernel(problem.new, problem.X) @ alpha
    np.testing.assert_allclose(forest_mean(found, problem.new), mean, **SOLVED)
    np.testing.assert_allclose(forest_mean(found, problem.X), problem.kernel() @ alpha, **SOLVED)
    np.testing.assert_allclose(found.alpha, alpha / factor, **SOLVED)
    np.testing.assert_allclose(found.variance, factor * variance, **SOLVED)
    assert found.noise == pytest.approx(factor * problem.parameters.noise, rel=1e-7)
    assert found.new_noise == pytest.approx(
        factor * row_noise(problem.orders, problem.parameters.noise, replace_known(problem.rows))[0]
    )
    assert found.residual <= 1e-11


def replace_known(rows):
    return Measured(rows.y, None, rows.weight)


@pytest.mark.usefixtures("tight")
def test_the_scale_is_the_most_likely_one():
    problem = make_problem()
    found = problem.condition()
    factor = found.noise / problem.parameters.noise
    at = [problem.nll(rescale(problem.parameters, factor * s)) for s in (0.99, 1.0, 1.01)]
    assert at[1] == min(at)
    for a, b in zip(found.orders, problem.orders, strict=True):
        assert a.scale == pytest.approx(factor * b.scale)
        np.testing.assert_array_equal(a.bits, b.bits)


@pytest.mark.usefixtures("tight")
def test_an_integer_weight_is_that_many_copies():
    problem = make_problem(weighted=True)
    copies = np.repeat(np.arange(80), copies_of(problem.rows))
    rows = Measured(problem.rows.y[copies], None, None)
    other = replace(problem, X=problem.X[copies], rows=rows)
    one, two = problem.condition(), other.condition()
    np.testing.assert_allclose(
        forest_mean(one, problem.new), forest_mean(two, problem.new), **SOLVED
    )
    assert one.noise == pytest.approx(two.noise, rel=1e-6)
    np.testing.assert_allclose(
        forest_variance(one, problem.new), forest_variance(two, problem.new), **SOLVED
    )
    for a, b in zip(leave_out(one), leave_out(two), strict=True):
        np.testing.assert_allclose(a[copies], b, **SOLVED)


@pytest.mark.usefixtures("tight")
def test_rows_outside_the_box_are_unrelated():
    problem = make_problem()
    found = problem.condition()
    prior = found.forest.prior_variance
    far = np.vstack([problem.new[:3], problem.new[3:6] + 5.0, problem.new[6:8], [[0.5, -0.1]]])
    out = np.array([3, 4, 5, 8])
    inner = np.setdiff1d(np.arange(9), out)
    mean, cov = dense_posterior(found, problem.X, far[inner])
    np.testing.assert_allclose(forest_mean(found, far)[inner], mean, **SOLVED)
    np.testing.assert_array_equal(forest_mean(found, far)[out], 0.0)
    for kind in ("exact", "samples", "auto", "cheap"):
        var = forest_variance(replace(found, manner=Manner(kind)), far)
        np.testing.assert_array_equal(var[out], prior)
        assert (var[inner] < prior).all()
    whole = forest_covariance(found, far)
    np.testing.assert_allclose(whole[np.ix_(inner, inner)], cov, **SOLVED)
    np.testing.assert_array_equal(whole[out][:, out], prior * np.eye(4))
    assert not whole[np.ix_(inner, out)].any()
    draws = draw_forest(found, far, 400, np.random.default_rng(0))
    assert_sampled(np.mean(np.square(draws[out]), axis=1), prior, 400)
    only = far[out]  # nothing left to look up
    np.testing.assert_array_equal(forest_mean(found, only), 0.0)
    np.testing.assert_array_equal(forest_variance(found, only), prior)
    np.testing.assert_array_equal(forest_covariance(found, only), prior * np.eye(4))
    assert draw_forest(found, only, 2, np.random.default_rng(0)).shape == (4, 2)


def test_rows_beyond_the_box_are_moved_to_its_border_where_asked():
    problem = make_problem(outside="clip")
    found = problem.condition()
    border = np.clip(problem.new + 0.7, problem.X.min(axis=0), problem.X.max(axis=0))
    np.testing.assert_array_equal(forest_mean(found, problem.new + 0.7), forest_mean(found, border))


# Variances and samples


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [5, 400])
@pytest.mark.usefixtures("tight")
def test_variances_by_solves_are_the_dense_ones(weighted, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    problem = make_problem(n=120, d=3, n_trees=5, weighted=weighted, known=weighted)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(forest_variance(found, problem.new), np.diag(cov), **SOLVED)
    np.testing.assert_allclose(forest_covariance(found, problem.new), cov, **SOLVED)
    auto = replace(found, manner=Manner("auto"))  # 30 rows are fewer than 200 samples
    np.testing.assert_array_equal(
        forest_variance(auto, problem.new), forest_variance(found, problem.new)
    )


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
def test_variances_by_solves_are_good_enough_as_they_are(noise, monkeypatch):
    monkeypatch.setattr(model, "RANK", 30)
    problem = quiet_problem(noise)
    found = problem.condition()
    _, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(forest_variance(found, problem.new), np.diag(cov), rtol=1e-2)
    np.testing.assert_allclose(
        np.diag(forest_covariance(found, problem.new)), np.diag(cov), rtol=1e-2
    )


@pytest.mark.parametrize(("noise", "rank"), [(0.1, 30), (1e-5, 400)])
def test_variances_by_samples_are_within_their_error(noise, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    monkeypatch.setattr(spread, "SAMPLE_TOLERANCE", 1e-6)
    problem = quiet_problem(noise)
    found = problem.condition(Manner("samples", error=0.15, seed=3))
    assert found.manner.n_samples == 89
    _, cov = dense_posterior(found, problem.X, problem.new)
    assert_sampled(forest_variance(found, problem.new), np.diag(cov), 89)


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
@pytest.mark.parametrize("what", ["variance", "diagonal"])
def test_loose_solves_add_less_than_the_samples_error(what, noise, monkeypatch):
    monkeypatch.setattr(model, "RANK", 30)
    monkeypatch.setattr(spread, "EXACT_ROWS", 0)
    problem = quiet_problem(noise)
    found = problem.condition(Manner("samples", error=np.sqrt(2.0 / 64)))

    def sample():
        if what == "variance":
            return forest_variance(found, problem.new)
        return with_diagonal(found).known_diagonal

    loose = sample()
    monkeypatch.setattr(spread, "SAMPLE_TOLERANCE", 1e-6)
    assert np.abs(loose / sample() - 1.0).max() < np.sqrt(2.0 / 64)  # of the same draws


def test_the_same_seed_gives_the_same_variances_on_any_number_of_threads():
    problem = make_problem(n=300, n_trees=6, d=3)

    def variance(seed, n_threads):
        found = problem.condition(Manner("samples", 0.25, seed), CpuEngine(n_threads))
        draws = draw_forest(found, problem.new, 3, np.random.default_rng(1))
        return np.column_stack([forest_variance(found, problem.new), draws])

    one = variance(0, 1)
    np.testing.assert_array_equal(one, variance(0, 1))
    np.testing.assert_array_equal(one, variance(0, 3))
    assert not np.isclose(one[:, 0], variance(1, 1)[:, 0]).any()


def assert_covariance(draws, mean, cov):
    """Draws (m, S) have this mean and covariance, to Monte Carlo error."""
    n_samples = draws.shape[1]
    spread = np.diag(cov)
    off = (draws.mean(axis=1) - mean) / np.sqrt(spread / n_samples)
    assert np.abs(off).max() < 4.5
    centred = draws - mean[:, None]
    bar = np.sqrt((np.outer(spread, spread) + np.square(cov)) / n_samples)
    error = (centred @ centred.T / n_samples - cov) / bar
    assert np.abs(error).max() < SAMPLED["max"]
    assert np.sqrt(np.mean(np.square(error))) < SAMPLED["rms"]


def test_draws_of_the_prior_have_its_covariance():
    problem = make_problem(n=40, n_trees=11)  # more than are held at once
    forest = build_forest(problem.codes, problem.orders, CpuEngine())
    draws = draw_prior(forest, 4000, np.random.default_rng(0))
    assert_covariance(draws, np.zeros(40), problem.kernel())
    again = draw_prior(forest, 4000, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, again)


def test_draws_of_the_prior_at_equal_rows_are_equal():
    problem = make_problem(n=20)
    twice = replace(problem, X=np.repeat(problem.X, 2, axis=0))
    forest = build_forest(twice.codes, twice.orders, CpuEngine())
    draws = draw_prior(forest, 3, np.random.default_rng(0))
    np.testing.assert_allclose(draws[::2], draws[1::2], **VALUE)
    alone = replace(problem, X=problem.X[:1])
    one = draw_prior(
        build_forest(alone.codes, alone.orders, CpuEngine()), 4000, np.random.default_rng(0)
    )
    assert_covariance(one, np.zeros(1), alone.kernel())


@pytest.mark.usefixtures("tight")
def test_draws_have_the_posteriors_mean_and_covariance():
    problem = make_problem(n=60)
    found = problem.condition()
    new = np.vstack([problem.new[:12], problem.new[:1], problem.X[:3]])
    mean, cov = dense_posterior(found, problem.X, new)
    draws = draw_forest(found, new, 1600, np.random.default_rng(0))
    assert draws.shape == (16, 1600)
    np.testing.assert_allclose(draws[0], draws[12], **SOLVED)  # the same row twice
    assert_covariance(draws, mean, cov)


# Leaving rows out


def dense_left_out(found, X):
    """Mean and variance of a new observation at each row, one copy of it left out: n refits."""
    counts = copies_of(found.rows)
    copies = np.repeat(np.arange(counts.size), counts)
    first = np.cumsum(counts) - counts
    noise = np.broadcast_to(found.rows.noise, counts.shape)
    dense = own_kernel(found, X, X)[np.ix_(copies, copies)]
    mean, var = oracle.leave_one_out(dense, noise[copies], found.rows.y[copies])
    return mean[first], var[first] + noise


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_leaving_a_row_out_is_a_refit_without_it(weighted):
    problem = make_problem(n=40, weighted=weighted, known=weighted)
    found = problem.condition()
    known = with_diagonal(found)
    dense = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    np.testing.assert_allclose(known.known_diagonal, np.diag(np.linalg.inv(dense)), **SOLVED)
    assert with_diagonal(known) is known
    for a, b in zip(leave_out(known), dense_left_out(found, problem.X), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.parametrize(("noise", "rank"), [(0.1, 30), (1e-5, 400)])
def test_the_diagonal_by_samples_is_within_its_error(noise, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    monkeypatch.setattr(spread, "SAMPLE_TOLERANCE", 1e-6)
    problem = quiet_problem(noise)
    found = problem.condition()
    exact = with_diagonal(found).known_diagonal
    monkeypatch.setattr(spread, "EXACT_ROWS", 0)
    monkeypatch.setattr(spread, "DIAGONAL_SAMPLES", 128)
    assert spread.diagonal_samples(120) == 128
    sampled = with_diagonal(found).known_diagonal
    assert_sampled(126 / 128 * sampled, exact, 128)
    # 1 / diagonal is unbiased: its mean over rows is off by no more than rows that are correlated
    # may be.
    assert abs(np.mean(exact / sampled) - 1.0) < 3.0 * np.sqrt(2.0 / 128) / np.sqrt(20)


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_out_by_samples_is_nearly_exact(weighted, monkeypatch):
    problem = make_problem(n=40, weighted=weighted)
    found = problem.condition()
    mean, var = dense_left_out(found, problem.X)
    monkeypatch.setattr(spread, "EXACT_ROWS", 0)
    monkeypatch.setattr(spread, "DIAGONAL_SAMPLES", 256)
    sampled_mean, sampled_var = leave_out(found)
    # y - mean and the variance are off by at most the diagonal's relative error
    bar = np.sqrt(2.0 / 256)
    assert np.abs((sampled_mean - mean) / (found.rows.y - mean)).max() < 5 * bar
    assert np.abs(sampled_var / var - 1.0).max() < 5 * bar
    noise = np.broadcast_to(found.rows.noise, var.shape)
    assert (sampled_var >= noise * (1 - 1e-12)).all()


# More rows


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


# One tree, many trees, the same tree again


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_one_tree_is_that_tree(weighted):
    problem = make_problem(n=100, n_trees=1, weighted=weighted, known=weighted)
    found = problem.condition()
    codes, order = problem.codes[0], found.orders[0]
    alone = condition(
        build_trie(codes, order),
        codes,
        order,
        problem.rows.y,
        found.noise,
        known_noise=problem.rows.known_noise,
        sample_weight=problem.rows.weight,
    )
    far = np.vstack([problem.new, problem.new[:1] + 5.0])
    there = predict(alone, problem.encoders[0].encode(far))
    np.testing.assert_allclose(forest_mean(found, far), there.mean, **SOLVED)
    np.testing.assert_allclose(forest_variance(found, far), there.var, **SOLVED)
    left = leave_one_out(alone)
    mean, var = leave_out(found)
    np.testing.assert_allclose(mean, left.mean, **SOLVED)
    np.testing.assert_allclose(var, left.var + alone.rows.noise, **SOLVED)
    assert found.new_noise == pytest.approx(alone.new_noise)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("tight")
def test_the_cheap_variance_of_one_tree_is_exact(weighted):
    problem = make_problem(n=100, n_trees=1, weighted=weighted, known=weighted)
    found = problem.condition(Manner("cheap"))
    exact = forest_variance(replace(found, manner=EXACT), problem.new)
    np.testing.assert_allclose(forest_variance(found, problem.new), exact, rtol=1e-5)


@pytest.mark.usefixtures("tight")
def test_the_order_of_the_trees_changes_nothing():
    problem = make_problem(n_trees=5)
    turn = np.array([3, 1, 4, 0, 2])
    start = problem.parameters
    other = replace(
        problem,
        encoders=tuple(problem.encoders[t] for t in turn),
        parameters=Parameters(
            tuple(start.phi[t] for t in turn), start.log_scale[turn], start.log_noise
        ),
    )
    one, two = problem.condition(), other.condition()
    assert_same(one, two, problem.new)


def assert_same(one, two, new):
    """The same predictions, to rounding."""
    np.testing.assert_allclose(one.alpha, two.alpha, **SOLVED)
    for work in (forest_mean, forest_variance, forest_covariance):
        np.testing.assert_allclose(work(one, new), work(two, new), **SOLVED)
    for a, b in zip(leave_out(one), leave_out(two), strict=True):
        np.testing.assert_allclose(a, b, **SOLVED)


@pytest.mark.usefixtures("tight")
def test_a_tree_twice_at_half_its_scale_is_that_tree():
    problem = make_problem()
    start = problem.parameters
    twice = Parameters(start.phi * 2, np.tile(start.log_scale - np.log(2.0), 2), start.log_noise)
    other = replace(problem, encoders=problem.encoders * 2, parameters=twice)
    assert_same(problem.condition(), other.condition(), problem.new)


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9, 1e-13])
@pytest.mark.parametrize("rank", [20, 400])
def test_almost_no_noise_and_equal_rows_give_the_answer_or_a_warning(noise, rank, monkeypatch):
    monkeypatch.setattr(model, "RANK", rank)
    problem = make_problem(n=60, n_trees=3)
    twice = np.repeat(np.arange(60), 2)
    start = problem.parameters
    steep = tuple(8.0 * phi for phi in start.phi)  # next to no nuggets either
    problem = replace(
        problem,
        X=problem.X[twice],
        rows=Measured(problem.rows.y[twice], None, None),
        parameters=Parameters(steep, start.log_scale, float(np.log(noise))),
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NotConverged)
        found = problem.condition()
        mean, var = forest_mean(found, problem.new), forest_variance(found, problem.new)
        left_mean, left_var = leave_out(found)
    assert np.isfinite([mean, var]).all()
    assert (var >= 0).all()
    assert np.isfinite([left_mean, left_var]).all()
    assert (left_var > 0).all()
    if found.residual > model.TOLERANCE:
        assert any(issubclass(w.category, NotConverged) for w in told)
        return
    dense, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(mean, dense, atol=1e-3 * problem.rows.y.std())
    if not told:
        bar = 1e-3 * found.forest.prior_variance
        np.testing.assert_allclose(var, np.diag(cov), rtol=0.02, atol=bar)


def test_one_row():
    problem = make_problem()
    one = replace(problem, X=problem.X[:1], rows=Measured(problem.rows.y[:1], None, None))
    found = one.condition()
    _, cov = dense_posterior(found, one.X, problem.new)
    np.testing.assert_allclose(forest_variance(found, problem.new), np.diag(cov), **SOLVED)
    mean, var = leave_out(found)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(var, found.forest.prior_variance + found.new_noise, rtol=1e-9)
    assert calibrate_forest(found).tails is GAUSSIAN


# Tails


def around_zero(tails):
    return spread_out(tails, np.zeros(1), np.ones(1))


def test_gaussian_residuals_have_gaussian_quantiles():
    score = np.random.default_rng(0).standard_normal(5000)
    tails = learn_tails(score)
    levels = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    found = quantiles(around_zero(tails), levels)[0]
    np.testing.assert_allclose(found, ndtri(levels), atol=0.1)
    assert tails.weight.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_wrong_scale_is_put_right(factor):
    score = factor * np.random.default_rng(0).standard_normal(5000)
    found = quantiles(around_zero(learn_tails(score)), [0.05, 0.25, 0.75, 0.95])[0]
    np.testing.assert_allclose(found, factor * ndtri([0.05, 0.25, 0.75, 0.95]), rtol=0.08)


def test_heavy_tails_get_weight():
    rng = np.random.default_rng(0)
    score, fresh = rng.standard_t(2, (2, 3000))
    tails = learn_tails(score)
    assert tails.weight[tails.factor >= 2].sum() > 0.05
    assert (
        tails.weight[tails.factor >= 2].sum()
        > 5 * learn_tails(rng.standard_normal(3000)).weight[tails.factor >= 2].sum()
    )

    def mean_log_density(tails):
        at = spread_out(tails, np.zeros(3000), np.ones(3000))
        return log_density(at, fresh).mean()

    assert mean_log_density(tails) > mean_log_density(GAUSSIAN) + 0.3
    best = np.quantile(score, [0.05, 0.25, 0.75, 0.95])
    found = quantiles(around_zero(tails), [0.05, 0.25, 0.75, 0.95])[0]
    np.testing.assert_allclose(found, best, rtol=0.15)


def test_the_tails_are_the_most_likely_ones():
    score = np.random.default_rng(0).standard_t(3, 800)
    tails = learn_tails(score)
    # Without the one observation that is added, weights must fulfil the conditions of the maximum.
    weight = (tails.weight * 801 - UNSEEN / UNSEEN.sum()) / 800
    assert (weight > -1e-12).all()
    density = np.exp(-0.5 * np.square(score / FACTORS[:, None])) / FACTORS[:, None]
    slope = np.mean(density / (weight @ density), axis=1)
    assert slope.max() < 1.0 + 1e-6
    np.testing.assert_allclose(slope[weight > 1e-3], 1.0, atol=1e-5)


@pytest.mark.parametrize(
    "score",
    [
        np.random.default_rng(0).standard_normal(500),
        np.zeros(2),
        np.full(50, 1e200),
        np.array([0.0, 1e-300, 1e300, -1e300]),
    ],
)
def test_no_tail_is_without_weight(score):
    tails = learn_tails(score)
    assert (tails.weight >= 0).all()
    assert (tails.weight[FACTORS >= 1] > 0).all()
    share = UNSEEN / UNSEEN.sum() / (score.size + 1)
    assert (tails.weight >= share * (1 - 1e-12)).all()
    assert tails.weight.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(tails.factor, FACTORS)


def test_the_second_moment_is_the_mixtures_variance():
    tails = learn_tails(np.random.default_rng(0).standard_t(3, 400))
    mixture = spread_out(tails, np.array([2.0]), np.array([0.3]))
    assert mixture_var(mixture)[0] == pytest.approx(0.3 * second_moment(tails))
    assert mixture_mean(mixture)[0] == pytest.approx(2.0)
    assert second_moment(GAUSSIAN) == 1


def test_weights_count_as_copies_in_the_tails():
    rng = np.random.default_rng(0)
    score, counts = rng.standard_t(3, 400), rng.integers(0, 4, 400)
    levels = [0.001, 0.05, 0.25, 0.75, 0.95, 0.999]
    weighted = learn_tails(score, counts.astype(float))
    copied = learn_tails(np.repeat(score, counts))
    np.testing.assert_allclose(
        quantiles(around_zero(weighted), levels), quantiles(around_zero(copied), levels), rtol=1e-4
    )


def test_too_few_residuals_leave_the_tails_gaussian():
    for n in (0, 1):
        assert learn_tails(np.ones(n)) is GAUSSIAN


def test_many_residuals_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr("triegp.forest.tails.CALIBRATION_ROWS", 500)
    score = np.sort(np.random.default_rng(0).standard_normal(5000))  # its beginning is not like it
    found = quantiles(around_zero(learn_tails(score)), [0.05, 0.95])[0]
    np.testing.assert_allclose(found, ndtri([0.05, 0.95]), atol=0.15)


def test_calibrating_uses_the_residuals_of_left_out_rows():
    problem = make_problem(n=40, weighted=True)
    found = problem.condition()
    calibrated = calibrate_forest(found)
    mean, var = dense_left_out(found, problem.X)
    expected = learn_tails((problem.rows.y - mean) / np.sqrt(var), problem.rows.weight)
    np.testing.assert_allclose(
        quantiles(around_zero(calibrated.tails), [0.05, 0.95]),
        quantiles(around_zero(expected), [0.05, 0.95]),
        rtol=1e-3,
    )
    assert calibrated.known_diagonal is not None


# Training


def train(problem, watch=None, progress=lambda *_: None, **settings):
    schedule = Schedule(**{"n_steps": 12, "check_every": 4, "rank": 60, **settings})
    return train_forest(
        problem.parameters,
        problem.codes,
        problem.features,
        problem.rows,
        schedule,
        CpuEngine(),
        np.random.default_rng(0),
        watch or Stopwatch(),
        progress,
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
def test_training_returns_the_best_it_saw(rate, known):
    problem = make_problem(n=150, known=known)
    found = train(problem, rate=rate)
    nll = problem.nll(found.parameters)
    assert nll == pytest.approx(150 * min(found.nll_per_row), rel=1e-8)
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
    rows = Measured(problem.rows.y[copies], None, None)
    other = train(replace(problem, X=problem.X[copies], rows=rows), n_steps=24)
    nll, copied = problem.nll(found.parameters), problem.nll(other.parameters)
    assert nll <= problem.nll() + 1e-6
    assert not found.diverged
    assert nll == pytest.approx(copied, abs=0.05 * abs(problem.nll() - copied) + 5.0)


def test_training_finds_the_feature_that_matters():
    rng = np.random.default_rng(0)
    problem = make_problem(n=200, d=3, n_trees=4)
    y = np.sign(problem.X[:, 1] - 0.4) + 0.1 * rng.standard_normal(200)
    problem = replace(problem, rows=Measured(y - y.mean(), None, None))
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
    assert problem.nll(found.parameters) == pytest.approx(60 * min(found.nll_per_row), rel=1e-8)


def test_training_gives_up_where_solves_fail(monkeypatch):
    monkeypatch.setattr(training, "MAX_SOLVE_STEPS", 1)
    problem = make_problem(n=150, noise=1e-4)
    found = train(problem, rank=2, tolerance=1e-3)
    assert found.diverged
    assert found.n_steps < 12
    assert problem.nll(found.parameters) <= problem.nll() + 1e-6


def test_training_is_the_same_on_any_number_of_threads():
    problem = make_problem(n=100)

    def run(n_threads):
        return train_forest(
            problem.parameters,
            problem.codes,
            problem.features,
            problem.rows,
            Schedule(n_steps=6, rank=50),
            CpuEngine(n_threads),
            np.random.default_rng(0),
            Stopwatch(),
            lambda *_: None,
        ).parameters

    one, two = run(1), run(3)
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


# All of it


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
    return fit_forest(
        [encoder],
        problem.X if X is None else X,
        problem.rows if rows is None else rows,
        plan,
        np.random.default_rng(0),
        CpuEngine(n_threads),
        Stopwatch(),
        lambda *_: None,
        trained,
    )


@pytest.mark.parametrize("start", ["even", "random", "trained"])
def test_a_fitted_forest_predicts_what_its_kernel_says(start):
    problem = make_problem(n=99)
    trained = [(problem.encoders[t], problem.orders[t]) for t in range(3)]
    grown = fit(problem, start=start, trained=trained)
    found = grown.model
    assert [stage.n_steps for stage in grown.stages] == [4, 4]
    mean, cov = dense_posterior(found, problem.X, problem.new)
    np.testing.assert_allclose(forest_mean(found, problem.new), mean, atol=1e-4)
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
