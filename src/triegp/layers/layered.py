"""A model of many rows in three layers; implements `Fitted`.

    y = effects(x) + base(x) + rest(x) + noise

Main effects are learned from all rows: a percent of the degrees of freedom, at most. Trees and a
smooth part, the base, are conditioned on some of the rows, given the effects. A mixture of trees,
the rest, is conditioned on all other rows, given the mean of the two layers below it. So residuals
of the rest, from which the error bars are learned, are of rows that the base has not seen.

The rest knows how wrong the base is where there are rows. Where there are none it does not: there
the variance of the base counts as far as it exceeds the usual, and functions drawn from the model
add the deviation of a function of the base from its mean, in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from triegp.additive.fitted import FittedForest
from triegp.calibration.model import base_of, with_base
from triegp.layers.effects import MainEffects
from triegp.mixture.members import Ensemble
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Fitted, Residuals
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

ROWS_AT_ONCE = 1 << 16  # whose means are computed together


class Points(NamedTuple):
    """New rows as the layers read them; below: their effects (m, k), and as the base reads them."""

    below: tuple[Floats, Any]
    rest: Any


@dataclass(frozen=True, eq=False)
class Draws:
    """Functions drawn from the base and from the rest, by the same seeds."""

    base: Any
    rest: Any

    def select(self, some: Array) -> Draws:
        """Some of the functions."""
        return Draws(self.base.select(some), self.rest.select(some))


@dataclass(frozen=True, eq=False)
class Below:
    """The layers below the rest.

    Attributes
    ----------
    effects : MainEffects
        For all targets.
    base : FittedForest
        Conditioned on some rows, less their effects.
    gain : float64 (k,)
        Factor of the mean of the base, in [0, 1]: that of least squared error at rows that the base
        has not seen. It is near 1, unless the effects leave little but noise; and 0 if the rest
        predicts better without the base, whose rows are then among its own.
    bound : float64 (k,)
        Largest size of a mean.
    usual : float
        Variance of f that the base exceeds at 1 in 100 rows.
    """

    effects: MainEffects
    base: FittedForest
    gain: Floats
    bound: Floats
    usual: float

    def read(self, X: Array, *, var: bool) -> tuple[Floats, Any]:
        """New rows: their effects, (m, k), and as the base reads them."""
        return self.effects.at(X), self.base.read(X, var=var)

    def mean(self, points: tuple[Floats, Any], column: int) -> Floats:
        """Mean at new rows, (m,)."""
        effects, at = points
        found = effects[:, column]
        if self.gain[column]:
            found = found + self.gain[column] * self.base_mean(at, column)
        return np.asarray(np.clip(found, -self.bound[column], self.bound[column]))

    def base_mean(self, at: Any, column: int) -> Floats:
        """Mean of the base alone, (m,)."""
        return self.base.predict(at, column, var=False, latent=True).mean()

    def excess(self, points: tuple[Floats, Any], column: int) -> tuple[Floats, Floats]:
        """Variance of the base beyond the usual, (m,), and the root of its share of all."""
        var = self.base.predict(points[1], column, var=True, latent=True).var()
        more = np.maximum(var - self.usual, 0.0)
        return more, np.sqrt(more / np.maximum(var, 1e-300))

    def mean_at(self, X: Array) -> Floats:
        """Means of all targets, (m, k). A row does not depend on the others."""
        if not self.gain.any():
            return np.asarray(np.clip(self.effects.at(X), -self.bound, self.bound))
        out = np.empty((X.shape[0], self.bound.size))
        for lo in range(0, X.shape[0], ROWS_AT_ONCE):
            some = slice(lo, lo + ROWS_AT_ONCE)
            points = self.read(X[some], var=False)
            for column in range(self.bound.size):
                out[some, column] = self.mean(points, column)
        return out


@dataclass(frozen=True, eq=False)
class Layered:
    """Main effects, trees and a smooth part, and a mixture, each given those below it.

    Rows of the model are those of the base, then those of the rest. If the rest sums up its rows in
    cells, they are those that the rest holds.

    Attributes
    ----------
    below : Below
        Main effects, and trees with a smooth part.
    rest : Ensemble
        Conditioned on the other rows, less the mean of the layers below and in units of `scale`.
    scale : float64 (k,)
        Deviation of what the layers below leave of each target.
    known : float64 (n, k)
        What is subtracted from the targets: at rows of the base their effects, at rows of the rest
        the mean of the layers below.
    """

    below: Below
    rest: Ensemble
    scale: Floats
    known: Floats

    @property
    def base(self) -> FittedForest:
        """Trees and the smooth part."""
        return self.below.base

    @property
    def n_base(self) -> int:
        """Number of rows of the model that are those of the base, and not of the rest."""
        return 0 if self.rest.held is not None or not self.below.gain.any() else self.base.n_rows

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.rest.n_targets

    @property
    def n_rows(self) -> int:
        """Number of rows of the model."""
        return self.n_base + self.rest.n_rows

    @property
    def n_summed(self) -> int:
        """Number of training rows of which the model keeps sums only."""
        return self.rest.n_summed

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return self.rest.n_observations + (self.base.n_observations if self.n_base else 0.0)

    @property
    def on_host(self) -> bool:
        """Whether the model lies in the host's memory: always."""
        return True

    @property
    def goes_on(self) -> bool:
        """Whether the function goes on outside the training box."""
        return self.base.goes_on

    def read(self, X: Array, *, var: bool) -> Points:
        """Read new rows in all layers."""
        return Points(self.below.read(X, var=var), self.rest.read(X, var=var))

    def predict(
        self, points: Points, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at new rows; variances are 0 without `var`."""
        found = self.rest.predict(points.rest, column, var=var, latent=latent)
        more = self.below.excess(points.below, column)[0] if var else 0.0
        scale = self.scale[column]
        means = scale * found.means + self.below.mean(points.below, column)
        return PredictiveDistribution(found.weights, means, scale**2 * found.variances + more)

    def predict_covariance(
        self, points: Points, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`."""
        mean, cov = self.rest.predict_covariance(points.rest, column, latent=latent)
        cov = self.scale[column] ** 2 * cov
        _, root = self.below.excess(points.below, column)
        if root.any():
            other = self.base.predict_covariance(points.below[1], column, latent=True)[1]
            cov += root[:, None] * other * root
        return self._mean(points, column, mean), cov

    def group_covariance(
        self, points: Points, column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of f, and covariances within groups of rows, (g, q, q)."""
        mean, cov = self.rest.group_covariance(points.rest, column, groups)
        cov = self.scale[column] ** 2 * cov
        root = self.below.excess(points.below, column)[1][groups]
        if root.any():
            other = self.base.group_covariance(points.below[1], column, groups)[1]
            cov += root[:, :, None] * other * root[:, None, :]
        return self._mean(points, column, mean), cov

    def sample(
        self, points: Points, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Joint samples, (m, n_samples)."""
        draws = self.rest.sample(points.rest, column, n_samples, rng, latent=latent)
        _, root = self.below.excess(points.below, column)
        other = None
        if root.any():
            other = self.base.sample(points.below[1], column, n_samples, rng, latent=True)
        return self._join_draws(points, column, draws, other, root)

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time; 0: any number."""
        return self.base.draw_rows

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> Draws:
        """Functions with these seeds, (k,): one solve each with the rows of the base."""
        below = self.base.prepare_draws(column, seeds)
        return Draws(below, self.rest.prepare_draws(column, seeds))

    def evaluate_draws(
        self, points: Points, column: int, draws: Draws, names: npt.NDArray[np.uint64]
    ) -> Floats:
        """Functions at m rows, (m, k), jointly distributed as `sample` with latent=True."""
        found = self.rest.evaluate_draws(points.rest, column, draws.rest, names)
        _, root = self.below.excess(points.below, column)
        other = None
        if root.any():
            other = self.base.evaluate_draws(points.below[1], column, draws.base, names)
        return self._join_draws(points, column, found, other, root)

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given other rows, noise included.

        Rows of the base are predicted by the other rows of the base, all others by all rows.
        """
        if observations is None:
            rows, y = np.arange(self.n_rows), np.zeros((self.n_rows, self.n_targets))
            observations = Observations(rows, y, None, copies=True)
        row = observations.index
        y = observations.y - self.known[np.maximum(row, 0)]
        mean, var = np.full((2, row.size), np.nan)
        parts: tuple[tuple[Any, int, int, Floats], ...] = (
            (self.base, 0, self.n_base, np.ones_like(self.scale)),
            (self.rest, self.n_base, self.n_rows, self.scale),
        )
        for fitted, first, last, scale in parts:
            inside = (row >= first) & (row < last)
            if not inside.any():
                continue
            index = np.where(inside, row - first, -1)
            own = replace(observations, index=index, y=y / scale)
            left = fitted.leave_one_out(column, own).select(inside)
            mean[inside] = scale[column] * left.mean()
            var[inside] = scale[column] ** 2 * left.var()
        mean += self.known[np.maximum(row, 0), column]
        return PredictiveDistribution(np.ones(1), mean[None], var[None])

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training; always."""
        return True

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows of the rest without the observations at these rows."""
        return self.place_residuals(self.rest.residuals(column), column)

    def place_residuals(self, found: Residuals, column: int) -> Residuals:
        """Residuals of the rest as those of the model."""
        rows, scale = found.rows + self.n_base, self.scale[column]
        known = self.known[rows, column]
        mean, y = known + scale * found.mean, known + scale * found.y
        return replace(found, rows=rows, mean=mean, var=scale**2 * found.var, y=y)

    def stand(self, *, apart: bool) -> Self:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        return replace(self, rest=self.rest.stand(apart=apart))

    def noise(self, column: int) -> float:
        """Noise variance of a new observation."""
        return float(self.scale[column] ** 2 * self.rest.noise(column))

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        y, weight = self.rest.observed(column)
        y = self.scale[column] * y
        if self.n_base:
            first, own = self.base.observed(column)
            y = np.append(first, y)
            if own is not None or weight is not None:
                ones = (np.ones(self.n_base), np.ones(self.rest.n_rows))
                pairs = zip((own, weight), ones, strict=True)
                weight = np.concatenate([one if part is None else part for part, one in pairs])
        return y + self.known[:, column], weight

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood: that of the base, and of the rest given the base."""
        rest = self.rest.log_evidence(column)
        rest -= self.rest.n_observations * float(np.log(self.scale[column]))
        return rest + (self.base.log_evidence(column) if self.n_base else 0.0)

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added."""
        self.rest.check(rest_rows(rows, 0.0, self.scale))

    def insert(self, rows: Rows) -> Self:
        """The model with the rest conditioned on more rows; the layers below stay."""
        known = self.below.mean_at(rows.features)
        rest = self.rest.insert(rest_rows(rows, known, self.scale))
        return replace(self, rest=rest, known=np.concatenate([self.known, known]))

    def _mean(self, points: Points, column: int, rest: Floats) -> Floats:
        return np.asarray(self.scale[column] * rest + self.below.mean(points.below, column))

    def _join_draws(
        self, points: Points, column: int, rest: Floats, base: Floats | None, root: Floats
    ) -> Floats:
        """Draws of the rest, (m, k), and as much of the base's deviations as its excess takes."""
        found = self.scale[column] * rest + self.below.mean(points.below, column)[:, None]
        if base is not None:
            mean = self.below.base_mean(points.below[1], column)
            found += root[:, None] * (base - mean[:, None])
        return np.asarray(found)


def rest_rows(rows: Rows, known: Floats | float, scale: Floats) -> Rows:
    """Rows as the rest has them: targets (n, k) less what is known, in units of the scale."""
    noise, scatter = rows.known_noise, rows.scatter
    if noise is not None:
        noise = noise / np.square(scale if noise.ndim > 1 else scale[0])
    if scatter is not None:
        scatter = scatter / np.square(scale if scatter.ndim > 1 else scale[0])
    return replace(rows, y=(rows.y - known) / scale, known_noise=noise, scatter=scatter)


def forest_of(fitted: Fitted) -> FittedForest:
    """The trees and the smooth part of a model, whatever is above or below them."""
    base = base_of(fitted)
    return base.base if isinstance(base, Layered) else cast(FittedForest, base)


def evidence_error(base: FittedForest | Layered) -> list[float]:
    """Standard error of the log evidence of each target: that of the base, if it is a layer."""
    if isinstance(base, Layered) and not base.n_base:
        return [0.0] * base.n_targets
    return [one.error for one in forest_of(base).evidence]


def with_variance(fitted: Fitted, variance: str) -> Fitted:
    """The model with another parameter `variance` of its trees and smooth part."""
    forest, base = forest_of(fitted), base_of(fitted)
    if forest.variance == variance:
        return fitted
    forest = replace(forest, variance=variance)
    if isinstance(base, Layered):
        return with_base(fitted, replace(base, below=replace(base.below, base=forest)))
    return with_base(fitted, forest)
