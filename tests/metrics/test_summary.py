"""All scores at once, against those of the single functions and of scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from triegp import PredictiveDistribution, metrics
from triegp.metrics.forecasts import COVERAGES, binomial_band, make_forecast
from triegp.metrics.summary import Tally


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cuts", [[], [10, 70]])
def test_scores_are_those_of_the_functions(weighted, cuts):
    rng = np.random.default_rng(0)
    means, variances = rng.standard_normal((2, 100)), 0.1 + rng.random((2, 100))
    distribution = PredictiveDistribution(np.array([0.7, 0.3]), means, variances)
    y = distribution.sample(1, 0)[:, 0]
    weight = rng.integers(0, 3, 100) * 1.5 if weighted else None
    tally = Tally()
    for rows in np.split(np.arange(100), cuts):
        part = None if weight is None else weight[rows]
        tally.add(make_forecast(y[rows], distribution.select(rows), weight=part))
    scores, options, mean = tally.scores(), {"sample_weight": weight}, distribution.mean()
    used = np.ones(100) if weight is None else weight
    assert scores.n_rows == np.count_nonzero(used)
    assert scores.n_effective == pytest.approx(used.sum() ** 2 / (used @ used))
    assert scores.r2 == pytest.approx(r2_score(y, mean, **options))
    assert scores.rmse == pytest.approx(root_mean_squared_error(y, mean, **options))
    assert scores.mae == pytest.approx(mean_absolute_error(y, mean, **options))
    for name in ("nll", "crps", "calibration_error"):
        expected = getattr(metrics, name)(y, distribution, **options)
        assert getattr(scores, name) == pytest.approx(expected)
    for nominal in COVERAGES:
        found, interval = scores.coverage(nominal), distribution.interval(nominal)
        assert found.observed == pytest.approx(metrics.coverage(y, interval, **options))
        assert found.width == pytest.approx(np.average(np.diff(interval)[:, 0], weights=weight))
        assert (found.low, found.high) == binomial_band(round(scores.n_effective), nominal)


def test_quantiles_and_crps_may_be_those_of_a_sample():
    y = np.random.default_rng(0).standard_normal(500)
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, 500)), np.ones((1, 500)))
    forecast = make_forecast(y, normal, most_sampled=50)
    assert forecast.interval(0.9).shape == (50, 2)
    rows = forecast.sample
    scores = Tally().add(forecast).scores()
    assert scores.crps == pytest.approx(metrics.crps(y[rows], normal.select(rows)))
    assert scores.nll == pytest.approx(metrics.nll(y, normal))
