"""Random forests that keep the targets in their leaves."""

import numpy as np

from bench.distributions import LEVELS, Quantiles
from bench.methods.task import Method


def fit_quantile_forest(task):
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(
        n_estimators=200, min_samples_leaf=5, random_state=task.seed, n_jobs=-1
    ).fit(task.X, task.y)

    def predict(X):
        values = model.predict(X, quantiles=list(LEVELS))
        mean = model.predict(X, quantiles="mean")
        return Quantiles(np.array(LEVELS), values, mean)

    return predict


METHODS = (
    Method(
        "quantile-forest",
        ("quantile_forest",),
        fit_quantile_forest,
        "200 trees, at least 5 rows per leaf",
    ),
)
