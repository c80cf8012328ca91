"""Small models, and facts made by hand, for the tests of reports."""

import warnings

import numpy as np
import pandas as pd

from triegp import BinaryTreeGPRegressor
from triegp.metrics.forecasts import make_forecast
from triegp.models.distribution import PredictiveDistribution
from triegp.report.facts import Facts, Outside, TargetFacts, compare_forecasts
from triegp.report.fit import Fit, TargetFit

QUICK = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}


def make_numbers(n=300, seed=0, n_features=3):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, 20 + 5 * X[:, 0] + 0.5 * rng.standard_normal(n)


def make_frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.random(n)),
            "kind": rng.choice(["b", "a", "c"], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), "D"),
            "grade": pd.Categorical(rng.choice(["low", "high"], n), ["low", "high"], ordered=True),
        }
    )
    y = frame["kind"].map({"a": 1.0, "b": 2.0, "c": 3.0}).to_numpy()
    noise = np.where(frame["kind"] == "c", 0.8, 0.2)  # noisy where kind is c
    return frame, y + noise * rng.standard_normal(n)


def fit_quietly(X, y, **options):
    """A quick model, without warnings of its fit."""
    weight = options.pop("sample_weight", None)
    with warnings.catch_warnings(action="ignore"):
        return BinaryTreeGPRegressor(**{**QUICK, **options}).fit(X, y, sample_weight=weight)


def make_evaluation(y, mean, std, source="leave-one-out", weight=None):
    """An evaluation of Gaussian predictions; mean, std: numbers or (n,); weight: (n,) or None."""
    y = np.asarray(y, float)
    means, stds = (np.broadcast_to(part, y.shape).astype(float) for part in (mean, std))
    distribution = PredictiveDistribution(np.ones(1), means[None], stds[None] ** 2)
    forecast = make_forecast(y, distribution, weight=weight)
    return compare_forecasts(source, forecast, forecast)


def make_target(loo=None, test=None, **options):
    n_distinct = None if loo is None else np.unique(loo.forecast.y).size
    values = {"name": "y", "n_distinct": n_distinct, "regions": (), "importances": ()}
    return TargetFacts(**{**values, **options}, loo=loo, test=test, effects=(), pair=None)


def make_facts(*targets, outside=None, transform="identity", **options):
    """Facts of a healthy fit to 1,000 rows, but for what is given."""
    fits = tuple(TargetFit(one.name, transform, 8, 0.0, False, 0.1) for one in targets)
    values = {
        "estimator": "BinaryTreeGPRegressor",
        "version": "0",
        "n_rows": 1_000,
        "n_features": 2,
        "kinds": (("number", 2),),
        "constant": (),
        "n_copies": 0,
        "seconds": 1.0,
        "n_iter": 10,
        "stopped_early": False,
        "diverged": False,
        "parameters": (),
        "exact": True,
        "targets": fits,
    }
    outside = None if outside is None else Outside(*outside)
    return Facts(Fit(**{**values, **options}), tuple(targets), (), outside, False)
