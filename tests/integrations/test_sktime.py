"""sktime: forecasts by reduction to our regressors, with intervals by their distributions."""

import numpy as np
import pytest

pytest.importorskip("sktime", reason="needs sktime: make integrations-test")
pytest.importorskip("skpro", reason="needs the extra skpro: make integrations-test")

import pandas as pd
from sktime.forecasting.compose import make_reduction

from tolerances import ROUNDING
from triegp import BinaryTreeGPRegressor
from triegp.skpro import TrieProbaRegressor

MODEL = BinaryTreeGPRegressor(n_members=3, n_candidates=4, random_state=0, outside="clip")
NOISE = 0.3
WINDOW = 12

# sktime 1.2 announces the default of a setting that no one here uses.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data`` will change:FutureWarning"
)


def make_series(n=400, seed=0):
    """A season of 12 with noise."""
    rng = np.random.default_rng(seed)
    index = pd.period_range("1990-01", periods=n, freq="M")
    season = 2 * np.sin(2 * np.pi * np.arange(n) / 12)
    return pd.Series(season + NOISE * rng.standard_normal(n), index=index, name="y"), season


def test_recursive_reduction():
    """The season goes on, with an error that the noise explains."""
    y, season = make_series()
    forecaster = make_reduction(MODEL, strategy="recursive", window_length=WINDOW)
    found = forecaster.fit(y[:-24]).predict(fh=range(1, 25))
    assert found.index.equals(y.index[-24:])
    error = np.asarray(found).ravel() - season[-24:]
    assert np.sqrt(np.mean(error**2)) < NOISE


def test_direct_reduction_by_hand():
    """Two steps ahead: rows are the last twelve values, the target is the value two later."""
    y, _ = make_series(200)
    forecaster = make_reduction(TrieProbaRegressor(MODEL), strategy="direct", window_length=WINDOW)
    forecaster.fit(y, fh=[2])
    found = forecaster.predict_interval(coverage=0.8)
    rows = np.lib.stride_tricks.sliding_window_view(y.to_numpy(), WINDOW)
    own = BinaryTreeGPRegressor(**MODEL.get_params()).fit(rows[:-2], y.to_numpy()[WINDOW + 1 :])
    ends = own.predict_interval(rows[-1:], 0.8)
    np.testing.assert_allclose(found, ends, rtol=ROUNDING)
    assert found.index.tolist() == [y.index[-1] + 2]
    levels = forecaster.predict_quantiles(alpha=[0.1, 0.9])
    np.testing.assert_allclose(levels, ends, rtol=ROUNDING)


def test_coverage_of_direct_reduction():
    """80 % intervals of 200 forecasts one step ahead, within four binomial deviations."""
    y, _ = make_series(800, seed=1)
    forecaster = make_reduction(TrieProbaRegressor(MODEL), strategy="direct", window_length=WINDOW)
    forecaster.fit(y[:600], fh=[1])
    inside = []
    for k in range(600, 800):
        ends = forecaster.predict_interval(coverage=0.8).to_numpy()[0]
        inside.append(ends[0] <= y.iloc[k] <= ends[1])
        forecaster.update(y[k : k + 1], update_params=False)
    assert abs(np.mean(inside) - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 200)
