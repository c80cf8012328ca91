"""What methods predict, mixtures of Gaussians or quantiles, and its scores by `triegp.metrics`.

Scores are on the standardised target: divided by the training deviation where they have units.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import root_mean_squared_error

from triegp import PredictiveDistribution
from triegp.metrics import coverage, crps, nll, pinball

COVERAGES = (50, 90, 99)  # per cent
TAILS = tuple(sorted({t for c in COVERAGES for t in ((100 - c) / 200, (100 + c) / 200)}))
LEVELS = tuple(sorted({*TAILS, *np.round(np.arange(0.05, 1.0, 0.05), 3).tolist()}))
BLOCK_ROWS = 20_000
FIFTHS = 5
FIFTHS_COVERAGE = 90  # per cent


@dataclass(frozen=True)
class Quantiles:
    """Quantiles at each of m rows: levels (L,) rising, values (m, L), and a mean (m,)."""

    levels: np.ndarray
    values: np.ndarray
    mean: np.ndarray


def gaussian(mean, sd):
    """One Gaussian per row; sd may be one number."""
    mean = np.asarray(mean, np.float64)
    var = np.broadcast_to(np.square(np.asarray(sd, np.float64)), mean.shape)
    return PredictiveDistribution(np.ones(1), mean[None], var[None])


def score(predicted, y, unit):
    """Scores of a prediction of y (m,), in units of `unit` (the training deviation)."""
    whole = isinstance(predicted, PredictiveDistribution)
    work = _score_distribution if whole else _score_quantiles
    return {
        "rmse": float(root_mean_squared_error(y, central(predicted)) / unit),
        **work(predicted, y, unit),
    }


def central(predicted):
    """Means, (m,)."""
    return predicted.mean() if isinstance(predicted, PredictiveDistribution) else predicted.mean


def _score_distribution(predicted, y, unit):
    ends = _tails(predicted)
    inside = coverage(y, _interval(ends, FIFTHS_COVERAGE), by_row=True)
    return {
        "nll": nll(y, predicted) - float(np.log(unit)),
        "crps": crps(y, predicted) / float(unit),
        **_intervals(ends, y, unit),
        "fifths": _fifths(inside, predicted.std()),
    }


def _tails(predicted):
    """Quantiles at TAILS, (m, len(TAILS)), some rows at a time."""
    blocks = [slice(k, k + BLOCK_ROWS) for k in range(0, predicted.n_rows, BLOCK_ROWS)]
    weights, parts = predicted.weights, (predicted.means, predicted.variances)
    return np.concatenate(
        [
            PredictiveDistribution(
                weights if weights.ndim == 1 else weights[:, some],
                *(part[:, some] for part in parts),
            ).quantile(TAILS)
            for some in blocks
        ]
    )


def _score_quantiles(predicted, y, unit):
    """No density, so no nll; the CRPS is twice the mean pinball loss, over the levels there are."""
    values, levels = np.sort(predicted.values, axis=1), predicted.levels
    # The integral over levels by the trapezoid rule; beyond the outermost levels by their values.
    edges = np.concatenate([[0.0], 0.5 * (levels[1:] + levels[:-1]), [1.0]])
    losses = [pinball(y, values[:, k], level) for k, level in enumerate(levels.tolist())]
    where = np.searchsorted(levels, np.array(TAILS) - 1e-9)
    return {
        "nll": None,
        "crps": float(2 * np.diff(edges) @ losses / unit),
        **_intervals(values[:, where], y, unit),
    }


def _intervals(ends, y, unit):
    """Coverage and mean width of the central intervals."""
    share, width = {}, {}
    for c in COVERAGES:
        interval = _interval(ends, c)
        share[str(c)] = coverage(y, interval)
        width[str(c)] = float(np.diff(interval).mean() / unit)
    return {"coverage": share, "width": width}


def _interval(ends, c):
    """Lower and upper ends of the c % intervals, (m, 2)."""
    return ends[:, [TAILS.index((100 - c) / 200), TAILS.index((100 + c) / 200)]]


def _fifths(inside, sd):
    """Share inside by fifth of the predicted deviation, from the smallest; None if too few rows."""
    if sd.size < FIFTHS:
        return None
    groups = np.array_split(np.argsort(sd, kind="stable"), FIFTHS)
    return [float(inside[rows].mean()) for rows in groups]
