"""Local noise: how the variance of new observations differs from place to place.

A small mixture of trees is trained on log(r^2 / v), with r the residual and v the predicted
variance of each training row when it is left out. Its features are those of the row, the predicted
mean and, if it is cheap, the logarithm of the predicted variance. So it finds noise that depends on
place, on level, or on how far the model trusts itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

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

FEWEST_ROWS = 400  # with fewer rows there is no local noise
MOST_ROWS = 100_000  # rows that the mixture is trained on
DEVICE_ROWS = 1 << 22  # rows that a mixture on a device predicts at a time
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


@dataclass(frozen=True, eq=False)
class LocalNoise:
    """A mixture that predicts the logarithm of squared standardised residuals.

    Attributes
    ----------
    ensemble : Ensemble
        The mixture. Its targets are centred: the scale of a stage includes their mean.
    encoder : Quantiser
        Its encoder, without shift.
    by_var : bool
        Whether the predicted variance is one of the features.
    """

    ensemble: Ensemble
    encoder: Quantiser
    by_var: bool


def learn_local(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, y: Floats, run: Run, *, by_var: bool
) -> tuple[LocalNoise, Floats]:
    """Train the mixture on the residuals of n rows.

    Parameters
    ----------
    X : float (n, d)
        Features, on the host or on a device.
    mean, var, y : float64 (n,)
        Prediction of each row without itself, and its target.
    run : Run
        Random numbers, threads, and the engine, "cpu" or "cuda".
    by_var : bool
        Whether the predicted variance becomes a feature.

    Returns
    -------
    local : LocalNoise
        The mixture.
    logs : float64 (n,)
        Prediction at each row by a mixture that was trained on other rows.
    """
    mixed = run.rng.permutation(y.size)
    logs = np.empty(y.size)

    given = (X, mean, var, y)

    def train(some: npt.NDArray[np.intp]) -> LocalNoise:
        return _train(given, some, run, by_var)

    def ask(local: LocalNoise, some: npt.NDArray[np.intp]) -> Floats:
        return predict_local(local, X[like(some, X)], mean[some], var[some])

    if y.size >= 2 * MOST_ROWS:  # most rows are not in the mixture that is kept
        used, spare = np.sort(mixed[:MOST_ROWS]), np.sort(mixed[MOST_ROWS : 2 * MOST_ROWS])
        kept = train(used)
        logs[:] = predict_local(kept, X, mean, var)
        logs[used] = ask(train(spare), used)
        return kept, logs
    for half, other in ((mixed[::2], mixed[1::2]), (mixed[1::2], mixed[::2])):
        logs[other] = ask(train(np.sort(half[:MOST_ROWS])), other)
    return train(np.sort(mixed[:MOST_ROWS])), logs


def _train(
    given: tuple[Any, Floats, Floats, Floats], some: npt.NDArray[np.intp], run: Run, by_var: bool
) -> LocalNoise:
    """Train the mixture on some of the rows; given: X, mean, var, y as for `learn_local`."""
    X, mean, var, y = given[0][like(some, given[0])], *(part[some] for part in given[1:])
    table = _table(to_host(X), mean, var, by_var)
    target = np.log(np.maximum(np.square(y - mean) / var, SMALLEST_SQUARE))
    two_valued = find_two_valued(table, table.min(axis=0), table.max(axis=0))
    precision = np.where(two_valued, 1, SETTINGS.precision)
    encoder = Quantiser(scaling=SETTINGS.scaling)
    encoder.learn(table, precision)
    rows = Rows((target - target.mean())[:, None], X=table)
    quiet = replace(run, progress=silent, left_out=[])
    trained = train_ensemble([encoder], rows, SETTINGS, quiet)
    assert isinstance(trained.fitted, Ensemble)
    # A row must not speak for its own place alone.
    return LocalNoise(trained.fitted.stand(apart=True), encoder, by_var)


def predict_local(
    local: LocalNoise, X: npt.NDArray[np.floating], mean: Floats, var: Floats
) -> Floats:
    """Logarithm of the squared standardised residual to expect at new rows, centred, (m,).

    The result lies where `mean` does. A mixture on a device predicts blocks of rows there.
    """
    ensemble = local.ensemble
    step = mean.size if ensemble.on_host else DEVICE_ROWS
    found = []
    for first in range(0, max(mean.size, 1), max(step, 1)):
        some = slice(first, first + step)
        held = [ensemble.engine.hold(part[some]) for part in (X, mean, var)]
        table = _table(held[0], held[1], held[2], local.by_var)
        points = ensemble.read(table, var=False)
        told = ensemble.predict(points, 0, var=False, latent=True).mean()
        found.append(like(told, mean))
    return found[0] if len(found) == 1 else np.concatenate(found)


def place_local(local: LocalNoise, engine: Engine) -> LocalNoise:
    """The same mixture in the memory of another engine."""
    return replace(local, ensemble=place_ensemble(local.ensemble, engine))


def _table(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, by_var: bool
) -> npt.NDArray[np.float64]:
    """The features: X, the predicted mean, and the logarithm of the predicted variance."""
    columns = [X, mean[:, None]]
    if by_var:
        columns.append(np.log(var)[:, None])
    return np.hstack(columns).astype(np.float64, copy=False)
