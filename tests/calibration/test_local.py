"""Local noise: a mixture of the logarithms of squared residuals."""

import numpy as np

from tolerances import CHAINED
from triegp.calibration import local as module
from triegp.calibration.local import learn_local, predict_local
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run


def run(seed=0):
    return Run(np.random.default_rng(seed), 1, Stopwatch())


def problem(n=400, seed=0):
    """The noise grows with the mean, which X does not show."""
    rng = np.random.default_rng(seed)
    X, mean = rng.random((n, 2)), rng.standard_normal(n)
    y = mean + np.exp(mean) * rng.standard_normal(n)
    return X, mean, np.ones(n), y


def test_it_predicts_the_logarithms_of_squared_residuals():
    X, mean, var, y = problem()
    local, logs = learn_local(X, mean, var, y, run(), by_var=False)
    target = np.log(np.maximum(np.square(y - mean) / var, module.SMALLEST_SQUARE))
    seen, _ = local.ensemble.observed(0)
    np.testing.assert_allclose(seen, target - target.mean())
    assert np.corrcoef(logs, 2 * mean)[0, 1] > 0.7
    fresh = problem(seed=1)
    told = predict_local(local, *fresh[:3])
    assert np.corrcoef(told, 2 * fresh[1])[0, 1] > 0.7
    assert local.ensemble.apart
    assert local.encoder.n_working == 3


def test_the_logarithms_are_those_of_the_other_half(monkeypatch):
    """No row has a part in its own logarithm, not by the parameters either."""
    halves, real = [], module._train

    def train(given, some, *rest):
        halves.append(some)
        return real(given, some, *rest)

    monkeypatch.setattr(module, "_train", train)
    X, mean, var, y = problem()
    logs = learn_local(X, mean, var, y, run(), by_var=False)[1]
    one, two, every = halves
    assert sorted([*one, *two]) == every.tolist() == list(range(400))
    odd = y.copy()
    odd[one] += 10.0
    other = learn_local(X, mean, var, odd, run(), by_var=False)[1]
    np.testing.assert_array_equal(other[one], logs[one])  # the mixture of `two` predicts them
    assert (other[two] != logs[two]).all()


def test_the_predicted_variance_may_be_a_feature():
    rng = np.random.default_rng(0)
    X, var = rng.random((400, 2)), np.exp(2 * rng.standard_normal(400))
    y = var * rng.standard_normal(400)  # standard deviation var instead of its root
    local, logs = learn_local(X, np.zeros(400), var, y, run(), by_var=True)
    assert local.encoder.n_working == 4
    assert np.corrcoef(logs, np.log(var))[0, 1] > 0.7
    same = predict_local(local, X, np.zeros(400), var)
    assert np.corrcoef(same, np.log(var))[0, 1] > 0.7


def test_of_many_rows_some_are_trained_on_and_all_are_predicted(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 200)
    X, mean, var, y = problem()
    local, logs = learn_local(X, mean, var, y, run(), by_var=False)
    assert local.ensemble.n_rows == 200
    assert np.isfinite(logs).all()
    assert np.corrcoef(logs, 2 * mean)[0, 1] > 0.6
    told = predict_local(local, X, mean, var)
    assert np.corrcoef(told, 2 * mean)[0, 1] > 0.6


def test_residuals_of_zero_are_cut_off():
    X, mean, var, _ = problem(120)
    _, logs = learn_local(X, mean, var, mean, run(), by_var=False)
    np.testing.assert_allclose(logs, 0.0, atol=CHAINED)
