"""Local noise: a line and a mixture of the logarithms of squared residuals."""

import numpy as np

from tolerances import CHAINED, ROUNDING
from triegp.calibration import local as module
from triegp.calibration.local import Kind, LearnedFrom, cross_local, predict_local, train_local
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run


def run(seed=0):
    return Run(np.random.default_rng(seed), 1, Stopwatch())


def learn(X, mean, var, y, *, by_mean=True, by_var=False, trees=True):
    """Local noise of all rows, as many as it takes, and its logarithms by halves."""
    half, rows = np.arange(y.size) % 2 == 0, np.arange(min(y.size, module.MOST_ROWS))
    learned, kind = LearnedFrom(X, mean, var, y), Kind(trees, by_mean=by_mean, by_var=by_var)
    logs = cross_local(learned, half, np.ones(y.size, bool), run(), kind)
    return train_local(learned, rows, run(), kind), logs


def problem(n=400, seed=0):
    """The noise grows with the mean, which X does not show."""
    rng = np.random.default_rng(seed)
    X, mean = rng.random((n, 2)), rng.standard_normal(n)
    y = mean + np.exp(mean) * rng.standard_normal(n)
    return X, mean, np.ones(n), y


def test_it_predicts_the_logarithms_of_squared_residuals():
    X, mean, var, y = problem()
    local, logs = learn(X, mean, var, y)
    target = np.log(np.maximum(np.square(y - mean) / var, module.SMALLEST_SQUARE))
    seen, _ = local.ensemble.observed(0)
    line = np.column_stack([X, mean]) @ local.slope + local.level
    np.testing.assert_allclose(seen, target - target.mean() - line, rtol=ROUNDING, atol=ROUNDING)
    assert np.corrcoef(logs, 2 * mean)[0, 1] > 0.7
    fresh = problem(seed=1)
    told = predict_local(local, *fresh[:3])
    assert np.corrcoef(told, 2 * fresh[1])[0, 1] > 0.7
    assert local.ensemble.apart
    assert local.encoder.n_working == 3


def test_a_line_follows_any_direction():
    """Noise along a diagonal of ten features, of which each alone says little."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 10))
    direction = (X @ np.resize([1.0, -1.0], 10)) * 2.0
    local, logs = learn(
        X, 0 * direction, 1 + 0 * direction, np.exp(direction) * rng.normal(size=300), trees=False
    )
    assert local.ensemble is None
    assert np.corrcoef(logs, direction)[0, 1] > 0.85
    outside = np.full((1, 10), -1e9)
    told = predict_local(local, outside, np.zeros(1), np.ones(1))
    assert np.abs(told) <= module.LARGEST_LINE


def test_the_logarithms_are_those_of_the_other_half(monkeypatch):
    """No row has a part in its own logarithm, not by the parameters either."""
    halves, real = [], module.train_local

    def train(given, some, *rest):
        halves.append(some)
        return real(given, some, *rest)

    monkeypatch.setattr(module, "train_local", train)
    X, mean, var, y = problem()
    logs = learn(X, mean, var, y)[1]
    one, two = halves
    assert sorted([*one, *two]) == list(range(400))
    odd = y.copy()
    odd[one] += 10.0
    other = learn(X, mean, var, odd)[1]
    np.testing.assert_array_equal(other[one], logs[one])  # the mixture of `two` predicts them
    assert (other[two] != logs[two]).all()


def test_the_predicted_variance_may_be_a_feature():
    rng = np.random.default_rng(0)
    X, var = rng.random((400, 2)), np.exp(2 * rng.standard_normal(400))
    y = var * rng.standard_normal(400)  # standard deviation var instead of its root
    local, logs = learn(X, np.zeros(400), var, y, by_var=True)
    assert local.encoder.n_working == 4
    assert np.corrcoef(logs, np.log(var))[0, 1] > 0.7
    same = predict_local(local, X, np.zeros(400), var)
    assert np.corrcoef(same, np.log(var))[0, 1] > 0.7


def test_without_the_mean_it_does_not_depend_on_it():
    X, mean, var, y = problem()
    local, logs = learn(X, mean, var, y, by_mean=False)
    assert abs(np.corrcoef(logs, 2 * mean)[0, 1]) < 0.3
    told = [predict_local(local, X, shift + mean, var) for shift in (0.0, 5.0)]
    np.testing.assert_array_equal(*told)


def test_only_rows_asked_for_are_predicted():
    X, mean, var, y = problem()
    half, asked = np.arange(400) % 2 == 0, np.arange(400) < 100
    learned, kind = LearnedFrom(X, mean, var, y), Kind(trees=True, by_mean=True, by_var=False)
    some, every = (cross_local(learned, half, rows, run(), kind) for rows in (asked, asked | True))
    np.testing.assert_array_equal(some, np.where(asked, every, 0.0))


def test_of_many_rows_some_are_trained_on_and_all_are_predicted(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 200)
    X, mean, var, y = problem()
    local, logs = learn(X, mean, var, y)
    assert local.ensemble.n_rows == 200
    assert np.isfinite(logs).all()
    assert np.corrcoef(logs, 2 * mean)[0, 1] > 0.6
    told = predict_local(local, X, mean, var)
    assert np.corrcoef(told, 2 * mean)[0, 1] > 0.6


def test_residuals_of_zero_are_cut_off():
    X, mean, var, _ = problem(120)
    _, logs = learn(X, mean, var, mean)
    np.testing.assert_allclose(logs, 0.0, atol=CHAINED)
