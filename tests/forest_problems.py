"""Small forests to test, and what dense algebra says of them."""

from dataclasses import dataclass

import numpy as np

import oracle
from tolerances import SAMPLED
from triegp import BitEncoder
from triegp.additive import conditioning, variance
from triegp.additive.conditioning import condition_forest
from triegp.additive.model import forest_mean, read_points
from triegp.additive.settings import Settings
from triegp.additive.start import (
    EncodedRows,
    Parameters,
    draw_grids,
    features_of,
    row_noise,
    start_even,
)
from triegp.additive.variance import cheap_of, draw_forest, forest_covariance, forest_variance
from triegp.engines import CpuEngine
from triegp.tree.rows import Rows

EXACT = Settings(variance="exact", variance_error=0.1)


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, the forest's parameters, and rows to predict at."""

    X: np.ndarray
    rows: Rows
    encoders: tuple
    parameters: Parameters
    new: np.ndarray  # inside the box

    @property
    def orders(self):
        return self.parameters.orders()

    @property
    def codes(self):
        return [encoder.encode(self.X) for encoder in self.encoders]

    @property
    def features(self):
        return [features_of(encoder) for encoder in self.encoders]

    def kernel(self, A=None, B=None, orders=None):
        """Dense K between rows, by definition."""
        A = self.X if A is None else A
        return dense_kernel(self.encoders, orders or self.orders, A, A if B is None else B)

    def nll(self, parameters=None):
        """Of all copies of all rows, by definition."""
        parameters = parameters or self.parameters
        orders = parameters.orders()
        copies = np.repeat(np.arange(self.rows.y.size), copies_of(self.rows))
        noise = row_noise(self.rows, orders, parameters.noise).noise
        dense = self.kernel(orders=orders)[np.ix_(copies, copies)] + np.diag(noise[copies])
        return oracle.nll(dense, self.rows.y[copies])

    def condition(self, settings=EXACT, engine=None, seed=0):
        return condition_forest(self.data, self.parameters, settings, seed, engine or CpuEngine())

    @property
    def data(self):
        return EncodedRows(tuple(self.encoders), self.codes, self.rows)


def make_problem(
    n=80,
    n_trees=4,
    d=2,
    seed=0,
    *,
    noise=0.1,
    slope=1.0,
    precision=4,
    weighted=False,
    known=False,
    outside="unrelated",
):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    y = np.sin(5.0 * X).sum(axis=1) + 0.3 * rng.standard_normal(n)
    encoder = BitEncoder(precision=precision, outside=outside).fit(X)
    encoders = draw_grids([encoder], n_trees, rng)
    phi = tuple(start_even(e, slope, rng) for e in encoders)
    parameters = Parameters(phi, np.log(rng.uniform(0.2, 0.6, n_trees)), float(np.log(noise)))
    rows = Rows(
        y - y.mean(),
        rng.uniform(0.0, 0.3, n) if known else None,
        rng.integers(1, 5, n).astype(float) if weighted else None,
    )
    new = rng.uniform(X.min(axis=0), X.max(axis=0), (30, d))
    return Problem(X, rows, encoders, parameters, new)


def quiet_problem(noise, n=120):
    """Little noise and next to no nuggets: close rows make K + noise nearly singular."""
    return make_problem(n=n, d=2, n_trees=5, noise=noise, slope=2.0, precision=8)


def dense_kernel(encoders, orders, A, B):
    total = np.zeros((A.shape[0], B.shape[0]))
    for encoder, order in zip(encoders, orders, strict=True):
        a, b = (oracle.unpack_bits(encoder.encode(Z), order.key_bits) for Z in (A, B))
        total += oracle.kernel(a, b, order.weights[: order.n_levels] * order.scale)
    return total


def copies_of(rows):
    return np.ones(rows.y.size, int) if rows.weight is None else rows.weight.astype(int)


def mean_at(found, X):
    """Mean of f at new rows."""
    return forest_mean(found, read_points(found, X))


def variance_at(found, X):
    """Variance of f at new rows, as the model computes it."""
    cheap = cheap_of(found) if found.variance_by == "cheap" else None
    return forest_variance(found, read_points(found, X, sort=True), cheap)


def covariance_at(found, X):
    """Covariance of f at new rows."""
    return forest_covariance(found, read_points(found, X, sort=True))


def draws_at(found, X, n_samples, rng):
    """Joint samples of f at new rows."""
    return draw_forest(found, read_points(found, X, sort=True), n_samples, rng)


def own_kernel(found, A, B):
    """Dense K of a model's own encoders and orders."""
    return dense_kernel(found.encoders, found.orders, A, B)


def dense_posterior(found, X, new):
    """Mean and covariance of f at new rows, of a model's own kernel, noise and weights."""
    return oracle.posterior(
        own_kernel(found, X, X),
        found.rows.variance,
        own_kernel(found, X, new),
        own_kernel(found, new, new),
        found.rows.y,
    )


def dense_left_out(found, X):
    """Mean and variance of f at each row, left out with all of its copies: n refits."""
    return oracle.leave_one_out(own_kernel(found, X, X), found.rows.variance, found.rows.y)


def solve_tightly(monkeypatch):
    """Solves as exact as float64 allows, so that values can be compared tightly."""
    monkeypatch.setattr(conditioning, "TOLERANCE", 1e-11)
    monkeypatch.setattr(variance, "EXACT_TOLERANCE", 1e-11)
    monkeypatch.setattr(variance, "SAMPLE_TOLERANCE", 1e-11)


def assert_sampled(found, exact, n_samples):
    """Variances by samples are the exact ones, times chi-square / S."""
    error = (found / exact - 1.0) / np.sqrt(2.0 / n_samples)
    worst, rms = np.abs(error).max(), np.sqrt(np.mean(np.square(error)))
    assert worst < SAMPLED["max"], worst
    assert rms < SAMPLED["rms"], rms
