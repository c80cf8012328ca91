"""Small sums of trees and a smooth part to test, and what dense algebra says of them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import oracle
from tolerances import ROUNDED_WEIGHTS, SAMPLED, SOLVED
from triegp import BitEncoder
from triegp.additive import conditioning, variance
from triegp.additive.conditioning import condition_forest, make_smooth
from triegp.additive.forest import build_forest
from triegp.additive.points import forest_mean, read_points
from triegp.additive.settings import Settings
from triegp.additive.start import (
    EncodedRows,
    Parameters,
    draw_grids,
    features_of,
    row_noise,
    start_even,
)
from triegp.additive.variance import draw_forest, forest_covariance, forest_variance
from triegp.engines import CpuEngine
from triegp.smooth import Kernel
from triegp.smooth.coordinates import Coordinates, coordinates_of, fit_coordinates
from triegp.smooth.linear import Linear
from triegp.tree.rows import Rows

# Trees alone; with a smooth part by inducing rows, which is exact because all rows are inducing;
# with one by neighbours, exact because all earlier rows are; with one that is not approximated.
SMOOTH = (None, "inducing", "neighbours", "dense")


def solved(smooth):
    """What comes of tight solves: weights of neighbours are rounded to float32."""
    return ROUNDED_WEIGHTS if smooth == "neighbours" else SOLVED


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, the parameters of trees and smooth part, and rows to predict at."""

    X: np.ndarray
    rows: Rows
    encoders: tuple
    parameters: Parameters
    coordinates: Coordinates
    new: np.ndarray  # inside the box
    smooth: str | None = None  # one of SMOOTH

    @property
    def orders(self):
        return self.parameters.orders()

    @property
    def codes(self):
        return [encoder.encode(self.X) for encoder in self.encoders]

    @property
    def inputs(self):
        return coordinates_of(self.coordinates, self.X)

    @property
    def features(self):
        return [features_of(encoder) for encoder in self.encoders]

    def kernel(self, A=None, B=None, parameters=None):
        """Dense K between rows, by definition."""
        parameters = parameters or self.parameters
        A = self.X if A is None else A
        B = A if B is None else B
        trees = dense_kernel(self.encoders, parameters.orders(), A, B)
        return trees + dense_smooth(parameters.smooth, self.coordinates, A, B)

    def nll(self, parameters=None):
        """Of all copies of all rows, by definition."""
        parameters = parameters or self.parameters
        copies = np.repeat(np.arange(self.rows.y.size), copies_of(self.rows))
        noise = row_noise(self.rows, parameters.orders(), parameters.noise).noise
        dense = self.kernel(parameters=parameters)[np.ix_(copies, copies)]
        return oracle.nll(dense + np.diag(noise[copies]), self.rows.y[copies])

    def condition(self, settings=None, engine=None, seed=0, limits=None):
        """The model, with the smooth part computed as `smooth` says."""
        settings, engine = settings or Settings(), engine or CpuEngine()
        solver = engine if self.smooth == "dense" else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conditioning, "takes_dense", lambda n, _: self.smooth == "dense")
            if self.smooth == "neighbours":
                patch.setattr(conditioning, "smooth_sizes", lambda n, share: (3, n + 64))
            given = (self.data, self.parameters, settings, seed, engine, solver, limits)
            return condition_forest(*given)

    def forest(self, engine=None):
        """The prior of these parameters over the rows."""
        engine = engine or CpuEngine()
        solver = engine if self.smooth == "dense" else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conditioning, "takes_dense", lambda n, _: self.smooth == "dense")
            smooth = make_smooth(self.parameters.smooth, self.inputs, 0, engine, solver)
        return build_forest(self.codes, self.orders, engine, smooth)

    @property
    def data(self):
        return EncodedRows(
            tuple(self.encoders), self.codes, self.rows, self.inputs, self.coordinates
        )


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
    smooth=None,
    kernel="matern32",
):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    y = np.sin(5.0 * X).sum(axis=1) + 0.3 * rng.standard_normal(n)
    encoder = BitEncoder(precision=precision, outside=outside).fit(X)
    encoders = draw_grids([encoder], n_trees, rng)
    phi = tuple(start_even(e, slope, rng) for e in encoders)
    scales = np.log(rng.uniform(0.2, 0.6, n_trees))
    rows = Rows(
        y - y.mean(),
        rng.uniform(0.0, 0.3, n) if known else None,
        rng.integers(1, 5, n).astype(float) if weighted else None,
    )
    new = rng.uniform(X.min(axis=0), X.max(axis=0), (30, d))
    coordinates = with_rank(fit_coordinates(X), X) if smooth else fit_coordinates(X)
    part = None
    if smooth:
        part = Kernel(kernel, rng.uniform(0.8, 2.0, coordinates.n_coordinates), 0.7)
    parameters = Parameters(phi, scales, float(np.log(noise)), part)
    return Problem(X, rows, encoders, parameters, coordinates, new, smooth)


def with_rank(coordinates, X):
    """Coordinates with the first feature by rank, too, which uniform features do not have."""
    knots = np.quantile(X[:, 0], np.linspace(0.0, 1.0, 257))
    ranks = np.linspace(-np.sqrt(3.0), np.sqrt(3.0), 257)
    return replace(coordinates, ranked=np.array([0]), knots=knots[None], ranks=ranks[None])


def quiet_problem(noise, n=120, smooth=None):
    """Little noise and next to no nuggets: close rows make K + noise nearly singular."""
    return make_problem(n=n, n_trees=5, noise=noise, slope=2.0, precision=8, smooth=smooth)


def dense_kernel(encoders, orders, A, B):
    """Of the trees alone."""
    total = np.zeros((A.shape[0], B.shape[0]))
    for encoder, order in zip(encoders, orders, strict=True):
        a, b = (oracle.unpack_bits(encoder.encode(Z), order.key_bits) for Z in (A, B))
        total += oracle.kernel(a, b, order.weights[: order.n_levels] * order.scale)
    return total


def dense_smooth(kernel, coordinates, A, B):
    """Of the smooth part alone; 0 if there is none."""
    if kernel is None:
        return np.zeros((A.shape[0], B.shape[0]))
    places = (coordinates_of(coordinates, Z) for Z in (A, B))
    return oracle.smooth_kernel(kernel.name, kernel.scale, kernel.lengthscale, *places)


def copies_of(rows):
    return np.ones(rows.y.size, int) if rows.weight is None else rows.weight.astype(int)


def mean_at(found, X):
    """Mean of f at new rows."""
    return forest_mean(found, read_points(found, X))


def variance_at(found, X, kind="exact"):
    """Variance of f at new rows."""
    return forest_variance(found, read_points(found, X, sort=True), kind)


def covariance_at(found, X):
    """Covariance of f at new rows."""
    return forest_covariance(found, read_points(found, X, sort=True))


def draws_at(found, X, n_samples, rng):
    """Joint samples of f at new rows."""
    return draw_forest(found, read_points(found, X, sort=True), n_samples, rng)


def own_kernel(found, A, B):
    """Dense K of a model's own encoders, orders and kernel."""
    kernel = None if found.smooth is None else found.smooth.kernel
    trees = dense_kernel(found.encoders, found.orders, A, B)
    return trees + dense_smooth(kernel, found.coordinates, A, B)


def joint_kernel(found, X, new):
    """Dense K among new rows, as the smooth part has it.

    By inducing rows or neighbours, new rows that differ are related through training rows alone.
    """
    whole = own_kernel(found, new, new)
    if not isinstance(found.smooth, Linear):
        return whole
    kernel, places = found.smooth.kernel, found.coordinates
    X = np.unique(X, axis=0)  # rows that repeat would make `among` singular
    among = dense_smooth(kernel, places, X, X)
    cross = dense_smooth(kernel, places, X, new)
    through = cross.T @ np.linalg.solve(among, cross)
    equal = (new[:, None] == new[None]).all(axis=2)
    return np.where(equal, whole, whole - dense_smooth(kernel, places, new, new) + through)


def dense_posterior(found, X, new):
    """Mean and covariance of f at new rows, of a model's own kernel, noise and weights."""
    return oracle.posterior(
        own_kernel(found, X, X),
        found.rows.variance,
        own_kernel(found, X, new),
        joint_kernel(found, X, new),
        found.rows.y,
    )


def dense_left_out(found, X):
    """Mean and variance of f at each row, left out with all of its copies: n refits."""
    return oracle.leave_one_out(own_kernel(found, X, X), found.rows.variance, found.rows.y)


def solve_tightly(monkeypatch):
    """Solves as exact as float64 allows, so that values can be compared tightly."""
    monkeypatch.setattr(conditioning, "tolerance_for", lambda rows: 1e-11)
    monkeypatch.setattr(variance, "EXACT_TOLERANCE", 1e-11)
    monkeypatch.setattr(variance, "SAMPLE_TOLERANCE", 1e-11)


def assert_sampled(found, exact, n_samples):
    """Variances by samples are the exact ones, times chi-square / S."""
    error = (found / exact - 1.0) / np.sqrt(2.0 / n_samples)
    worst, rms = np.abs(error).max(), np.sqrt(np.mean(np.square(error)))
    assert worst < SAMPLED["max"], worst
    assert rms < SAMPLED["rms"], rms
