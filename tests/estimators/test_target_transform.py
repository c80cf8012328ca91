"""target_transform: models of a map of y, predictions in units of y."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

import triegp
from regressor_problems import QUICK, new_rows
from triegp import BinaryTreeGPRegressor, TransformedDistribution, TrieGPRegressor
from triegp.estimators.transforms import fit_transform
from triegp.files.state import pack_model, unpack_model
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transforms import Log, Quantile, YeoJohnson, yeo_johnson

NAMES = ("log", "yeo-johnson", "quantile")
SMALL = {
    "mixture": (BinaryTreeGPRegressor, QUICK),
    "trie": (TrieGPRegressor, {"n_trees": 4, "max_iter": 4, "smooth": False, "random_state": 0}),
}
FLIPPED = FunctionTransformer(np.negative, np.negative, check_inverse=False)
BOX_COX = PowerTransformer(method="box-cox")
LOG_1P = FunctionTransformer(np.log1p, np.expm1)


def skewed(n=120, seed=0, noise=0.3):
    """A positive target, with log-normal noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.exp(np.sin(5 * X[:, 0]) + noise * rng.standard_normal(n))


def inner_rows(model, m=60):
    """New rows inside the training box."""
    X = new_rows(m)
    return X[~model.outside_box(X)]


def small(kind, transform, **changes):
    make, parameters = SMALL[kind]
    return make(**parameters | changes, target_transform=transform)


@pytest.fixture(scope="module")
def fitted():
    X, y = skewed()
    return {
        (kind, name): small(kind, name).fit(X, y) for kind in SMALL for name in ("identity", *NAMES)
    }


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@parametrize_with_checks([small("mixture", name, n_members=2) for name in NAMES[1:]])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# The maps


def samples_of_y():
    rng = np.random.default_rng(5)
    return {
        "log-normal": np.exp(2 * rng.standard_normal(300)),
        "huge": 1e200 * np.exp(rng.standard_normal(300)),
        "tiny": 1e-200 * np.exp(rng.standard_normal(300)),
        "offset": 1e6 + rng.random(300),
        "counts": 1.0 + rng.poisson(2, 300),
        "two values": rng.choice([1.0, 3.0], 300),
        "one value": np.full(5, 7.0),
        "one row": np.array([7.0]),
        "cauchy": 10 + np.abs(rng.standard_cauchy(300)),
    }


OWN_LIMITS = ("huge", "tiny", "offset", "one value", "one row")  # beyond those of scikit-learn
CASES = [
    *((case, name) for case in samples_of_y() for name in NAMES),
    *(
        (case, own)
        for case in samples_of_y()
        if case not in OWN_LIMITS
        for own in (LOG_1P, BOX_COX)
    ),
]


@pytest.mark.parametrize(("case", "choice"), CASES, ids=str)
def test_maps_increase_and_have_an_inverse(case, choice):
    y = samples_of_y()[case]
    one = fit_transform(choice, y, None)
    value = np.unique(y)
    z = one.forward(value)
    assert np.isfinite(z).all()
    assert (np.diff(z) > 0).all()
    np.testing.assert_allclose(
        one.inverse(z), value, rtol=1e-9 if isinstance(choice, str) else 1e-6
    )
    spread = np.linspace(z[0] - 3, z[-1] + 3, 41)
    if isinstance(choice, str):
        np.testing.assert_allclose(one.forward(one.inverse(spread)), spread, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "choice"),
    [pair for pair in CASES if pair[0] not in ("offset", "one value", "one row")],
    ids=str,
)
def test_derivatives_are_those_of_central_differences(case, choice):
    y = samples_of_y()[case]
    one = fit_transform(choice, y, None)
    at = np.quantile(y, [0.03, 0.21, 0.52, 0.83]) * 1.0007  # not on a knot
    h = 1e-5 * at
    found = np.log((one.forward(at + h) - one.forward(at - h)) / (2 * h))
    np.testing.assert_allclose(one.log_derivative(at), found, atol=1e-5)


def test_transformers_near_the_end_of_their_domain_have_accurate_derivatives():
    _, y = skewed(500)
    one = fit_transform(FunctionTransformer(np.log, np.exp), y, None)
    at = np.array([1e-9, 1e-6, 1e-3, 1.0, 1e3])
    np.testing.assert_allclose(one.log_derivative(at), -np.log(at), atol=1e-6)
    assert one.forward(np.array([-1.0]))[0] == -np.inf


def test_the_range_of_box_cox_ends_where_its_inverse_ends():
    y = np.random.default_rng(0).random(300) + 1e-3
    one = fit_transform(BOX_COX, y, None)
    assert 0 <= one.inverse(np.array([-100.0]))[0] < 1e-3
    np.testing.assert_array_equal(one.forward(np.array([-1.0, 0.0])), [-np.inf, -np.inf])


def test_yeo_johnson_is_scipys_and_its_power_is_the_most_likely():
    _, y = skewed(500, noise=1.0)
    one = fit_transform("yeo-johnson", y, None)
    u = (y - one.centre) / one.scale
    np.testing.assert_allclose(one.forward(y), stats.yeojohnson(u, one.power), rtol=1e-10)
    found = [stats.yeojohnson_llf(power, u) for power in (0, 0.5, 1, 1.5, 2, one.power)]
    assert max(found) == found[-1]
    for power in (0.0, 2.0):
        part = replace(one, power=power)
        np.testing.assert_allclose(part.inverse(part.forward(y)), y, rtol=1e-12)
        np.testing.assert_allclose(yeo_johnson(u, power), stats.yeojohnson(u, power), rtol=1e-12)


def test_quantile_scores_are_normal():
    _, y = skewed(2_000, noise=1.0)
    z = fit_transform("quantile", y, None).forward(y)
    assert stats.kstest(z, "norm").statistic < 0.02
    one = fit_transform("quantile", np.repeat([1.0, 2.0, 4.0], [50, 30, 20]), None)
    np.testing.assert_allclose(stats.norm.cdf(one.forward(np.array([1.5, 3.0]))), [0.5, 0.8])


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_is_that_many_rows(name):
    _, y = skewed(40)
    weight = np.arange(40) % 3
    one = fit_transform(name, y, weight.astype(float))
    two = fit_transform(name, np.repeat(y, weight), None)
    np.testing.assert_allclose(one.forward(y), two.forward(y), rtol=1e-9)


# The distribution


def some_mixture():
    means = np.array([[0.2, -1.0, 3.0], [0.4, 1.0, 3.5]])
    variances = np.array([[0.04, 0.3, 1e-6], [0.5, 0.01, 0.04]])
    return PredictiveDistribution(np.array([0.3, 0.7]), means, variances)


def maps_of_y():
    _, y = skewed(300, noise=1.0)
    return [Log(0.3), fit_transform("yeo-johnson", y, None), fit_transform("quantile", y, None)]


def test_moments_of_the_log_normal_are_those_of_its_closed_form():
    mean, var = np.array([[0.3, -2.0, 600.0, 5.0]]), np.array([[0.04, 0.25, 0.09, 1e-12]])
    found = TransformedDistribution(PredictiveDistribution(np.ones(1), mean, var), Log(0.0))
    expected = np.exp(mean + 0.5 * var)[0]
    np.testing.assert_allclose(found.mean(), expected, rtol=1e-4)  # z is limited to 4 deviations
    np.testing.assert_allclose(found.std(), expected * np.sqrt(np.expm1(var[0])), rtol=3e-3)


@pytest.mark.parametrize("k", range(3))
def test_moments_are_those_of_numerical_integration(k):
    transform, base = maps_of_y()[k], some_mixture()
    found = TransformedDistribution(base, transform)
    z = np.linspace(-12, 12, 200_001)
    for row in range(3):
        low, high = (end[row] for end in found.limits())
        density = sum(
            weight * stats.norm.pdf(z, mean, np.sqrt(var))
            for weight, mean, var in zip(
                base.weights, base.means[:, row], base.variances[:, row], strict=True
            )
        )
        y = transform.inverse(np.clip(z, low, high))
        mean = integrate.trapezoid(density * y, z)
        std = np.sqrt(integrate.trapezoid(density * (y - mean) ** 2, z))
        smooth = not isinstance(transform, Quantile)
        assert abs(found.mean()[row] - mean) < (1e-5 if smooth else 1e-2) * std
        np.testing.assert_allclose(found.std()[row], std, rtol=1e-4 if smooth else 2e-2)


@pytest.mark.parametrize("k", range(3))
def test_samples_density_and_cdf_agree_with_quantiles(k):
    found = TransformedDistribution(some_mixture(), maps_of_y()[k])
    drawn = found.sample(40_000, random_state=0)
    level = np.array([0.1, 0.5, 0.9])
    quantile = found.quantile(level)
    for j in range(3):
        np.testing.assert_allclose(found.cdf(quantile[:, j]), level[j], atol=1e-9)
        assert (np.abs((drawn <= quantile[:, [j]]).mean(axis=1) - level[j]) < 0.01).all()
    low, high = (found.transform.inverse(end)[:, None] for end in found.limits())
    error = np.abs(drawn.clip(low, high).mean(axis=1) - found.mean()) / found.std()
    assert (error < 0.03).all()
    np.testing.assert_allclose(found.interval(0.8), found.quantile([0.1, 0.9]), rtol=1e-12)
    np.testing.assert_allclose(found.var(), found.std() ** 2)
    assert found.n_rows == 3
    h = 1e-6 * np.abs(quantile[:, 1])
    slope = (found.cdf(quantile[:, 1] + h) - found.cdf(quantile[:, 1] - h)) / (2 * h)
    np.testing.assert_allclose(found.pdf(quantile[:, 1]), slope, rtol=1e-4)


def test_moments_keep_to_the_training_targets():
    """Tails that reach further say what a model expects, and not what y is on average."""
    means, variances = np.array([[0.0, 3.0, 9.0]] * 2), np.array([[0.25] * 3, [25.0] * 3])
    base = PredictiveDistribution(np.array([0.9, 0.1]), means, variances)
    wide = TransformedDistribution(base, Log(0.0))
    found = TransformedDistribution(base, Log(0.0, np.exp(-2.0), np.exp(4.0)))
    std = base.std()
    np.testing.assert_allclose(found.limits()[0], [-2.0, -2.0, 9.0 - 4 * std[2]])
    np.testing.assert_allclose(found.limits()[1], [4.0, 4.0, 9.0 + 0.5 * std[2]])
    assert found.mean()[0] < 3 < wide.mean()[0]
    assert (found.std() < np.exp([4.0, 4.0, 9.0 + 0.5 * std[2]])).all()
    np.testing.assert_array_equal(found.quantile([0.01, 0.99]), wide.quantile([0.01, 0.99]))


@pytest.mark.parametrize("kind", SMALL)
def test_the_mean_under_a_log_is_one_of_y(kind, tmp_path):
    """Counts from 1 to some hundreds, of which a few are far from what their features say."""
    rng = np.random.default_rng(7)
    X = rng.random((700, 2))
    y = np.exp(5.5 * X[:, 0] + 0.2 * rng.standard_normal(700) * (1 + 15 * (rng.random(700) < 0.06)))
    y = np.ceil(np.clip(y, 0.5, 300.0))
    model = small(kind, "log").fit(X[:400], y[:400])
    mean, std = model.predict(X[400:], return_std=True)
    assert max(mean.max(), std.max()) < y[:400].max()
    in_log = small(kind, "identity").fit(X[:400], np.log(y[:400]))
    by_median = r2_score(y[400:], np.exp(in_log.predict(X[400:])))
    assert r2_score(y[400:], mean) > by_median - 0.01
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(triegp.load(tmp_path / "m").predict(X[400:]), mean)


def test_long_tails_leave_moments_finite_or_infinite_but_never_nan():
    weights = np.array([0.999, 0.001])
    means = np.array([[0.0, 707.0, np.nan], [0.0, 707.0, np.nan]])
    variances = np.array([[0.04, 0.04, np.nan], [1600.0, 1600.0, np.nan]])
    found = TransformedDistribution(PredictiveDistribution(weights, means, variances), Log(0.0))
    mean, std = found.moments()
    assert 0.9 < mean[0] < 5
    assert np.isfinite(std[0])
    assert mean[1] == std[1] == np.inf
    assert np.isnan(mean[2])
    assert np.isnan(std[2])
    point = PredictiveDistribution(np.ones(1), np.zeros((1, 2)), np.zeros((1, 2)))
    exact = TransformedDistribution(point, YeoJohnson(3.0, 2.0, 0.5))
    np.testing.assert_array_equal(exact.moments(), [[3.0, 3.0], [0.0, 0.0]])


# The estimators


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_a_model_of_z_mapped_back(fitted, kind, name):
    X, y = skewed()
    model = fitted[kind, name]
    transform = model._stream.transforms[0]
    plain = small(kind, "identity").fit(X, transform.forward(y))
    new = inner_rows(model)
    level = [0.1, 0.5, 0.9]
    expected = transform.inverse(plain.predict_quantiles(new, level))
    np.testing.assert_array_equal(model.predict_quantiles(new, level), expected)
    np.testing.assert_array_equal(
        model.sample_y(new, 3, random_state=1),
        transform.inverse(plain.sample_y(new, 3, random_state=1)),
    )
    at = np.exp(new[:, 0])
    jacobian = transform.log_derivative(at)
    expected = plain.log_density(new, transform.forward(at)) + jacobian
    np.testing.assert_allclose(model.log_density(new, at), expected, rtol=1e-9)
    jacobian = transform.log_derivative(y)
    expected = plain.loo_log_density() + jacobian
    np.testing.assert_allclose(model.loo_log_density(), expected, rtol=1e-9)
    np.testing.assert_allclose(model.loo_score_, expected.mean() - plain.loo_optimism_, rtol=1e-9)
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, plain.log_marginal_likelihood_ + jacobian.sum(), rtol=1e-9
    )
    found = model.predict_distribution(new)
    assert isinstance(found, TransformedDistribution)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(found.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(found.std(), std, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(new), mean)
    np.testing.assert_allclose(found.quantile(level), model.predict_quantiles(new, level))
    np.testing.assert_array_equal(found.log_prob(at), model.log_density(new, at))


@pytest.mark.parametrize("kind", SMALL)
def test_the_log_has_no_negative_bounds_and_its_density_none_below_zero(fitted, kind):
    model = fitted[kind, "log"]
    new = inner_rows(model)
    assert (model.predict_interval(new, 0.9999) > 0).all()
    assert (model.sample_y(new, 50) > 0).all()
    assert (fitted[kind, "identity"].predict_interval(new, 0.9999) < 0).any()
    assert (model.log_density(new[:3], np.array([0.0, -1.0, -1e300])) == -np.inf).all()
    latent = model.predict(new, return_std=True, latent=True)
    assert (latent[1] < model.predict(new, return_std=True)[1]).all()
    mean, std = model.loo_predict()
    _, y = skewed()
    assert abs(np.log(y) - np.log(mean)).mean() < 0.6
    assert (std > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_densities_integrate_to_one(fitted, name):
    model = fitted["mixture", name]
    (new,) = inner_rows(model)[:1]
    transform = model._stream.transforms[0]
    y = transform.inverse(np.linspace(-60, 60, 60_001))
    y = y[np.isfinite(y)]
    density = np.exp(model.log_density(np.tile(new, (y.size, 1)), y))
    assert abs(integrate.trapezoid(density, y) - 1) < 1e-3


@pytest.mark.parametrize("weights", ["frequency", "precision"])
def test_weights_count_in_the_jacobian_as_in_the_likelihood(weights):
    X, y = skewed(60)
    X = np.vstack([X, X[:30]])
    y = np.append(y, 1.1 * y[:30])
    weight = 1.0 + np.arange(90) % 3
    model = small("mixture", "log", weights=weights).fit(X, y, weight)
    plain = small("mixture", "identity", weights=weights).fit(
        X, model._stream.transforms[0].forward(y), weight
    )
    count = weight if weights == "frequency" else np.ones(90)
    expected = plain.log_marginal_likelihood_ - count @ np.log(y)
    np.testing.assert_allclose(model.log_marginal_likelihood_, expected, rtol=1e-9)


def test_copies_count_once_in_the_jacobian():
    X, y = skewed(60)
    with pytest.warns(UserWarning, match="copies"):
        model = small("mixture", "log").fit(np.vstack([X, X]), np.append(y, y))
    single = small("mixture", "log").fit(X, y)
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, single.log_marginal_likelihood_, rtol=1e-9
    )


def test_the_units_of_y_do_not_matter():
    X, y = skewed()
    for name in NAMES:
        one, two = (small("mixture", name).fit(X, unit * y) for unit in (1.0, 1e100))
        new = inner_rows(one)
        expected = 1e100 * one.predict_interval(new)
        np.testing.assert_allclose(two.predict_interval(new), expected, rtol=1e-5)
        np.testing.assert_allclose(two.predict(new), 1e100 * one.predict(new), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_target_keeps_its_level(name):
    X, _ = skewed(30)
    model = small("mixture", name).fit(X, np.full(30, 1e-4))
    new = inner_rows(model)
    np.testing.assert_allclose(model.predict_quantiles(new, 0.5), 1e-4, rtol=1e-6)
    low, high = model.predict_interval(new).T
    assert (high - low < 1e-4).all()


@pytest.mark.parametrize("transformer", [LOG_1P, BOX_COX, PowerTransformer()], ids=str)
def test_transformers_of_scikit_learn(transformer):
    X, y = skewed()
    model = small("mixture", transformer).fit(X, y)
    assert type(model.target_transform_) is type(transformer)
    assert model.target_transform_ is not transformer
    new = inner_rows(model)
    z = model.target_transform_.transform(y[:, None])[:, 0]
    plain = small("mixture", "identity").fit(X, z)
    expected = plain.predict_quantiles(new, 0.3)
    expected = model.target_transform_.inverse_transform(expected)
    np.testing.assert_allclose(model.predict_quantiles(new, 0.3), expected, rtol=1e-9)
    density = np.exp(model.log_density(np.tile(new[0], (4_000, 1)), np.linspace(1e-3, 40, 4_000)))
    assert abs(density.sum() * 40 / 4_000 - 1) < 0.02
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert type(again.target_transform_) is type(transformer)
    assert type(clone(model).target_transform) is type(transformer)


def test_log_as_a_transformer_is_log(fitted):
    X, y = skewed()
    own = small("mixture", FunctionTransformer(np.log, np.exp)).fit(X, y)
    model = fitted["mixture", "log"]
    new = inner_rows(model)
    for one, two in zip(own.predict(new, True), model.predict(new, True), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8)
    np.testing.assert_allclose(own.loo_log_density(), model.loo_log_density(), atol=1e-5)


def test_a_share_stays_between_zero_and_one():
    X, y = skewed()
    y = y / (1 + y)
    logit = FunctionTransformer(special.logit, special.expit)
    model = small("mixture", logit).fit(X, y)
    new = inner_rows(model)
    plain = small("mixture", "identity").fit(X, special.logit(y))
    expected = special.expit(plain.predict_quantiles(new, 0.9))
    np.testing.assert_allclose(model.predict_quantiles(new, 0.9), expected, rtol=1e-9)
    bounds = model.predict_interval(new, 0.999)
    assert (bounds > 0).all()
    assert (bounds < 1).all()
    shares = np.linspace(0, 1, 4_002)[1:-1]
    density = np.exp(model.log_density(np.tile(new[0], (4_000, 1)), shares))
    assert abs(density.mean() - 1) < 0.02


def test_several_targets():
    X, y = skewed()
    both = np.stack([y, -y], axis=1)
    model = small("mixture", "yeo-johnson").fit(X, both)
    assert model.target_transform_ == ["yeo-johnson", "yeo-johnson"]
    new = inner_rows(model)
    assert model.predict(new).shape == (new.shape[0], 2)
    assert model.predict_quantiles(new).shape == (new.shape[0], 3, 2)
    assert model.sample_y(new, 4).shape == (new.shape[0], 2, 4)
    assert model.loo_log_density().shape == both.shape
    assert model.log_marginal_likelihood_.shape == (2,)
    assert len(model.predict_distribution(new)) == 2
    shared = small("mixture", "quantile", multi_target="shared").fit(X, both)
    low, high = shared.predict_interval(new)[..., 0].T
    assert (low < high).all()
    with pytest.raises(ValueError, match=r"y must be > 0 .*got -"):
        small("mixture", "log").fit(X, both)


# Adding rows


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_added_on_the_fitted_scale_and_refit_learns_it_anew(name):
    X, y = skewed(90)
    two = small("mixture", name, refit=False).fit(X[:60], y[:60])
    inside = ~two.outside_box(X[60:])
    two.partial_fit(X[60:][inside], y[60:][inside])
    np.testing.assert_array_equal(two.rows_.y[60:, 0], y[60:][inside])
    transform = two._stream.transforms[0]
    plain = small("mixture", "identity", refit=False).fit(X[:60], transform.forward(y[:60]))
    plain.partial_fit(X[60:][inside], transform.forward(y[60:][inside]))
    new = inner_rows(two)
    expected = transform.inverse(plain.predict_quantiles(new))
    np.testing.assert_array_equal(two.predict_quantiles(new), expected)
    whole = small("mixture", name).fit(np.vstack([X[:60], X[60:][inside]]), two.rows_.y[:, 0])
    np.testing.assert_array_equal(two.refresh().predict(new), whole.predict(new))


def test_a_stream_that_doubles_is_fitted_anew_to_the_same_bits():
    X, y = skewed(80)
    model = small("mixture", "quantile").fit(X[:40], y[:40])
    model.partial_fit(X[40:], y[40:])
    whole = small("mixture", "quantile").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_a_streamed_target_outside_the_domain_loses_nothing(fitted):
    X, y = skewed()
    model = pickle.loads(pickle.dumps(fitted["mixture", "log"]))
    before = model.predict(X[:5])
    with pytest.raises(ValueError, match=r"y must be > 0 .*got -1.0 at row 1"):
        model.partial_fit(X[:2], [1.0, -1.0])
    assert model.rows_.n_rows == y.size
    np.testing.assert_array_equal(model.predict(X[:5]), before)


# The choice


@pytest.mark.parametrize("kind", SMALL)
def test_auto_takes_the_log_of_log_normal_targets_and_leaves_normal_ones(kind):
    X, y = skewed(250)
    both = np.stack([y, np.log(y)], axis=1)
    model = small(kind, "auto").fit(X, both)
    assert model.target_transform_ == ["log", "identity"]
    again = small(kind, "auto").fit(X, both)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    only = small(kind, "auto").fit(X, y)
    assert only.target_transform_ == "log"
    plain = small(kind, "log").fit(X, y)
    np.testing.assert_array_equal(only.predict(X), plain.predict(X))


def test_auto_leaves_a_normal_target_to_the_same_bits():
    X, y = skewed(250)
    model = small("mixture", "auto").fit(X, 10 + np.log(y))
    assert model.target_transform_ == "identity"
    plain = small("mixture", "identity").fit(X, 10 + np.log(y))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert isinstance(model.predict_distribution(X[:2]), PredictiveDistribution)


def test_auto_with_few_rows_weights_of_zero_and_negative_targets():
    X, y = skewed(200)
    assert small("mixture", "auto").fit(X[:10], y[:10]).target_transform_ == "identity"
    assert small("mixture", "auto").fit(X, np.full(200, 3.0)).target_transform_ == "identity"
    weight = np.ones(200)
    weight[:190] = 0
    assert small("mixture", "auto").fit(X, y, weight).target_transform_ == "identity"
    assert small("mixture", "auto").fit(X, -(y**2)).target_transform_ in ("yeo-johnson", "quantile")


def test_auto_without_time_leaves_transforms_out():
    X, y = skewed(250)
    with pytest.warns(ConvergenceWarning, match="left out or shortened: transforms"):
        model = small("mixture", "auto", time_budget=1e-9).fit(X, y)
    assert model.target_transform_ == "identity"
    assert small("mixture", "auto", time_budget=1e6).fit(X, y).target_transform_ == "log"


def test_the_default_draws_no_random_numbers():
    X, y = skewed(40)
    states = []
    for transform in ("identity", "log"):
        rng = np.random.default_rng(3)
        small("mixture", transform, random_state=rng).fit(X, y)
        states.append(rng.bit_generator.state)
    assert states[0] == states[1]


# Files and errors


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("name", NAMES)
def test_files_and_pickles_keep_all_bits(tmp_path, fitted, kind, name):
    model = fitted[kind, name]
    model.save(tmp_path / "model", training_data=True)
    for again in (triegp.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.target_transform_ == name
        new = inner_rows(model)
        for one, two in zip(again.predict(new, True), model.predict(new, True), strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(again.loo_log_density(), model.loo_log_density())
        np.testing.assert_array_equal(again.rows_.y, model.rows_.y)


def test_a_file_with_wrong_transforms_is_refused(fitted):
    model = fitted["mixture", "quantile"]
    facts, arrays = pack_model(model._state(), False)
    flat = arrays | {"stream.transforms.0.z": np.zeros_like(arrays["stream.transforms.0.z"])}
    with pytest.raises(ValueError, match="must be rising"):
        unpack_model(facts, flat, "Ensemble")
    ends = {"low": "-inf", "high": "inf"}
    wrong = {"record": "YeoJohnson", "centre": 0.0, "scale": 1.0, "power": 3.0, **ends}
    for transforms, message in (
        ([None, None], "transforms must be 1"),
        ([{"record": "pickle"}], "must be one of 'Log', 'YeoJohnson', 'Quantile'"),
        ([wrong], "power must lie between 0 and 2"),
        ([wrong | {"scale": float("nan")}], "scale must be finite"),
        ([{"record": "Log", "centre": "inf", **ends}], "centre must be a number"),
    ):
        stream = facts["stream"] | {"transforms": transforms}
        with pytest.raises(ValueError, match=message):
            unpack_model(facts | {"stream": stream}, arrays, "Ensemble")


def test_files_do_not_hold_transformers(tmp_path):
    X, y = skewed(40)
    model = small("mixture", PowerTransformer()).fit(X, y)
    with pytest.raises(TypeError, match="pickle the estimator"):
        model.save(tmp_path / "model")
    model.set_params(target_transform="log")
    with pytest.raises(TypeError, match="pickle the estimator"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    "wrong",
    ["Log", None, 3, StandardScaler, object()],
    ids=["text", "none", "number", "class", "object"],
)
def test_other_choices_are_refused(wrong):
    X, y = skewed(20)
    with pytest.raises(ValueError, match="target_transform must be one of"):
        small("mixture", wrong).fit(X, y)


def test_what_transforms_refuse(fitted):
    X, y = skewed()
    with pytest.raises(ValueError, match=r"y must be > 0 .*got 0.0 at row 3"):
        small("trie", "log").fit(X, np.where(np.arange(y.size) == 3, 0.0, y))
    for name in ("log", "auto", PowerTransformer()):
        with pytest.raises(ValueError, match="known_noise is in units of y"):
            small("mixture", name).fit(X, y, known_noise=np.ones(y.size))
    with pytest.raises(ValueError, match="known_noise is in units of y"):
        fitted["mixture", "log"].partial_fit(X[:2], y[:2], known_noise=np.ones(2))
    with pytest.raises(ValueError, match="return_cov requires target_transform='identity'"):
        fitted["mixture", "log"].predict(X[:2], return_cov=True)
    with pytest.raises(ValueError, match="must increase strictly, FunctionTransformer maps"):
        small("mixture", FLIPPED).fit(X, y)
    with pytest.raises(ValueError, match="must have an inverse, FunctionTransformer maps"):
        small("mixture", FunctionTransformer(np.log, check_inverse=False)).fit(X, y)
    model = small("mixture", BOX_COX).fit(X, y)
    with pytest.raises(ValueError, match=r"finite images .*'PowerTransformer', got -"):
        model.partial_fit(X[:1], [-1.0])
    ranks = QuantileTransformer(n_quantiles=50, output_distribution="normal")
    small("mixture", ranks).fit(X, y).predict(X[:3])


def test_scikit_learns_tools(fitted):
    X, y = skewed()
    pipe = make_pipeline(StandardScaler(), small("mixture", "log")).fit(X, y)
    mean, std = pipe.predict(X, return_std=True)
    model, scaled = pipe[-1], pipe[:-1].transform(X)
    np.testing.assert_array_equal(model.predict(scaled), mean)
    np.testing.assert_array_equal(model.predict(scaled, return_std=True)[1], std)
    assert (model.predict_interval(scaled) > 0).all()
    assert model.predict_distribution(scaled).n_rows == y.size
    scores = cross_val_score(small("mixture", LOG_1P), X, y, cv=2, error_score="raise")
    assert scores.shape == (2,)
