"""Mixtures of Gaussians against scipy's own densities, numerical integration and bisection."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.stats import norm

from tolerances import (
    CHAINED,
    DENSE,
    FITTED,
    LAST_BIT,
    ROUNDING,
    SAMPLED,
    SLSQP,
    STACKED,
    SUMMED,
    VALUE,
)
from triegp.mixture.weights import soften, stack
from triegp.models.distribution import (
    PredictiveDistribution,
    component_log_density,
    log_density,
    quantiles,
)

LEVELS = np.array([1e-6, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-6])
LEVEL_ERROR = 1e-9  # of the distribution function at a quantile, relative to the thinner tail


def make_mixture(seed=0, n_members=4, n_rows=30):
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=n_members)
    shape = (n_members, n_rows)
    return PredictiveDistribution(
        weight / weight.sum(), rng.standard_normal(shape), rng.uniform(0.01, 2.0, shape)
    )


def row_of(mixture, row):
    """The mixture at one of its rows."""
    parts = mixture.means[:, [row]], mixture.variances[:, [row]]
    return PredictiveDistribution(mixture.weights, *parts)


def column(weight, mean, sd):
    """A mixture at one row."""
    mean, sd = np.array(mean, float), np.array(sd, float)
    return PredictiveDistribution(np.array(weight, float), mean[:, None], sd[:, None] ** 2)


HOSTILE = {
    "one member": column([1.0], [3.0], [0.1]),
    "zero weight far away": column([0.4, 0.0, 0.6], [0.0, 1e9, 1.0], [1.0, 1e-9, 2.0]),
    "zero weight, wide": column([1.0, 0.0], [0.0, 0.0], [1.0, 1e12]),
    "1e6 deviations apart": column([0.3, 0.7], [0.0, 1e6], [1.0, 1.0]),
    "1e6 deviations apart, three": column([0.2, 0.5, 0.3], [-1e6, 0.0, 1e6], [1.0, 1.0, 1.0]),
    "far and narrow": column([0.3, 0.7], [-1.0, 1.0], [1e-6, 1e-6]),
    "narrow in wide": column([0.5, 0.5], [0.0, 0.1], [1.0, 1e-12]),
    "narrow in very wide": column([0.9, 0.1], [0.0, 0.0], [1e-10, 1e10]),
    "tiny": column([0.4, 0.6], [0.0, 1e-150], [1e-150, 2e-150]),
    "huge": column([0.4, 0.6], [0.0, 1e150], [1e150, 2e150]),
    "tiny and huge": column([0.4, 0.6], [0.0, 0.0], [1e-100, 1e100]),
    "almost no weight": column([1e-12, 1.0 - 1e-12], [-50.0, 0.0], [1.0, 1.0]),
    "copies": column([0.25, 0.75], [2.0, 2.0], [0.5, 0.5]),
}


def test_moments_and_density_against_scipy():
    mixture = make_mixture()
    y = np.random.default_rng(1).standard_normal(30)
    density = mixture.weights @ norm.pdf(y, mixture.means, np.sqrt(mixture.variances))
    np.testing.assert_allclose(log_density(mixture, y), np.log(density), **VALUE)
    below = mixture.weights @ norm.cdf(y, mixture.means, np.sqrt(mixture.variances))
    np.testing.assert_allclose(mixture.cdf(y), below, **VALUE)
    np.testing.assert_allclose(
        component_log_density(mixture.means, mixture.variances, y),
        norm.logpdf(y, mixture.means, np.sqrt(mixture.variances)),
        **VALUE,
    )


@pytest.mark.parametrize("n_rows", [1, 700])
def test_variance_is_that_of_the_definition(n_rows):
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.ones(4))
    means, variances = 100.0 + rng.normal(size=(4, n_rows)), rng.random((4, n_rows))
    mean = np.einsum("k,km->m", weights, means)
    var = np.einsum("k,km->m", weights, variances + np.square(means - mean))
    for own in (means, np.asfortranarray(means)):
        mixture = PredictiveDistribution(weights, own, variances)
        np.testing.assert_allclose(mixture.mean(), mean, **VALUE)
        np.testing.assert_allclose(mixture.var(), var, **VALUE)
    shared = PredictiveDistribution(weights, np.broadcast_to(means[0], means.shape), variances)
    copied = PredictiveDistribution(weights, np.tile(means[0], (4, 1)), variances)
    np.testing.assert_array_equal(shared.mean(), means[0])
    np.testing.assert_allclose(shared.mean(), copied.mean(), **VALUE)
    np.testing.assert_allclose(shared.var(), copied.var(), **VALUE)
    shared.mean()[0] = 0.0  # the result is the caller's
    assert shared.means[0, 0] == means[0, 0]


def test_moments_are_integrals_of_the_density():
    mixture = make_mixture(n_rows=3)
    for row in range(3):
        one = PredictiveDistribution(
            mixture.weights, mixture.means[:, [row]], mixture.variances[:, [row]]
        )

        def moment(power, centre, one=one):
            def integrand(x):
                return (x - centre) ** power * np.exp(log_density(one, np.array([x]))[0])

            return quad(integrand, -15, 15, limit=400, epsabs=1e-12, points=one.means[:, 0])[0]

        assert moment(0, 0.0) == pytest.approx(1.0, rel=CHAINED)
        mean = moment(1, 0.0)
        assert mixture.mean()[row] == pytest.approx(mean, abs=CHAINED)
        assert mixture.var()[row] == pytest.approx(moment(2, mean), rel=SUMMED)


def test_log_density_where_the_density_underflows():
    mixture = column([0.5, 0.5, 0.0], [0.0, 100.0, 1e6], [1.0, 1.0, 1.0])
    expected = np.log(0.5) + norm.logpdf(1e6, 100.0, 1.0)
    np.testing.assert_allclose(log_density(mixture, np.array([1e6])), [expected], rtol=ROUNDING)
    beyond = column([0.5, 0.5], [0.0, 0.0], [1e-150, 1e-160])
    assert log_density(beyond, np.array([1e10]))[0] == -np.inf  # no warning, no nan


@pytest.mark.parametrize("mixture", HOSTILE.values(), ids=HOSTILE)
def test_quantiles_of_hostile_mixtures(mixture):
    found = quantiles(mixture, LEVELS)
    assert found.shape == (1, LEVELS.size)
    assert np.isfinite(found).all()
    assert (np.diff(found[0]) >= 0).all()
    for level, x in zip(LEVELS, found[0], strict=True):
        # Where a step of one ulp jumps over the level, it must lie between both sides.
        below, above = (
            mixture.cdf(np.array([np.nextafter(x, side)]))[0] for side in (-np.inf, np.inf)
        )
        error = LEVEL_ERROR * min(level, 1 - level)
        assert below - error <= level <= above + error


@pytest.mark.parametrize("name", ["one member", "zero weight, wide", "copies"])
def test_quantiles_of_one_gaussian_are_its_own(name):
    mixture = HOSTILE[name]
    expected = norm.ppf(LEVELS, mixture.means[0, 0], np.sqrt(mixture.variances[0, 0]))
    np.testing.assert_allclose(quantiles(mixture, LEVELS)[0], expected, rtol=ROUNDING)


@given(
    seed=st.integers(0, 10_000),
    n_members=st.integers(1, 6),
    spread=st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    orders=st.sampled_from([0.0, 1.0, 8.0]),
)
def test_quantiles_invert_the_distribution(seed, n_members, spread, orders):
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=n_members) ** 3
    sd = 10.0 ** rng.uniform(-orders, orders, (n_members, 20))
    mean = spread * rng.standard_normal((n_members, 20))
    mixture = PredictiveDistribution(weight / weight.sum(), mean, sd**2)
    found = quantiles(mixture, LEVELS)
    for j, level in enumerate(LEVELS):
        x = found[:, j]
        below, above = (mixture.cdf(np.nextafter(x, side)) for side in (-np.inf, np.inf))
        error = LEVEL_ERROR * min(level, 1 - level)
        assert (below - error <= level).all()
        assert (level <= above + error).all()


def test_quantiles_against_bisection_row_by_row():
    mixture = make_mixture(3)
    found = quantiles(mixture, LEVELS)
    for row in range(0, 30, 7):
        one = PredictiveDistribution(
            mixture.weights, mixture.means[:, [row]], mixture.variances[:, [row]]
        )
        for j, level in enumerate(LEVELS):
            root = brentq(
                lambda x, one=one, level=level: one.cdf(np.array([x]))[0] - level,
                -30,
                30,
                xtol=1e-13,
            )
            assert found[row, j] == pytest.approx(root, abs=CHAINED)


def test_quantiles_mirror():
    mixture = make_mixture(4)
    mirrored = PredictiveDistribution(mixture.weights, -mixture.means, mixture.variances)
    levels = np.array([0.0625, 0.125, 0.25])
    np.testing.assert_array_equal(
        quantiles(mixture, 1 - levels), -quantiles(mirrored, levels), strict=True
    )


def test_quantiles_of_far_tails():
    mixture = column([0.5, 0.5], [0.0, 0.0], [1.0, 2.0])
    x = mixture.quantile([1e-300])[0, 0]
    logs = np.logaddexp(norm.logcdf(x), norm.logcdf(x / 2)) + np.log(0.5)
    assert logs == pytest.approx(-300 * np.log(10), rel=ROUNDING)


def test_quantiles_of_point_masses():
    """Variance 0: the quantile is the mass that the level falls on."""
    mixture = column([0.25, 0.75], [1.0, 2.0], [0.0, 0.0])
    found = mixture.quantile([0.1, 0.2, 0.3, 0.9])[0]
    np.testing.assert_allclose(found, [1.0, 1.0, 2.0, 2.0], rtol=ROUNDING)
    np.testing.assert_array_equal(mixture.cdf(np.array([1.0])), [0.25])
    single = column([1.0], [5.0], [0.0])
    np.testing.assert_array_equal(single.quantile([0.1, 0.9]), [[5.0, 5.0]])


def test_methods_agree_with_each_other():
    mixture = make_mixture()
    y = np.random.default_rng(3).standard_normal(30)
    np.testing.assert_array_equal(mixture.quantile(0.3), mixture.quantile([0.3])[:, 0])
    np.testing.assert_allclose(mixture.interval(0.9), mixture.quantile([0.05, 0.95]), **VALUE)
    np.testing.assert_array_equal(mixture.std(), np.sqrt(mixture.var()))
    np.testing.assert_array_equal(mixture.pdf(y), np.exp(mixture.log_prob(y)))
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(0.3)), 0.3, **VALUE)
    np.testing.assert_array_equal(mixture.cdf(0.5), mixture.cdf(np.full(30, 0.5)))
    np.testing.assert_array_equal(mixture.cdf(-np.inf), 0.0)
    np.testing.assert_allclose(mixture.cdf(np.inf), 1.0, **VALUE)
    assert mixture.log_prob(np.inf).max() == -np.inf


def test_samples_have_the_mixtures_quantiles():
    mixture = make_mixture(n_rows=5)
    draws = mixture.sample(20_000, random_state=0)
    assert draws.shape == (5, 20_000)
    for q in (0.1, 0.5, 0.9):
        below = (draws < mixture.quantile(q)[:, None]).mean(axis=1)
        error = np.sqrt(q * (1 - q) / 20_000)
        assert np.abs(below - q).max() < SAMPLED["max"] * error
    np.testing.assert_array_equal(draws, mixture.sample(20_000, random_state=0))
    assert not np.array_equal(draws, mixture.sample(20_000, random_state=1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.quantile([]), "quantiles must lie strictly between 0 and 1"),
        (lambda m: m.quantile(1.0), "quantiles must lie strictly between 0 and 1"),
        (lambda m: m.interval(0.0), "coverage"),
        (lambda m: m.interval(1.0), "coverage must lie strictly between 0 and 1"),
        (lambda m: m.cdf(np.zeros(3)), "y must be a number or have shape"),
        (lambda m: m.quantile([[0.1, 0.2]]), "quantiles must be a number or a vector"),
        (lambda m: replace(m, weights=m.weights / 2), "weights must sum to 1"),
        (lambda m: replace(m, means=m.means[:, :3]), "means and variances"),
        (lambda m: replace(m, weights=[1.0]), "numpy arrays"),
        (lambda m: m.log_prob(np.full(30, np.nan)), "y must not be NaN"),
        (lambda m: m.sample(0), "n_samples"),
        (lambda m: m.sample(1, "seed"), "random_state must be"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call(make_mixture())


def held_out(seed, n_members, n_rows, spread=0.5):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n_rows)
    mean = 0.5 * y + spread * rng.standard_normal((n_members, n_rows))
    var = rng.uniform(0.2, 2.0, (n_members, 1)) * np.ones(n_rows)
    return norm.logpdf(y, mean, np.sqrt(var))


def mean_log_density(weight, densities, share):
    return share @ np.log(weight @ np.exp(densities))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_members", "spread"), [(2, 0.5), (5, 0.1), (5, 2.0)])
def test_stacking_finds_what_scipy_finds_on_the_simplex(n_members, spread, weighted):
    densities = held_out(7, n_members, 200, spread)
    rng = np.random.default_rng(8)
    row_weight = rng.integers(0, 4, 200).astype(float) if weighted else None
    share = np.full(200, 1 / 200) if row_weight is None else row_weight / row_weight.sum()
    weight = stack(densities, row_weight)
    found = minimize(
        lambda w: -mean_log_density(w, densities, share),
        np.full(n_members, 1 / n_members),
        jac=lambda w: -np.exp(densities) @ (share / (w @ np.exp(densities))),
        method="SLSQP",
        bounds=[(0, 1)] * n_members,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    assert weight.sum() == pytest.approx(1.0, abs=ROUNDING)
    assert weight.min() >= 0
    assert mean_log_density(weight, densities, share) >= -found.fun - 1e-8
    np.testing.assert_allclose(weight, found.x, atol=SLSQP)


@given(seed=st.integers(0, 10_000), n_members=st.integers(1, 8), copies=st.booleans())
def test_stacking_is_optimal(seed, n_members, copies):
    """No derivative may exceed 1: the condition for a maximum on the simplex."""
    densities = held_out(seed, n_members, 60)
    if copies:
        densities = np.concatenate([densities, densities])
    weight = stack(densities)
    slope = np.exp(densities) @ (1 / (weight @ np.exp(densities))) / 60
    assert slope.max() <= 1 + 1e-8
    assert weight.sum() == pytest.approx(1.0, abs=ROUNDING)
    assert weight.min() >= 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("df", [1.5, 2.0])
def test_stacking_is_optimal_if_single_rows_need_a_member(seed, df):
    """Scales of a Student's t: a full Newton step may drop the only member that has an outlier."""
    score = np.random.default_rng(seed).standard_t(df, 1000)
    scale = np.exp2(0.5 * np.arange(-10, 15))[:, None]
    densities = -0.5 * np.square(score / scale) - np.log(scale)
    weight = stack(densities)
    each = densities - densities.max(axis=0)
    slope = (np.exp(each) / (weight @ np.exp(each))).mean(axis=1)
    assert slope.max() == pytest.approx(1.0, abs=STACKED)


def test_stacking_of_hostile_densities():
    assert stack(np.zeros((1, 5))).tolist() == [1.0]
    np.testing.assert_allclose(stack(np.zeros((3, 5))), 1 / 3)
    # Each row known to one member only, all others at exp(-1e6): shares of the rows.
    densities = np.where(np.eye(3)[[0, 0, 1, 2]].T > 0, 0.0, -1e6)
    np.testing.assert_allclose(stack(densities), [0.5, 0.25, 0.25], atol=STACKED)
    # A row without weight is not there, nor is one that nobody gives any density.
    alone = np.concatenate([densities, [[-np.inf], [-np.inf], [-np.inf]]], axis=1)
    np.testing.assert_allclose(stack(alone), [0.5, 0.25, 0.25], atol=STACKED)
    silent = np.array([1.0, 1.0, 0.0, 2.0, 0.0])
    np.testing.assert_allclose(stack(alone, silent), [0.5, 0.0, 0.5], atol=STACKED)
    np.testing.assert_allclose(stack(np.full((2, 3), -np.inf)), [0.5, 0.5])


def test_stacking_counts_a_weighted_row_as_copies():
    densities = held_out(11, 4, 50)
    count = np.random.default_rng(12).integers(0, 4, 50)
    repeated = stack(np.repeat(densities, count, axis=1))
    np.testing.assert_allclose(stack(densities, count.astype(float)), repeated, atol=FITTED)


def test_softmax():
    nll = np.array([1.0, 1.01, 1.5, np.inf])
    weight = soften(nll, 0.01)
    np.testing.assert_allclose(weight[1] / weight[0], np.exp(-1.0), **VALUE)
    np.testing.assert_allclose(weight[2] / weight[0], np.exp(-50.0), rtol=DENSE)
    assert weight[3] == 0
    assert weight.sum() == pytest.approx(1.0, abs=LAST_BIT)
    np.testing.assert_allclose(soften(nll[:3] - 1e4, 0.01), weight[:3], rtol=SUMMED)


# Weights that differ from row to row


def make_weighted(seed=0, n_members=4, n_rows=12):
    """Some weights are 0 at some rows; no component is unused."""
    rng = np.random.default_rng(seed)
    shape = (n_members, n_rows)
    weight = rng.exponential(size=shape) * (rng.random(shape) < 0.7)
    weight[0] += 1e-3
    return PredictiveDistribution(
        weight / weight.sum(axis=0),
        3 * rng.standard_normal(shape),
        rng.uniform(0.01, 2.0, shape),
    )


def rows_of(mixture):
    """A mixture for each row, of its own weights."""
    return [
        PredictiveDistribution(
            mixture.weights[:, i], mixture.means[:, [i]], mixture.variances[:, [i]]
        )
        for i in range(mixture.n_rows)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_weights_per_row_are_a_distribution_per_row(seed):
    mixture = make_weighted(seed)
    y = 3 * np.random.default_rng(seed).standard_normal(12)
    parts = rows_of(mixture)
    for name in ("mean", "var", "std"):
        found = getattr(mixture, name)()
        assert found.shape == (12,)
        expected = np.concatenate([getattr(part, name)() for part in parts])
        np.testing.assert_allclose(found, expected, **VALUE)
    for name in ("log_prob", "pdf", "cdf"):
        found = getattr(mixture, name)(y)
        expected = [getattr(part, name)(v)[0] for part, v in zip(parts, y, strict=True)]
        np.testing.assert_allclose(found, expected, **VALUE)
        np.testing.assert_allclose(
            getattr(mixture, name)(0.3), [getattr(part, name)(0.3)[0] for part in parts], **VALUE
        )
    found = mixture.quantile(LEVELS)
    assert found.shape == (12, LEVELS.size)
    np.testing.assert_allclose(found, np.vstack([p.quantile(LEVELS) for p in parts]), **VALUE)
    np.testing.assert_array_equal(mixture.quantile(0.2), mixture.quantile([0.2])[:, 0])
    np.testing.assert_allclose(
        mixture.interval(0.8), np.vstack([p.interval(0.8) for p in parts]), **VALUE
    )
    for level, at in zip(LEVELS, found.T, strict=True):
        below = np.sum(
            mixture.weights * norm.cdf(at, mixture.means, np.sqrt(mixture.variances)), axis=0
        )
        np.testing.assert_allclose(below, level, atol=LEVEL_ERROR * min(level, 1 - level))


def test_equal_weights_at_all_rows_are_weights_of_all_rows():
    one = make_mixture()
    two = replace(one, weights=np.tile(one.weights[:, None], (1, 30)))
    y = np.linspace(-2, 2, 30)
    for name in ("log_prob", "cdf"):
        np.testing.assert_allclose(getattr(two, name)(y), getattr(one, name)(y), **VALUE)
    np.testing.assert_allclose(two.var(), one.var(), **VALUE)
    np.testing.assert_allclose(two.quantile(LEVELS), one.quantile(LEVELS), **VALUE)


def test_samples_follow_the_weights_of_their_row():
    mixture, n_samples = make_weighted(), 20_000
    draws = mixture.sample(n_samples, random_state=0)
    assert draws.shape == (12, n_samples)
    np.testing.assert_array_equal(draws, mixture.sample(n_samples, random_state=0))
    error = np.abs(draws.mean(axis=1) - mixture.mean()) / mixture.std()
    assert error.max() < SAMPLED["max"] / np.sqrt(n_samples)
    for level in (0.05, 0.5, 0.9):
        share = (draws <= mixture.quantile(level)[:, None]).mean(axis=1)
        spread = np.sqrt(level * (1 - level) / n_samples)
        assert np.abs(share - level).max() < SAMPLED["max"] * spread


def test_a_component_without_weight_at_a_row_is_never_drawn_there():
    weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    means = np.array([[0.0] * 3, [1e6] * 3])
    draws = PredictiveDistribution(weights, means, np.ones((2, 3))).sample(500, random_state=0)
    high = draws > 5e5
    assert not high[0].any()
    assert high[1].all()
    assert 150 < high[2].sum() < 350


def test_point_masses_with_weights_per_row():
    weights = np.array([[0.3, 1.0], [0.7, 0.0]])
    points = PredictiveDistribution(weights, np.array([[1.0, 1.0], [2.0, 9.0]]), np.zeros((2, 2)))
    np.testing.assert_array_equal(points.quantile([0.2, 0.5]), [[1.0, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(points.cdf(1.5), [0.3, 1.0], **VALUE)


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (np.full((2, 3), 0.4), "sum to 1, got 0.8"),
        (np.array([[0.5, 0.5, 0.5], [0.5, 0.5, np.nan]]), "sum to 1, got nan"),
        (np.full((2, 2), 0.5), r"\(K,\) or \(K, m\)"),
        (np.full((3, 2), 0.5), r"\(K,\) or \(K, m\)"),
        (np.full((2, 3, 1), 0.5), r"\(K,\) or \(K, m\)"),
    ],
)
def test_weights_per_row_are_checked(weights, match):
    with pytest.raises(ValueError, match=match):
        PredictiveDistribution(weights, np.zeros((2, 3)), np.ones((2, 3)))
