"""MAPIE: conformal intervals by our deviations and quantiles, and what they cover."""

import numpy as np
import pytest

pytest.importorskip("mapie", reason="needs MAPIE: make integrations-test")

from mapie.conformity_scores import StdConformityScore
from mapie.regression import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    JackknifeAfterBootstrapRegressor,
    SplitConformalRegressor,
)
from mapie.subsample import Subsample
from sklearn.base import BaseEstimator, RegressorMixin

from tolerances import DENSE, ROUNDING
from triegp import BinaryTreeGPRegressor

MODEL = BinaryTreeGPRegressor(n_members=3, n_candidates=4, random_state=0, outside="clip")
LEVEL = 0.8
N_TRAIN, N_NEW = 1_000, 20_000


class Quantile(RegressorMixin, BaseEstimator):
    """One quantile of a fitted model."""

    def __init__(self, model, level):
        self.model = model
        self.level = level
        self.n_features_in_ = model.n_features_in_

    def fit(self, X, y):
        raise AssertionError("the model is fitted")

    def predict(self, X):
        return self.model.predict_quantiles(X, self.level)[:, 0]


def make_rows(n, seed):
    """Noise that grows with the second feature, with heavy tails."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.sin(6 * X[:, 0]) + (0.05 + 0.5 * X[:, 1]) * rng.standard_t(4, n)


@pytest.fixture(scope="module")
def rows():
    return make_rows(N_TRAIN, 0)


@pytest.fixture(scope="module")
def new():
    return make_rows(N_NEW, 1)


def coverage(ends, new):
    """Share of new observations inside, for the quieter and the noisier half of the rows."""
    X, y = new
    inside = (y >= ends[:, 0, 0]) & (y <= ends[:, 1, 0])
    return np.array([inside[X[:, 1] <= 0.5].mean(), inside[X[:, 1] > 0.5].mean()])


def tolerance(n_calibration):
    """Four deviations of the coverage of conformal intervals, given what they are calibrated by.

    It varies by sqrt(p (1 - p) / n) over calibration rows, and by the same over new rows.
    """
    return 4 * np.sqrt(LEVEL * (1 - LEVEL) * (1 / n_calibration + 1 / N_NEW))


def test_cross_conformal_with_our_deviations(rows, new):
    """CV+ covers at least 1 - 2 alpha by theory, and about 1 - alpha in practice.

    By our deviations, both halves are covered alike; by absolute residuals they are not.
    """
    parts = {}
    for score in (StdConformityScore(), "absolute"):
        model = CrossConformalRegressor(MODEL, LEVEL, score, method="plus", cv=5)
        mean, ends = model.fit_conformalize(*rows).predict_interval(new[0])
        assert mean.shape == (N_NEW,)
        parts[str(score)[:3]] = coverage(ends, new)
        assert parts[str(score)[:3]].mean() > 2 * LEVEL - 1
        assert abs(parts[str(score)[:3]].mean() - LEVEL) < tolerance(N_TRAIN)
    by_std, by_size = (np.ptp(part) for part in (parts["<ma"], parts["abs"]))
    assert by_std < 0.5 * by_size


def test_split_conformal_by_hand(rows, new):
    """The interval is mean +- q std, q the ceil((n + 1) p)-th smallest |y - mean| / std.

    MAPIE takes the rank from above for the lower end, which may be one less.
    """
    (X, y), n = rows, 600
    fitted = BinaryTreeGPRegressor(**MODEL.get_params()).fit(X[:n], y[:n])
    model = SplitConformalRegressor(fitted, LEVEL, StdConformityScore(), prefit=True)
    model.conformalize(X[n:], y[n:])
    _, ends = model.predict_interval(new[0])
    mean, std = fitted.predict(X[n:], return_std=True)
    scores = np.sort(np.abs(y[n:] - mean) / std)
    rank = int(np.ceil((y[n:].size + 1) * LEVEL))
    mean, std = fitted.predict(new[0], return_std=True)
    low, high = ((ends[:, k, 0] - mean) / std for k in (0, 1))
    np.testing.assert_allclose(high, scores[rank - 1], rtol=DENSE)
    np.testing.assert_allclose(low, low[0], rtol=DENSE)
    assert scores[rank - 2] * (1 - DENSE) <= -low[0] <= scores[rank - 1] * (1 + DENSE)
    assert abs(coverage(ends, new).mean() - LEVEL) < tolerance(y[n:].size)


def test_conformalized_quantiles_by_hand(rows, new):
    """Ends of the central interval move by one quantile each of what they miss."""
    (X, y), n = rows, 600
    fitted = BinaryTreeGPRegressor(**MODEL.get_params()).fit(X[:n], y[:n])
    levels = [(1 - LEVEL) / 2, (1 + LEVEL) / 2, 0.5]
    parts = [Quantile(fitted, level) for level in levels]
    model = ConformalizedQuantileRegressor(parts, LEVEL, prefit=True).conformalize(X[n:], y[n:])
    _, ends = model.predict_interval(new[0])
    own = fitted.predict_quantiles(new[0], levels[:2])
    moved = ends[:, :, 0] - own
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=ROUNDING)
    gap = tolerance(y[n:].size) * np.sqrt(2)  # two ends, each by a quantile of its own
    assert abs(coverage(ends, new).mean() - LEVEL) < gap


def test_jackknife_after_bootstrap_without_copies(rows, new):
    """Drawn without replacement: rows drawn twice would be copies of one observation to us."""
    resampling = Subsample(n_resamplings=24, n_samples=500, replace=False, random_state=0)
    model = JackknifeAfterBootstrapRegressor(
        MODEL, LEVEL, StdConformityScore(), resampling=resampling
    )
    _, ends = model.fit_conformalize(*rows).predict_interval(new[0])
    assert coverage(ends, new).mean() > 2 * LEVEL - 1
    assert abs(coverage(ends, new).mean() - LEVEL) < tolerance(N_TRAIN)
