"""Local noise: how the variance of new observations differs from place to place.

A ridge regression, and a small mixture of trees beside it, are trained on log(r^2 / v), with r the
residual and v the predicted variance of each training row without itself. Their features are those
of the row, the predicted mean and, if it is cheap, the logarithm of the predicted variance. So they
find noise that depends on place, on level, or on how far the model trusts itself. The line finds
what changes along a direction that no tree cuts across.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.calibration.trend import fit_line
from triegp.devices import like, to_host
from triegp.encoding.precision import find_two_valued
from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.mixture.members import Ensemble
from triegp.mixture.placing import place_ensemble
from triegp.mixture.settings import PRESETS
from triegp.mixture.train import train_ensemble
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

LINE_FEWEST, TREES_FEWEST = 100, 400  # rows from which on there is a line, and trees beside it
MOST_ROWS = 100_000  # rows that the mixture is trained on
LINE_ROWS = 20_000  # of these, rows that the line is fitted to
HOST_ROWS, DEVICE_ROWS = 1 << 17, 1 << 22  # rows that a mixture predicts at a time
LARGEST_LINE = 10.0  # of the ridge regression: a factor of 20,000 of the variance
SMALLEST_SQUARE = 1e-3  # of a standardised residual: the logarithm of smaller ones says little
SETTINGS = replace(
    PRESETS["default"],
    n_members=8,
    n_candidates=1,
    scaling="ecdf",
    precision=6,
    max_iter=30,
    tol=1e-2,
    mixture="stacking",
    by_parts=False,
)


class LearnedFrom(NamedTuple):
    """Features X (n, d) of the rows, on the host or on a device; their predictions and targets.

    mean, var, y: float64 (n,); mean and variance of an observation without the row itself.
    """

    X: npt.NDArray[np.floating]
    mean: Floats
    var: Floats
    y: Floats


class Kind(NamedTuple):
    """What local noise is made of.

    trees: whether there is a mixture beside the ridge regression. by_mean, by_var: whether mean and
    logarithm of the variance are features.
    """

    trees: bool
    by_mean: bool
    by_var: bool


@dataclass(frozen=True, eq=False)
class LocalNoise:
    """A mixture that predicts the logarithm of squared standardised residuals.

    Attributes
    ----------
    ensemble : Ensemble or None
        The mixture, of what the ridge regression leaves; None if that is all.
    encoder : Quantiser
        Its encoder, without shift.
    by_var : bool
        Whether the predicted variance is one of the features.
    slope : float64 (p,)
        Of the ridge regression, by each of the features; rows outside the encoder's box are those
        of its border.
    level : float
        Its value where all features are 0.
    """

    ensemble: Ensemble | None
    encoder: Quantiser
    by_var: bool
    slope: Floats
    level: float

    def line_at(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The ridge regression at rows of features (m, p), at most 10 in size."""
        low, high = like(self.encoder.low_, table), like(self.encoder.high_, table)
        line = (np.clip(table, low, high) * like(self.slope, table)).sum(axis=1) + self.level
        limited: npt.NDArray[Any] = np.clip(line, -LARGEST_LINE, LARGEST_LINE)
        return limited


def cross_local(
    residuals: LearnedFrom,
    half: npt.NDArray[np.bool_],
    asked: npt.NDArray[np.bool_],
    run: Run,
    kind: Kind,
) -> Floats:
    """Predictions at the rows asked for by local noise that was trained on the other half, (n,).

    0 at other rows.

    Parameters
    ----------
    residuals : LearnedFrom
        Features of n rows, predictions of each without itself, and targets.
    half, asked : bool (n,)
        Half of the folds: all rows of a fold are in it, or none. Rows to predict.
    run : Run
        Random numbers, threads, and the engine, "cpu" or "cuda".
    kind : Kind
        What is trained.
    """
    logs, (X, mean, var, _) = np.zeros(half.size), residuals
    for side in (half, ~half):
        some = np.flatnonzero(asked & ~side)
        if some.size:
            crossed = train_local(residuals, np.flatnonzero(side)[:MOST_ROWS], run, kind)
            logs[some] = predict_local(crossed, X[like(some, X)], mean[some], var[some])
    return logs


def train_local(
    residuals: LearnedFrom, some: npt.NDArray[np.intp], run: Run, kind: Kind
) -> LocalNoise:
    """Train local noise on some of the rows; arguments as of `cross_local`."""
    X = residuals.X[like(some, residuals.X)]
    mean, var, y = (part[some] for part in residuals[1:])
    # A constant column says nothing, and new rows beyond its box are those of its border.
    table = _table(to_host(X), mean if kind.by_mean else 0.0 * mean, var, kind.by_var)
    target = np.log(np.maximum(np.square(y - mean) / var, SMALLEST_SQUARE))
    two_valued = find_two_valued(table, table.min(axis=0), table.max(axis=0))
    precision = np.where(two_valued, 1, SETTINGS.precision)
    encoder = Quantiser(scaling=SETTINGS.scaling)
    encoder.learn(table, precision)
    few = slice(LINE_ROWS)
    target = target - target.mean()
    slope, level = fit_line(table[few], target[few])
    if not kind.trees:
        return LocalNoise(None, encoder, kind.by_var, slope, level)
    rows = Rows((target - (table @ slope + level))[:, None], X=table)
    quiet = replace(run, progress=silent, left_out=[])
    trained = train_ensemble([encoder], rows, SETTINGS, quiet)
    assert isinstance(trained.fitted, Ensemble)
    # A row must not speak for its own place alone.
    return LocalNoise(trained.fitted.stand(apart=True), encoder, kind.by_var, slope, level)


def predict_local(
    local: LocalNoise, X: npt.NDArray[np.floating], mean: Floats, var: Floats
) -> Floats:
    """Logarithm of the squared standardised residual to expect at new rows, (m,), up to a constant.

    The result lies where `mean` does. A mixture predicts blocks of rows, where it lies.
    """
    ensemble = local.ensemble
    if ensemble is None:
        return local.line_at(_table(like(X, mean), mean, var, local.by_var))
    step = HOST_ROWS if ensemble.on_host else DEVICE_ROWS
    found = []
    for first in range(0, max(mean.size, 1), step):
        some = slice(first, first + step)
        held = [ensemble.engine.hold(part[some]) for part in (X, mean, var)]
        table = _table(held[0], held[1], held[2], local.by_var)
        points = ensemble.read(table, var=False)
        told = ensemble.predict(points, 0, var=False, latent=True).mean()
        found.append(like(told + local.line_at(table), mean))
    return found[0] if len(found) == 1 else np.concatenate(found)


def place_local(local: LocalNoise, engine: Engine) -> LocalNoise:
    """The same mixture in the memory of another engine."""
    if local.ensemble is None:
        return local
    return replace(local, ensemble=place_ensemble(local.ensemble, engine))


def _table(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, by_var: bool
) -> npt.NDArray[np.float64]:
    """The features: X, the predicted mean, and the logarithm of the predicted variance."""
    columns = [X, mean[:, None]]
    if by_var:
        columns.append(np.log(var)[:, None])
    return np.hstack(columns).astype(np.float64, copy=False)
