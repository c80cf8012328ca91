"""Weights of rows that `partial_fit` adds mean what they did in `fit`, against dense algebra."""

import numpy as np
import pytest

import oracle
from regressor_problems import dense_kernel
from tolerances import SUMMED
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 3, "random_state": 0}
PLAIN = {**QUICK, "mixture": "stacking", "refit": False}
SMALL = {
    BinaryTreeGPRegressor: {"n_members": 6, "random_state": 0},
    TrieGPRegressor: {"n_trees": 12, "max_iter": 8, "smooth": False, "random_state": 0},
}

pytestmark = pytest.mark.filterwarnings("ignore:.*copies of others")


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    X[:2] = [[0.0, 0.0], [1.0, 1.0]]
    return X, np.sin(5 * X[:, 0]) + 0.3 * rng.standard_normal(n)


def dense_likelihood(model, X, y, weight):
    """Log likelihood of single observations whose noise variance is divided by the weights.

    Without sum log(weight) / 2, which no parameter changes.
    """
    shift, unit = model.target_mean_[0], model.target_scale_[0]
    used = weight > 0
    X, y, weight = X[used], y[used], weight[used]
    found = []
    for member in model.ensembles_[0].members:
        noise = member.posteriors[0].new_noise / weight
        covariance = dense_kernel(member, X, X) + np.diag(noise)
        nll = oracle.nll(covariance, (y - shift) / unit)
        found.append(-nll - 0.5 * np.log(weight).sum() - y.size * np.log(unit))
    return float(model.ensembles_[0].calibrations[0].weight @ found)


def scale_of(model):
    return model._inserted().fitted[0].stages[0].scale


FIRST = {
    "none": None,
    "ones": np.ones(80),
    "mean 1": np.tile([0.5, 1.5], 40),
    "mean 3": np.tile([1.0, 5.0], 40),
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("plain", [False, True])
def test_precisions_of_added_rows_divide_the_noise_of_one_observation(first, plain):
    """plain: whether rows without weights come in between. One row has weight 0."""
    X, y = draw(120)
    weight = FIRST[first]
    given = np.linspace(0.0, 4.0, 40)
    model = BinaryTreeGPRegressor(**PLAIN, weights="precision").fit(X[:80], y[:80], weight)
    if plain:
        model.partial_fit(X[80:100], y[80:100])
        given[:20] = 1.0
    model.partial_fit(X[100 if plain else 80 :], y[100 if plain else 80 :], given[20 * plain :])
    weight = np.append(np.ones(80) if weight is None else weight, given)
    weight = weight / weight[:80].mean()
    expected = dense_likelihood(model, X, y, weight)
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=SUMMED)
    again = model.forget(keep_last=120).log_marginal_likelihood_  # folds all rows anew
    assert again == pytest.approx(expected, rel=SUMMED)


def test_weights_of_copies_pull_the_mean_if_their_mean_is_1_too():
    """Weights above 1 without rows that differ are copies: one observation each, as in `fit`."""
    X, y = draw(120)
    weight = np.append(np.tile([0.5, 1.5], 40), np.linspace(0.0, 4.0, 40))
    model = BinaryTreeGPRegressor(**PLAIN).fit(X[:80], y[:80], weight[:80])
    assert model._stream.observations.copies
    assert model._stream.observations.unit == 1.0
    model.partial_fit(X[80:], y[80:], weight[80:])
    expected = dense_likelihood(model, X, y, weight)
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=SUMMED)


def test_weights_of_repeated_measurements_stay_numbers_of_observations():
    """A weight of 2 equals a row that comes twice, in `partial_fit` as in `fit`."""
    X, y = draw(120)
    X[2:40] = X[41:79]  # with other targets
    one = BinaryTreeGPRegressor(**PLAIN).fit(X[:80], y[:80])
    two = BinaryTreeGPRegressor(**PLAIN).fit(X[:80], y[:80])
    one.partial_fit(X[80:], y[80:], np.full(40, 2.0))
    two.partial_fit(np.tile(X[80:], (2, 1)), np.tile(y[80:], 2))
    expected = two.log_marginal_likelihood_
    assert one.log_marginal_likelihood_ == pytest.approx(expected, rel=SUMMED)


def test_weights_mean_what_they_did_in_fit_also_if_the_parameter_is_changed():
    X, y = draw(120)
    models = [BinaryTreeGPRegressor(**PLAIN, weights="precision") for _ in range(2)]
    for model in models:
        model.fit(X[:80], y[:80])
    models[1].set_params(weights="frequency")
    found = [
        model.partial_fit(X[80:], y[80:], np.full(40, 3.0)).log_marginal_likelihood_
        for model in models
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [BinaryTreeGPRegressor, TrieGPRegressor])
@pytest.mark.parametrize("weights", [[25.0], [0.5, 1.0, 2.0, 25.0]], ids=str)
def test_added_rows_of_high_precision_do_not_teach_narrow_intervals(kind, weights):
    """Error bars of observations of weight 1, calibrated again from rows of other weights."""
    X, y = draw(1000)
    given = np.resize(weights, 400)
    model = kind(weights="precision", **SMALL[kind]).fit(X[:600], y[:600])
    rng = np.random.default_rng(1)
    y[600:] = np.sin(5 * X[600:, 0]) + 0.3 / np.sqrt(given) * rng.standard_normal(400)
    before = scale_of(model)
    model.partial_fit(X[600:], y[600:], given)
    assert (scale_of(model) == before) == (given.min() == 25.0)
    assert model._stream.plan.n_calibrated == 1000
    assert model._stream.plan.n_fit == 600
    new, observed = draw(4000, 2)
    low, high = model.predict_interval(new, 0.9).T
    assert 0.85 < np.mean((low <= observed) & (observed <= high)) < 0.95


def test_the_scale_of_added_rows_divides_their_noise():
    """By the median of standardised residuals; the variance of one is f's and noise / weight."""
    X, y = draw(500)
    given = np.random.default_rng(1).uniform(0.3, 2.5, 100)
    model = BinaryTreeGPRegressor(**QUICK, weights="precision").fit(X[:400], y[:400])
    model.partial_fit(X[400:], y[400:], given)
    base, stage = model.ensembles_[0], model._stream.fitted[0].stages[0]
    assert stage.trend is None  # it would move the means
    left = base.residuals(0)
    noise = float(base.calibrations[0].weight @ [m.posteriors[0].new_noise for m in base.members])
    used = np.flatnonzero((given >= 0.5) & (given <= 2.0))
    var = left.var[400:] - noise + noise / given
    var *= np.exp(stage.slope * stage.logs[400:])
    score = np.abs(left.y - left.mean)[400:] / np.sqrt(var)
    middle = np.sort(score[used])[(used.size - 1) // 2]
    assert stage.scale == pytest.approx((middle / 0.6744897501960817) ** 2, rel=SUMMED)


@pytest.mark.parametrize("kind", [BinaryTreeGPRegressor, TrieGPRegressor])
def test_rows_of_little_weight_teach_error_bars_little(kind):
    """Half of the rows are noisy, and have a hundredth of the weight, as if they had faded."""
    X, y = draw(1000, 6)
    y[::2] += 3.0 * np.random.default_rng(7).standard_normal(500)
    weight = np.resize([0.01, 1.0], 1000)
    model = kind(**SMALL[kind]).fit(X, y, weight)
    new, observed = draw(4000, 2)
    low, high = model.predict_interval(new, 0.9).T
    assert 0.85 < np.mean((low <= observed) & (observed <= high)) < 0.97
    assert np.mean(high - low) < 1.5 * (2 * 1.645 * 0.3)
