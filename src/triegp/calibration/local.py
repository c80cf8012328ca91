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
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import PRESETS
from triegp.mixture.train import train_ensemble
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

FEWEST_ROWS = 400  # with fewer rows there is no local noise
MOST_ROWS = 20_000  # rows that the mixture is trained on
SMALLEST_SQUARE = 1e-2  # of a standardised residual: the logarithm of smaller ones says little
SETTINGS = replace(
    PRESETS["default"],
    n_members=8,
    n_candidates=1,
    scaling="ecdf",
    precision=6,
    max_iter=30,
    tol=1e-2,
    mixture="stacking",
)


@dataclass(frozen=True, eq=False)
class LocalNoise:
    """A mixture that predicts the logarithm of squared standardised residuals.

    Attributes
    ----------
    ensemble : Ensemble
        The mixture, for targets that are centred.
    encoder : BitEncoder
        Its encoder, without shift.
    centre : float
        Mean of the logarithms.
    by_var : bool
        Whether the predicted variance is one of the features.
    """

    ensemble: Ensemble
    encoder: BitEncoder
    centre: float
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
        Its prediction at each row, without the row itself.
    """
    table = _table(X, mean, var, by_var)
    square = np.maximum(np.square(y - mean) / var, SMALLEST_SQUARE)
    target = np.log(square)
    centre = float(target.mean())
    some = np.arange(y.size)
    if y.size > MOST_ROWS:
        some = np.sort(run.rng.choice(y.size, MOST_ROWS, replace=False))
    encoder = BitEncoder(scaling=SETTINGS.scaling, precision=SETTINGS.precision).fit(table[some])
    rows = Rows((target[some] - centre)[:, None], X=table[some])
    quiet = replace(run, progress=silent, engine="cpu", left_out=[])
    trained = train_ensemble([encoder], rows, SETTINGS, quiet)
    assert isinstance(trained.fitted, Ensemble)
    ensemble = trained.fitted.stand(apart=True)  # a row must not speak for its own place alone
    local = LocalNoise(ensemble, encoder, centre, by_var)
    logs = np.empty(y.size)
    logs[some] = ensemble.leave_one_out(0).mean()
    rest = np.ones(y.size, bool)
    rest[some] = False
    if rest.any():
        points = ensemble.read(table[rest], var=False)
        logs[rest] = ensemble.predict(points, 0, var=False, latent=True).mean()
    return local, logs


def predict_local(
    local: LocalNoise, X: npt.NDArray[np.floating], mean: Floats, var: Floats
) -> Floats:
    """Logarithm of the squared standardised residual to expect at new rows, centred, (m,)."""
    points = local.ensemble.read(_table(X, mean, var, local.by_var), var=False)
    return local.ensemble.predict(points, 0, var=False, latent=True).mean()


def _table(
    X: npt.NDArray[np.floating], mean: Floats, var: Floats, by_var: bool
) -> npt.NDArray[np.float64]:
    """The features: X, the predicted mean, and the logarithm of the predicted variance."""
    columns = [X, mean[:, None]]
    if by_var:
        columns.append(np.log(var)[:, None])
    return np.hstack(columns).astype(np.float64)
