"""Predictions of all targets in the units of y.

Models work on standardised targets. Units are applied last, so that the square of the scale is
computed only if the result is a variance. So targets of size 1e-300 or 1e300 can be predicted, too.
If a target is transformed, the units are those of z = T(y), and the inverse of T comes after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.devices import like, to_host
from triegp.encoding.layout import N_VARIANTS
from triegp.engines import one_blas_thread
from triegp.estimators.new_rows import NewRows, average_variants, join_mixtures, put_mixture
from triegp.models.distribution import (
    PredictiveDistribution,
    fetch_distribution,
    log_density,
    quantiles,
)
from triegp.models.interface import Array, Fitted
from triegp.models.repeats import Observations
from triegp.models.transformed import TransformedDistribution, transformed_log_density
from triegp.models.transforms import Transform

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BLOCK_ROWS = 1 << 17  # rows predicted at a time
DEVICE_ROWS = 1 << 20  # the same if the models lie on a device


@dataclass(frozen=True, eq=False)
class Target:
    """One target of an estimator: its model, its column in that model, and its units.

    T(y) = mean + scale * standardised target, where T is the transform, None for the identity.
    Observations are the training rows as they were passed, None if they are those of the model.
    Aside are rows that were passed but set aside, and their numbers, for leave-one-out.
    """

    fitted: Fitted
    column: int
    mean: float
    scale: float
    observations: Observations | None = None
    transform: Transform | None = None
    aside: tuple[NewRows, Ints] | None = None

    def in_units(self, standard: Floats) -> Floats:
        """Values in the units of y, of any shape; on the host if the target is transformed."""
        values = self.mean + self.scale * standard
        return values if self.transform is None else self.transform.inverse(to_host(values))

    def observed(self) -> tuple[Floats, Floats | None]:
        """Standardised training targets (n,) as passed, and their weights, 0 if not used."""
        if self.observations is None:
            return self.fitted.observed(self.column)
        used = self.observations.index >= 0
        weight = self.observations.weight
        if weight is None and used.all():
            return self.observations.y[:, self.column], None
        weight = np.where(used, 1.0 if weight is None else weight, 0.0)
        return self.observations.y[:, self.column], weight


def predict_mean(targets: Sequence[Target], X: NewRows, *, latent: bool) -> list[Floats]:
    """Mean of each target, (m,); variances are not computed unless a target is transformed."""
    if any(target.transform is not None for target in targets):
        return [mean for mean, _ in predict_moments(targets, X, latent=latent)]

    def mean(target: Target, points: Any, _: Ints, copies: int) -> Floats:
        found = target.fitted.predict(points, target.column, var=False, latent=latent)
        return _average(found, copies).mean()

    found = _over_blocks(targets, X, mean, var=False)
    return [target.mean + target.scale * part for target, part in zip(targets, found, strict=True)]


def predict_moments(
    targets: Sequence[Target], X: NewRows, *, latent: bool
) -> list[tuple[Floats, Floats]]:
    """Mean and standard deviation of each target, (m,) each."""

    def moments(target: Target, points: Any, _: Ints, copies: int) -> Floats:
        return np.stack(_moments(target, _predict(target, points, latent, copies)), axis=1)

    return [(part[:, 0].copy(), part[:, 1].copy()) for part in _over_blocks(targets, X, moments)]


@one_blas_thread()
def predict_covariance(
    targets: Sequence[Target], X: NewRows, *, latent: bool
) -> list[tuple[Floats, Floats]]:
    """Mean (m,) and covariance (m, m) of each target; no target may be transformed.

    Rows with unseen values: the average over their variants, plus the covariance of their means for
    rows that have the same unknown categories.
    """
    n_variants = 1 if X.unseen is None else N_VARIANTS
    means: list[list[Floats]] = [[] for _ in targets]
    covariances: list[Any] = [0.0 for _ in targets]
    for v in range(n_variants):
        points = _read(targets, X.at_variant(v), var=True)
        for t, (target, own) in enumerate(zip(targets, points, strict=True)):
            mean, cov = target.fitted.predict_covariance(own, target.column, latent=latent)
            means[t].append(mean)
            covariances[t] = covariances[t] + cov / n_variants if n_variants > 1 else cov
    found = []
    for target, mine, cov in zip(targets, means, covariances, strict=True):
        mean = np.mean(mine, axis=0) if n_variants > 1 else mine[0]
        if X.unseen is not None and X.group is not None:
            left = (np.array(mine) - mean)[:, X.unseen]
            same = X.group[:, None] == X.group
            rows = np.flatnonzero(X.unseen)
            cov[np.ix_(rows, rows)] += np.where(same, left.T @ left / n_variants, 0.0)
        found.append((target.mean + target.scale * mean, squared_scale(target) * cov))
    return found


@one_blas_thread()
def predict_groups(
    targets: Sequence[Target], X: NewRows, groups: Ints
) -> list[tuple[Floats, Floats]]:
    """Mean (m,) of each target's function and covariances within groups of rows, (g, q, q).

    As `predict_covariance` with latent=True. Rows must have no unseen values.
    """
    if X.unseen is not None:
        raise ValueError("X must hold values that training has seen, got missing or unknown ones")
    found = []
    for target, points in zip(targets, _read(targets, X.seen, var=True), strict=True):
        mean, cov = target.fitted.group_covariance(points, target.column, groups)
        found.append((target.mean + target.scale * mean, squared_scale(target) * cov))
    return found


def predict_quantiles(
    targets: Sequence[Target], X: NewRows, q: Floats, *, latent: bool
) -> list[Floats]:
    """Quantiles of each target, (m, len(q))."""

    def find(target: Target, points: Any, _: Ints, copies: int) -> Floats:
        return quantiles(_predict(target, points, latent, copies), q)

    found = _over_blocks(targets, X, find)
    return [target.in_units(part) for target, part in zip(targets, found, strict=True)]


def predict_log_density(targets: Sequence[Target], X: NewRows, y: Floats) -> list[Floats]:
    """Log density of new observations y (m, n_targets) of each target, (m,)."""
    column = {id(target): j for j, target in enumerate(targets)}

    def density(target: Target, points: Any, rows: Ints, copies: int) -> Floats:
        own = y[rows, column[id(target)]]
        found = fetch_distribution(_predict(target, points, False, copies))
        if target.transform is not None:
            return transformed_log_density(_in_z(target, found), target.transform, own)
        with np.errstate(over="ignore"):  # very far away: the log density is -inf
            standard = (own - target.mean) / target.scale
        return _log_density(target, found, standard)

    return _over_blocks(targets, X, density)


def predict_distribution(
    targets: Sequence[Target], X: NewRows, *, latent: bool
) -> list[PredictiveDistribution | TransformedDistribution]:
    """The distribution of each target, in the units of y, on the host."""
    pairs = zip(targets, _predict_all(targets, X, latent=latent), strict=True)
    return [_in_y(target, found) for target, found in pairs]


def _predict_all(
    targets: Sequence[Target], X: NewRows, *, latent: bool
) -> list[PredictiveDistribution]:
    """The distribution of each standardised target at all rows, on the host."""
    out = []
    seen = _read(targets, X.seen, var=True) if X.seen.shape[0] or X.unseen is None else None
    variants = None if X.unseen is None else _read(targets, X.variants, var=True)
    for t, target in enumerate(targets):
        parts = [
            fetch_distribution(_predict(target, points[t], latent, copies))
            for copies, points in ((1, seen), (N_VARIANTS, variants))
            if points is not None
        ]
        out.append(parts[0] if len(parts) == 1 else join_mixtures(X, *parts))
    return out


@one_blas_thread()
def sample(
    targets: Sequence[Target],
    X: NewRows,
    n_samples: int,
    rng: np.random.Generator,
    *,
    latent: bool,
) -> list[Floats]:
    """Joint samples of each target, (m, n_samples).

    Each sample draws one variant per group of unseen values.
    """
    if X.unseen is None:
        return _sample(targets, X.seen, n_samples, rng, latent)
    assert X.group is not None
    n_groups = int(X.group.max()) + 1
    parts = []
    for _ in range(n_samples):
        chosen = rng.integers(N_VARIANTS, size=n_groups)
        parts.append(_sample(targets, X.at_variant(chosen), 1, rng, latent))
    return [np.concatenate(one, axis=1) for one in zip(*parts, strict=True)]


def _sample(
    targets: Sequence[Target], X: Array, n_samples: int, rng: np.random.Generator, latent: bool
) -> list[Floats]:
    out = []
    for target, points in zip(targets, _read(targets, X, var=True), strict=True):
        drawn = target.fitted.sample(points, target.column, n_samples, rng, latent=latent)
        out.append(target.in_units(drawn))
    return out


def _leave_one_out(target: Target) -> PredictiveDistribution:
    """Leave-one-out of the training rows as they were passed; NaN for those of no row.

    The model does not know the rows that were set aside, which are predicted as new ones.
    """
    observations, column = target.observations, target.column
    if observations is None or not observations.plain:
        left = target.fitted.leave_one_out(column, observations)
    else:
        left = fetch_distribution(target.fitted.leave_one_out(column)).select(observations.index)
        unused = np.where(observations.index < 0, np.nan, 0.0)
        left = replace(left, means=left.means + unused, variances=left.variances + unused)
    if target.aside is None:
        return left
    X, numbers = target.aside
    (there,) = _predict_all([target], X, latent=False)
    return put_mixture(fetch_distribution(left), numbers, there)


@one_blas_thread()
def loo_moments(target: Target) -> tuple[Floats, Floats]:
    """Leave-one-out mean and standard deviation of the training targets, (n,) each."""
    return _moments(target, _leave_one_out(target))


@one_blas_thread()
def loo_distribution(target: Target) -> PredictiveDistribution | TransformedDistribution:
    """Leave-one-out distribution of the training targets, in the units of y, on the host."""
    left = _leave_one_out(target)
    return _in_y(target, fetch_distribution(left))


def observed_targets(target: Target) -> Floats:
    """Training targets in the units of y, (n,), as passed; NaN if their weight is 0."""
    y, weight = target.observed()
    found = target.in_units(y)
    return found if weight is None else np.where(weight > 0, found, np.nan)


@one_blas_thread()
def loo_log_density(target: Target) -> Floats:
    """Leave-one-out log density of the training targets, (n,)."""
    y, _ = target.observed()
    left = _leave_one_out(target)
    return _log_density(target, left, y) + _log_jacobian(target, y)


@one_blas_thread()
def log_marginal_likelihood(target: Target, *, precision: bool) -> float:
    """Log marginal likelihood of the training targets; precision: whether weights are precisions.

    The Jacobian of a transform counts each observation as often as the likelihood does.
    """
    count = target.fitted.n_observations
    found = target.fitted.log_evidence(target.column) - count * float(np.log(target.scale))
    if target.transform is None:
        return found
    y, weight = target.observed()
    if weight is None:
        weight = np.ones(y.size)
    used = weight > 0
    each = _log_jacobian(target, y[used])
    weight = np.ones(each.size) if precision else weight[used]
    observations = target.observations
    if observations is not None and observations.copies:  # each row is one observation
        row = observations.index[used]
        total = np.bincount(row, weight)
        return found + float((np.bincount(row, weight * each)[total > 0] / total[total > 0]).sum())
    return found + float(weight @ each)


def squared_scale(target: Target) -> float:
    """Square of the scale; raises ValueError if it is outside the range of float64."""
    with np.errstate(over="ignore", under="ignore"):
        unit = float(np.square(target.scale))
    if not np.finfo(np.float64).tiny <= unit <= 1e300:
        raise ValueError(
            "variances of y must lie within float64, got a standard deviation of "
            f"{target.scale:.3g}: rescale y, or use return_std=True"
        )
    return unit


def _read(targets: Sequence[Target], X: Array, *, var: bool) -> list[Any]:
    """Rows as the model of each target reads them; targets of one model share them."""
    read = {}
    for target in targets:
        if id(target.fitted) not in read:
            read[id(target.fitted)] = target.fitted.read(X, var=var)
    return [read[id(target.fitted)] for target in targets]


def _over_blocks(
    targets: Sequence[Target],
    X: NewRows,
    work: Callable[[Target, Any, Ints, int], Floats],
    *,
    var: bool = True,
) -> list[Floats]:
    """work(target, points, rows, copies) for blocks of rows, joined: one array (m, ...) per target.

    rows are the numbers of the rows of a block, and copies the number of variants of each. Blocks
    bound the memory by O(K) per row of a block. The result lies where the rows do.
    """
    step = BLOCK_ROWS if all(target.fitted.on_host for target in targets) else DEVICE_ROWS
    found: list[list[Floats]] = [[] for _ in targets]
    places = []
    for copies, data in ((1, X.seen), (N_VARIANTS, X.variants)):
        numbers = X.places(copies)
        for start in range(0, data.shape[0], step):
            points = _read(targets, data[start : start + step], var=var)
            rows = numbers[start // copies : (start + step) // copies]
            places.append(rows)
            for parts, target, own in zip(found, targets, points, strict=True):
                parts.append(like(work(target, own, rows, copies), data))
    joined = [np.concatenate(parts) for parts in found]
    if X.unseen is None:
        return joined
    back = np.argsort(np.concatenate(places))
    return [values[back] for values in joined]


def _predict(target: Target, points: Any, latent: bool, copies: int) -> PredictiveDistribution:
    return _average(target.fitted.predict(points, target.column, var=True, latent=latent), copies)


def _average(found: PredictiveDistribution, copies: int) -> PredictiveDistribution:
    """The average over variants of rows, which is computed on the host."""
    return found if copies == 1 else average_variants(fetch_distribution(found), copies)


def _in_z(target: Target, mixture: PredictiveDistribution) -> PredictiveDistribution:
    """The distribution in the units of the transformed target, those of y if there is none."""
    means = target.mean + target.scale * mixture.means
    variances = squared_scale(target) * mixture.variances
    return PredictiveDistribution(mixture.weights, means, variances)


def _in_y(
    target: Target, mixture: PredictiveDistribution
) -> PredictiveDistribution | TransformedDistribution:
    """The distribution in the units of y."""
    found = _in_z(target, mixture)
    transform = target.transform
    return found if transform is None else TransformedDistribution(found, transform)


def _moments(target: Target, mixture: PredictiveDistribution) -> tuple[Floats, Floats]:
    if target.transform is not None:
        found = _in_z(target, fetch_distribution(mixture))
        return TransformedDistribution(found, target.transform).moments()
    mean = target.mean + target.scale * mixture.mean()
    return mean, target.scale * mixture.std()


def _log_density(target: Target, mixture: PredictiveDistribution, standard: Floats) -> Floats:
    return log_density(mixture, standard) - float(np.log(target.scale))


def _log_jacobian(target: Target, standard: Floats) -> Floats:
    """Log dz/dy at standardised targets, (n,); 0 if they are not transformed."""
    if target.transform is None:
        return np.zeros(standard.shape)
    return target.transform.log_derivative(target.in_units(standard))
