"""GPyTorch's methods in the comparison, against scikit-learn and against each other."""

import numpy as np
import pytest
from bench.distributions import central
from bench.methods import gpytorch as methods
from bench.methods.task import Task
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from tolerances import DENSE, GPYTORCH_CG, GRADIENT, SQUARED_DISTANCES

torch = pytest.importorskip("torch", reason="the extra bench-gpytorch is not installed")
pytest.importorskip("gpytorch", reason="the extra bench-gpytorch is not installed")

QUICK = {
    methods.fit_exact: {"steps": (20, 2)},
    methods.fit_bbmm: {"steps": (20, 2)},
    methods.fit_sgpr: {"steps": 20, "n_points": 32},
    methods.fit_svgp: {"steps": 100, "n_points": 32},
}


def draw(n_rows, seed):
    """Two features of unlike scales, a smooth function, and noise, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2)) * [1.0, 50.0] + [0.0, 7.0]
    y = np.sin(2 * X[:, 0]) + 0.01 * X[:, 1] + rng.normal(scale=0.1, size=n_rows)
    return X, 300.0 + 20.0 * y


@pytest.fixture
def task():
    X, y = draw(200, seed=0)
    return Task(X, y, X[:0], y[:0], seed=0)


def set_up(task, dtype):
    """A model with lengthscales 0.7 and 1.9, scale 1.3, noise 0.05 and mean 0.2."""
    rows = methods.standardise(task, dtype)
    model = methods.regression(rows, *methods.start(2, ard=True))
    model.kernel.base_kernel.lengthscale = torch.tensor([0.7, 1.9], dtype=torch.float64)
    model.kernel.outputscale = 1.3
    model.likelihood.noise = 0.05
    model.mean.constant.data.fill_(0.2)
    return model, rows


@pytest.mark.parametrize("method", methods.METHODS, ids=lambda method: method.name)
def test_methods_predict_new_observations(task, method):
    X, y = draw(300, seed=1)
    predicted = method.fit(task, **QUICK[method.fit])(X)
    mean, sd = central(predicted), predicted.std()
    assert mean.shape == sd.shape == (300,)
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()
    assert (sd > 0).all()
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 * y.std()
    within = np.mean(np.abs(mean - y) < 1.645 * sd)
    assert within > 0.8


def test_batches_of_new_rows_do_not_matter(task, monkeypatch):
    model, rows = set_up(task, torch.float64)
    predict = methods.predictor(model, model.likelihood, rows, *methods.CHOLESKY)
    X, _ = draw(50, seed=1)
    whole = predict(X)
    monkeypatch.setattr(methods, "PREDICT_ROWS", 7)
    parts = predict(X)
    np.testing.assert_allclose(parts.mean(), whole.mean(), rtol=DENSE)
    np.testing.assert_allclose(parts.std(), whole.std(), rtol=DENSE)


def test_exact_agrees_with_scikit_learn(task):
    model, rows = set_up(task, torch.float64)
    X, _ = draw(50, seed=1)
    found = methods.predictor(model, model.likelihood, rows, *methods.CHOLESKY)(X)

    X_mean, X_sd = task.X.mean(axis=0), task.X.std(axis=0)
    y_mean, y_sd = task.y.mean(), task.y.std()
    kernel = ConstantKernel(1.3) * Matern([0.7, 1.9], nu=1.5)
    other = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None)
    other.fit((task.X - X_mean) / X_sd, (task.y - y_mean) / y_sd - 0.2)
    mean, sd = other.predict((X - X_mean) / X_sd, return_std=True)
    # GPyTorch takes squared distances as differences of squares: 2e-8 was seen.
    np.testing.assert_allclose(found.mean(), y_mean + y_sd * (0.2 + mean), rtol=SQUARED_DISTANCES)
    np.testing.assert_allclose(found.std(), y_sd * np.sqrt(sd**2 + 0.05), rtol=SQUARED_DISTANCES)


def test_conjugate_gradients_agree_with_cholesky(task):
    X, _ = draw(50, seed=1)
    model, rows = set_up(task, torch.float64)
    exact = methods.predictor(model, model.likelihood, rows, *methods.CHOLESKY)(X)
    model, rows = set_up(task, torch.float32)
    found = methods.predictor(model, model.likelihood, rows, *methods.CONJUGATE_GRADIENTS)(X)
    np.testing.assert_allclose(found.mean(), exact.mean(), atol=GPYTORCH_CG * rows.y_sd, rtol=0)
    np.testing.assert_allclose(found.std(), exact.std(), rtol=GPYTORCH_CG)


def test_dense_gradient_is_gpytorch_s(task):
    gradients = []
    for differentiate in (methods.differentiate, methods.differentiate_dense):
        model, rows = set_up(task, torch.float64)
        model.train()
        with methods.using(*methods.CHOLESKY):
            differentiate(model, rows.X, rows.y)
        gradients.append([parameter.grad.ravel().cpu() for parameter in model.parameters()])
    automatic, dense = (torch.cat(parts).numpy() for parts in gradients)
    np.testing.assert_allclose(dense, automatic, rtol=GRADIENT["rtol"])


def test_memory_is_checked_before_it_is_taken(task):
    rows = methods.standardise(task, torch.float64)
    methods.check_memory(rows, 6)
    with pytest.raises(MemoryError, match="matrices of 200 by 200"):
        methods.check_memory(rows, 10**12)
