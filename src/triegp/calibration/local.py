"""Local noise: how the variance of new observations differs from place to place.

A small mixture of trees is trained on log(r^2 / v), with r the residual and v the predicted
variance of each training row when it is left out. Its features are those of the row, the predicted
mean and, if it is cheap, the logarithm of the predicted variance. So it finds noise that depends on
place, on level, or on how far the model trusts itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding.encoder import BitEncoder
from triegp.encoding.precision import find_two_valued
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import PRESETS
from triegp.mixture.train import train_ensemble
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

FEWEST_ROWS = 400  # with fewer rows there is no local noise
MOST_ROWS = 100_000  # rows that the mixture is trained on
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
    encoder : BitEncoder
        Its encoder, without shift.
    by_var : bool
        Whether the predicted variance is one of the features.
    """

    ensemble: Ensemble
    encoder: BitEncoder
    by_var: bool


def learn_local(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, y: Floats, run: Run, *, by_var: bool
) -> tuple[LocalNoise, Floats]:
    """Train the mixture on the residuals of n rows.

    Parameters
    ----------
    X : float (n, d)
        Features.
    mean, var, y : float64 (n,)
        Prediction of each row without itself, and its target.
    run : Run
        Random numbers and threads.
    by_var : bool
        Whether the predicted variance becomes a feature.

    Returns
    -------
    local : LocalNoise
        The mixture.
    logs : float64 (n,)
        Prediction at each row by a mixture that was trained on other rows.
    """
    table = _table(X, mean, var, by_var)
    target = np.log(np.maximum(np.square(y - mean) / var, SMALLEST_SQUARE))
    mixed = run.rng.permutation(y.size)
    logs = np.empty(y.size)
    if y.size >= 2 * MOST_ROWS:  # most rows are not in the mixture that is kept
        used, spare = np.sort(mixed[:MOST_ROWS]), np.sort(mixed[MOST_ROWS : 2 * MOST_ROWS])
        kept = _train(table, target, used, run, by_var)
        logs[:] = _ask(kept, table)
        logs[used] = _ask(_train(table, target, spare, run, by_var), table[used])
        return kept, logs
    for half, other in ((mixed[::2], mixed[1::2]), (mixed[1::2], mixed[::2])):
        local = _train(table, target, np.sort(half[:MOST_ROWS]), run, by_var)
        logs[other] = _ask(local, table[other])
    return _train(table, target, np.sort(mixed[:MOST_ROWS]), run, by_var), logs


def _train(
    table: Floats, target: Floats, some: npt.NDArray[np.intp], run: Run, by_var: bool
) -> LocalNoise:
    """Train the mixture on some of the rows."""
    own = table[some]
    two_valued = find_two_valued(own, own.min(axis=0), own.max(axis=0))
    precision = np.where(two_valued, 1, SETTINGS.precision)
    encoder = BitEncoder(scaling=SETTINGS.scaling, precision=precision).fit(own)
    rows = Rows((target[some] - target[some].mean())[:, None], X=own)
    quiet = replace(run, progress=silent, engine="cpu", left_out=[])
    trained = train_ensemble([encoder], rows, SETTINGS, quiet)
    assert isinstance(trained.fitted, Ensemble)
    # A row must not speak for its own place alone.
    return LocalNoise(trained.fitted.stand(apart=True), encoder, by_var)


def _ask(local: LocalNoise, table: Floats) -> Floats:
    points = local.ensemble.read(table, var=False)
    return local.ensemble.predict(points, 0, var=False, latent=True).mean()


def predict_local(
    local: LocalNoise, X: npt.NDArray[np.floating], mean: Floats, var: Floats
) -> Floats:
    """Logarithm of the squared standardised residual to expect at new rows, centred, (m,)."""
    return _ask(local, _table(X, mean, var, local.by_var))


def _table(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, by_var: bool
) -> npt.NDArray[np.float64]:
    """The features: X, the predicted mean, and the logarithm of the predicted variance."""
    columns = [X, mean[:, None]]
    if by_var:
        columns.append(np.log(var)[:, None])
    return np.hstack(columns).astype(np.float64)
