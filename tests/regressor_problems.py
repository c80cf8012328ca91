"""Small fits of the regressor, and its predictions by dense algebra."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

import oracle
from triegp.calibration.model import CalibratedModel

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 10, "noise": 0.05, "random_state": 0}


def make_data(n=40, seed=0, n_features=2):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, 20 + 5 * (np.sin(5 * X[:, 0]) + 0.2 * rng.standard_normal(n))


def new_rows(m=9, seed=1, n_features=2):
    return np.random.default_rng(seed).random((m, n_features))


# The dense route: members by their kernels, the mixture by hand.


class Part(NamedTuple):
    """Mean and covariance of f at rows under one member, the part of the variance that lies below
    where each row parts from the data, and the noise; standardised."""

    mean: np.ndarray
    cov: np.ndarray
    run: np.ndarray
    noise: float


class Hand(NamedTuple):
    """The predictive distribution by hand, in the units of y: components, mean and covariance."""

    weight: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    mean: np.ndarray
    cov: np.ndarray


def dense_kernel(member, a, b):
    order = member.order
    bits = [oracle.unpack_bits(member.encoder.encode(X), order.key_bits) for X in (a, b)]
    return oracle.kernel(*bits, order.weights[: order.n_levels] * order.scale)


def part_from_rows(member, X, new):
    """Dense K (n, m) of rows and new rows, if a new row parts from the one row with its key.

    It then shares with that row what the row shares with all others.
    """
    order = member.order
    rows, points = (oracle.unpack_bits(member.encoder.encode(Z), order.key_bits) for Z in (X, new))
    same = oracle.shared_prefix(rows, points) == order.n_levels
    cross, among = dense_kernel(member, X, new), dense_kernel(member, X, X)
    np.fill_diagonal(among, 0.0)
    for j in np.flatnonzero(same.sum(axis=0) == 1):
        i = int(np.argmax(same[:, j]))
        cross[i, j] = among[i].max()
    return cross


def dense_members(model, X, y, new, known=0.0, target=0, column=0):
    """One Part per member at new rows."""
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    ensemble = model.ensembles_[target if column == 0 else 0]
    out = []
    for member in ensemble.members:
        noise = member.posteriors[column].new_noise
        given = dense_kernel(member, X, X), noise + known / unit**2
        prior, standard = dense_kernel(member, new, new), (y - shift) / unit
        cross = dense_kernel(member, X, new)
        mean, cov = oracle.posterior(*given, cross, prior, standard)
        if ensemble.apart:
            cross = part_from_rows(member, X, new)
            mean, alone = oracle.posterior(*given, cross, prior, standard)
            cov[np.diag_indices_from(cov)] = np.diag(alone)
        out.append(Part(mean, cov, np.diag(prior) - cross.max(axis=0), noise))
    return out


def dense_loo(model, X, y):
    out = []
    for member in model.ensembles_[0].members:
        noise = member.posteriors[0].new_noise
        standard = (y - model.target_mean_) / model.target_scale_
        mean, var = oracle.leave_one_out(dense_kernel(member, X, X), noise, standard)
        out.append(Part(mean, np.diag(var), np.zeros_like(mean), noise))
    return out


def by_hand(model, members, new=None, latent=False, target=0, column=0):
    """The mixture of the members at new rows in the units of y, with its calibration.

    new: None for the rows of the model, each left out.
    """
    fitted = model._inserted().fitted[target if column == 0 else 0]
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    if isinstance(fitted, CalibratedModel):
        fitted = _order(fitted, model._stream.observations.index)
        found = _calibrate(fitted, members, new, latent, column)
    else:
        found = _temper(fitted.calibrations[column], members, latent)
    return Hand(
        found.weight,
        shift + unit * found.means,
        unit**2 * found.variances,
        shift + unit * found.mean,
        unit**2 * found.cov,
    )


def _order(fitted, index):
    """The model with lines at its rows in the order in which they were passed."""
    stages = (
        stage
        if stage.trend is None
        else replace(stage, trend=replace(stage.trend, left=stage.trend.left[index]))
        for stage in fitted.stages
    )
    return replace(fitted, stages=tuple(stages))


def _mix(weight, means, covs):
    """Mean and covariance of a mixture."""
    mean = np.average(means, axis=0, weights=weight)
    triples = zip(weight, means, covs, strict=True)
    parts = [w * (c + np.outer(m - mean, m - mean)) for w, m, c in triples]
    return mean, np.sum(parts, axis=0)


def _temper(mixed, members, latent):
    """An outlier is independent of all other rows."""
    means = np.stack([part.mean for part in members])
    average = np.average(means, axis=0, weights=mixed.weight)
    means = average + mixed.shrink * (means - average)
    covs = np.stack(
        [part.cov + (not latent) * part.noise * np.eye(average.size) for part in members]
    )
    covs *= mixed.scale
    mean, cov = _mix(mixed.weight, means, covs)
    variances = np.diagonal(covs, axis1=1, axis2=2)
    if latent or not mixed.outlier:
        return Hand(mixed.weight, means, variances, mean, cov)
    far = np.average(variances, axis=0, weights=mixed.weight) + mixed.outlier_var
    whole = (1 - mixed.outlier) ** 2 * cov
    np.fill_diagonal(whole, (1 - mixed.outlier) * np.diag(cov) + mixed.outlier * far)
    weight = np.append((1 - mixed.outlier) * mixed.weight, mixed.outlier)
    return Hand(weight, np.vstack([means, average]), np.vstack([variances, far]), mean, whole)


def _calibrate(fitted, members, new, latent, column):
    """Tails around the mean of the members and the trend; the function is one Gaussian."""
    stage, weight = fitted.stages[column], fitted.base.calibrations[column].weight
    assert stage.local is None
    assert stage.repeats is None
    tails = stage.tails
    means = np.stack([part.mean for part in members])
    average, cov = _mix(weight, means, [part.cov for part in members])
    mean = _trend(stage.trend, average, new)
    beyond = _beyond(fitted.border, new, column, mean.size)
    raw = np.diag(cov) + weight @ [part.noise for part in members]
    factor = stage.factors(np.zeros(raw.size), raw)
    total = factor * raw
    variances = np.outer(tails.factor**2, total)
    observed = tails.weight @ (variances + np.outer(tails.offset**2, total))
    if latent:
        own = weight @ np.stack([np.diag(part.cov) - part.run for part in members])
        spread = weight @ (means - average) ** 2
        error = np.maximum(own - spread, own / 3)
        error = np.clip(error, observed / (fitted.n_rows + 1), observed)
        scale = np.sqrt(error / np.diag(cov))
        joint = cov * np.outer(scale, scale) + beyond
        return Hand(np.ones(1), mean[None], (error + np.diag(beyond))[None], mean, joint)
    joint = (tails.weight @ tails.factor) ** 2 * np.sqrt(np.outer(factor, factor)) * cov
    np.fill_diagonal(joint, observed)
    variances = variances + np.diag(beyond)
    means = mean + np.outer(tails.offset, np.sqrt(total))
    return Hand(tails.weight, means, variances, mean, joint + beyond)


def _trend(trend, mean, new):
    """Means of the mixture and of a line, which is level outside its box, averaged."""
    if trend is None:
        return mean
    line = trend.left
    if new is not None:
        inside = np.minimum(np.maximum(new, trend.low), trend.high)
        line = trend.level + np.sum(trend.slope * inside, axis=1)
    return (1 - trend.share) * mean + trend.share * line


def _beyond(border, new, column, n_rows):
    """Covariance of lines of unknown slopes, one for each side of each feature."""
    if new is None:
        return np.zeros((n_rows, n_rows))
    width = border.high - border.low
    sides = np.maximum(border.low - new, 0) / width, np.maximum(new - border.high, 0) / width
    return sum((side * border.slope[column] ** 2) @ side.T for side in sides)
