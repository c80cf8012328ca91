"""A linear trend beside the model: ridge regression, its share, and its place in a file."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import triegp
from model_files import parts_of, refused, write_parts
from tolerances import CHAINED, DENSE, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.calibration.trend import (
    LEAST_SHARE,
    PENALTIES,
    Trend,
    add_trend,
    choose_share,
    fit_line,
    line_at,
)
from triegp.files.state import pack_model


def problem(n=30, d=4, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 3.0
    y = X @ rng.standard_normal(d) + noise * rng.standard_normal(n)
    return X, y, rng.uniform(0.5, 3.0, n)


def dense_line(X, y, weight):
    """Ridge regression of standardised features by the normal equations, at every penalty.

    The penalty is that of the least generalised cross-validation error. Weights have mean 1.
    """
    weight = weight / weight.mean()
    centre, level = np.average(X, axis=0, weights=weight), np.average(y, weights=weight)
    size = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weight))
    Z, W = (X - centre) / size, np.diag(weight)
    found = []
    for penalty in PENALTIES:
        inverse = np.linalg.inv(Z.T @ W @ Z + penalty * np.eye(X.shape[1]))
        slope = inverse @ Z.T @ W @ (y - level)
        error = weight @ (y - level - Z @ slope) ** 2
        freedom = y.size - 1 - np.trace(inverse @ Z.T @ W @ Z)
        found.append((error / freedom**2, slope / size))
    slope = min(found, key=lambda pair: pair[0])[1]
    return slope, level - centre @ slope


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(30, 4), (12, 1), (8, 7), (200, 3)])
def test_the_line_is_the_dense_ridge_regression(n, d, weighted, noise):
    X, y, weight = problem(n, d, noise=noise)
    slope, level = fit_line(X, y, weight if weighted else None)
    expected = dense_line(X, y, weight if weighted else np.ones(n))
    np.testing.assert_allclose(slope, expected[0], rtol=CHAINED, atol=CHAINED)
    assert level == pytest.approx(expected[1], rel=CHAINED, abs=CHAINED)


def test_a_line_is_kept_and_noise_is_shrunk():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    line = X @ [1.0, -2.0, 0.5]
    slope = fit_line(X, line)[0]
    np.testing.assert_allclose(slope, [1.0, -2.0, 0.5], rtol=1e-4)
    noise = rng.standard_normal((60, 40))
    ridge = np.stack([fit_line(X, y)[0] for y in noise.T], axis=1)
    plain = np.linalg.lstsq(X - X.mean(axis=0), noise, rcond=None)[0]
    assert (ridge**2).sum() < 0.6 * (plain**2).sum()


def test_weights_are_copies_up_to_the_penalty():
    """With little noise the penalty hardly matters, and weights are copies."""
    X, y, _ = problem(40, noise=1e-3)
    count = np.random.default_rng(1).integers(1, 4, 40)
    one = fit_line(X, y, count.astype(float))[0]
    two = fit_line(np.repeat(X, count, axis=0), np.repeat(y, count))[0]
    np.testing.assert_allclose(one, two, rtol=1e-4)


def test_units_do_not_matter():
    X, y, _ = problem()
    slope, level = fit_line(X, y)
    units = np.array([1e-3, 1.0, 1e5, -7.0])
    other, same = fit_line(X * units, 10.0 * y + 3.0)
    np.testing.assert_allclose(other * units, 10.0 * slope, rtol=CHAINED)
    assert same == pytest.approx(10.0 * level + 3.0)


@pytest.mark.parametrize("huge", [1e200, 1e300, 1e-300])
def test_features_of_any_size(huge):
    X, y, _ = problem()
    slope, level = fit_line(X, y)
    large = X * [huge, 1.0, 1.0, 1.0]
    other, same = fit_line(large, y)
    np.testing.assert_allclose(large @ other + same, X @ slope + level, **VALUE)
    np.testing.assert_allclose(other[1:], slope[1:], **VALUE)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e300, 0.1])
def test_a_constant_feature_has_no_slope(value):
    X, y, _ = problem()
    slope, level = fit_line(X, y)
    more, same = fit_line(np.column_stack([X, np.full(30, value)]), y)
    assert more[-1] == 0.0
    np.testing.assert_allclose(more[:-1], slope, **VALUE)
    assert same == pytest.approx(level)
    flat, mean = fit_line(np.full((30, 1), value), y)
    assert flat[0] == 0.0
    assert mean == pytest.approx(y.mean())


def test_one_row_and_equal_targets():
    slope, level = fit_line(np.array([[1.0, 2.0]]), np.array([3.0]))
    np.testing.assert_array_equal(slope, np.zeros(2))
    assert level == 3.0
    X, _, _ = problem()
    slope, level = fit_line(X, np.full(30, 2.0))
    np.testing.assert_allclose(slope, 0.0, atol=DENSE)
    assert level == pytest.approx(2.0)


# The share


@pytest.mark.parametrize("seed", range(4))
def test_the_share_minimises_the_squared_error(seed):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(50)
    mean, line = truth + rng.standard_normal(50), truth + 1.5 * rng.standard_normal(50)
    y, var = truth + 0.3 * rng.standard_normal(50), rng.uniform(0.5, 2.0, 50)

    def loss(share):
        return np.sum((y - mean - share * (line - mean)) ** 2 / var)

    best = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10}).x
    assert 0.05 < best < 0.95
    assert choose_share(y, mean, line, var) == pytest.approx(best, abs=1e-6)


def test_the_share_is_a_share():
    y, mean = np.arange(9.0), np.zeros(9)
    var = np.ones(9)
    assert choose_share(y, mean, y, var) == 1.0
    assert choose_share(y, mean, 0.5 * y, var) == 1.0  # it would be 2
    assert choose_share(y, mean, -y, var) == 0.0
    assert choose_share(y, mean, mean, var) == 0.0  # both are the same
    least = y / LEAST_SHARE
    assert choose_share(y, mean, 0.99 * least, var) == pytest.approx(LEAST_SHARE / 0.99)
    assert choose_share(y, mean, 1.01 * least, var) == 0.0


def test_the_line_stays_that_of_the_border_outside():
    trend = Trend(0.25, np.zeros(2), np.ones(2), np.array([1.0, -2.0]), 0.5, np.zeros(3))
    X = np.array([[0.5, 0.5], [9.0, 0.0], [-1.0, 1e300]])
    np.testing.assert_array_equal(line_at(trend, X), [0.0, 1.5, -1.5])
    both = add_trend(trend, np.array([4.0, 0.0, 1.0]), line_at(trend, X))
    np.testing.assert_allclose(both, [3.0, 0.375, 0.375], **VALUE)
    mean = np.ones(3)
    assert add_trend(None, mean, None) is add_trend(None, mean, mean) is mean


# Estimators and files


MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=2, max_iter=5, random_state=0),
    "forest": TrieGPRegressor(n_trees=4, max_iter=3, random_state=0),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    X, y, _ = problem(60, 3, noise=0.5)
    return MODELS[request.param].fit(X, y)


def stage_of(model):
    return model._stream.fitted[0].stages[0]


def test_few_rows_on_a_line_are_predicted_by_it(model):
    trend = stage_of(model).trend
    assert trend.share > 0.5
    X, y, _ = problem(60, 3, noise=0.5)
    line = fit_line(X, (y - model.target_mean_) / model.target_scale_)
    np.testing.assert_allclose(trend.slope, line[0], **VALUE)
    alone = model._stream.fitted[0].base
    mean = alone.predict(alone.read(X, var=False), 0, var=False, latent=False).mean()
    expected = (1 - trend.share) * mean + trend.share * (X @ line[0] + line[1])
    found = (model.predict(X) - model.target_mean_) / model.target_scale_
    np.testing.assert_allclose(found, expected, **VALUE)


def test_a_file_keeps_the_trend(model, tmp_path):
    model.save(tmp_path / "m")
    loaded = triegp.load(tmp_path / "m")
    one, two = stage_of(model).trend, stage_of(loaded).trend
    assert (one.share, one.level) == (two.share, two.level)
    for name in ("low", "high", "slope", "left"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    X = problem(60, 3, noise=0.5)[0]
    np.testing.assert_array_equal(model.predict(X, True), loaded.predict(X, True))
    np.testing.assert_array_equal(model.loo_predict(), loaded.loo_predict())


EDITS = [
    {"share": -0.1},
    {"share": 1.1},
    {"share": np.nan},
    {"level": 1e200},
    {"slope": np.full(3, 1e200)},
    {"slope": np.zeros(2)},
    {"left": np.full(60, 1e200)},
    {"left": np.zeros(59)},
    {"low": np.full(3, np.nan)},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_a_trend_that_cannot_be_is_refused(model, edit, tmp_path):
    state = model._state()
    (fitted,) = state.stream.fitted
    stage = stage_of(model)
    wrong = replace(fitted, stages=(replace(stage, trend=replace(stage.trend, **edit)),))
    facts, arrays = pack_model(replace(state, stream=replace(state.stream, fitted=(wrong,))), False)
    header = parts_of(model)[0] | {"model": facts}
    refused(write_parts(tmp_path / "m", header, arrays), "does not hold a complete model")


@pytest.mark.parametrize("power", [-300, 40, 300])
def test_lines_of_any_size_have_a_share(power):
    """One feature with a single huge value gives such lines."""
    rng = np.random.default_rng(0)
    y, mean, var = rng.standard_normal(50), np.zeros(50), np.full(50, 0.5)
    line = 2.0 * y
    assert choose_share(y, mean, line, var) == 0.5
    share = choose_share(np.ldexp(y, power), mean, np.ldexp(line, power), var)
    assert share == 0.5
    assert choose_share(y, mean, np.ldexp(line, 1000), var) == 0.0
