"""scikit-learn's Gaussian process, on as many rows as it can take."""

import warnings

import numpy as np

from bench.distributions import gaussian
from bench.methods.task import Method

ROWS = 1_000
PREDICT_ROWS = 20_000  # at a time: their kernel with the training rows is dense


def fit_sklearn_gp(task):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(task.seed).permutation(len(task.y))[:ROWS]
    scaler = StandardScaler().fit(task.X)
    n_features = task.X.shape[1]
    kernel = ConstantKernel() * Matern(np.full(n_features, n_features**0.5), nu=1.5)
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(0.1), normalize_y=True, random_state=task.seed
    )
    with warnings.catch_warnings():
        # A length scale that reaches its bound is a feature that does not matter.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(task.X[rows]), task.y[rows])

    def predict(X):
        starts = range(0, len(X), PREDICT_ROWS)
        parts = (scaler.transform(X[start : start + PREDICT_ROWS]) for start in starts)
        found = [model.predict(part, return_std=True) for part in parts]
        return gaussian(*(np.concatenate(values) for values in zip(*found, strict=True)))

    return predict


METHODS = (
    Method(
        "sklearn-gp",
        (),
        fit_sklearn_gp,
        f"ARD Matern-3/2 with learned noise on {ROWS:,} random rows",
    ),
)
