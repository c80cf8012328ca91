"""Scores of predictions, summed up batch by batch, and how they are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp import metrics
from triegp.metrics.distributions import LEVELS

Floats = npt.NDArray[np.float64]

COVERAGES = (0.5, 0.9)
LOO_ROWS = 50_000  # rows whose leave-one-out distributions are scored; evenly spaced


class Tally:
    """Scores of many rows, of which a few are in memory at a time.

    Means over rows are weighted by sample weights, if there are any. The calibration error is the
    mean distance of coverage and nominal coverage of central intervals, over all rows.
    """

    def __init__(self) -> None:
        self._n, self._weight = 0, 0.0
        self._sums: dict[str, float] = {}
        self._inside = np.zeros(len(LEVELS))
        self._mean, self._square = 0.0, 0.0  # of y, and squared differences from it

    def add(self, y: Floats, distribution: Any, weight: Floats | None = None) -> None:
        """Add rows: targets (m,), what was predicted for them, and sample weights (m,)."""
        weight = np.ones(y.size) if weight is None else weight
        error = y - distribution.mean()
        rows: dict[str, Any] = {
            "square": np.square(error),
            "absolute": np.abs(error),
            "nll": metrics.nll(y, distribution, by_row=True),
            "crps": metrics.crps(y, distribution, by_row=True),
        }
        for coverage in COVERAGES:
            interval = distribution.interval(coverage)
            rows[f"coverage_{coverage:g}"] = metrics.coverage(y, interval, by_row=True)
            rows[f"width_{coverage:g}"] = interval[:, 1] - interval[:, 0]
        for name, values in rows.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(weight @ values)
        centred = np.abs(2.0 * metrics.pit(y, distribution) - 1.0)
        self._inside += weight @ (centred[:, None] <= np.array(LEVELS))
        self._add_targets(y, weight)

    def scores(self) -> dict[str, Any]:
        """Scores of all rows added so far."""
        mean = {name: total / self._weight for name, total in self._sums.items()}
        explained = 1.0 - self._sums["square"] / self._square if self._square > 0 else np.nan
        return {
            "rows": self._n,
            "r2": float(explained),
            "rmse": float(np.sqrt(mean.pop("square"))),
            "mae": mean.pop("absolute"),
            **mean,
            "calibration_error": float(np.mean(np.abs(self._inside / self._weight - LEVELS))),
        }

    def _add_targets(self, y: Floats, weight: Floats) -> None:
        """Mean and squared differences of all targets (Chan, Golub and LeVeque 1979)."""
        before, new, mean = self._weight, float(weight.sum()), float(np.average(y, weights=weight))
        self._square += float(weight @ np.square(y - mean))
        self._square += (mean - self._mean) ** 2 * before * new / (before + new)
        self._mean += (mean - self._mean) * new / (before + new)
        self._n, self._weight = self._n + y.size, before + new


def loo_scores(model: Any, weight: Floats | None = None) -> dict[str, Any]:
    """Leave-one-out scores of the training rows, of at most LOO_ROWS of them.

    weight: sample weights of the training rows, (n,), which means over rows are weighted by. A
    model of cells does not hold its rows; it has only the mean log density of a sample.
    """
    if any(part.n_summed for part in getattr(model, "ensembles_", ())):
        return {"rows": None, "nll": -float(model.loo_score_)}
    found = model.loo_distribution()
    y = np.asarray(model.loo_targets())
    found = found[0] if isinstance(found, list) else found
    rows = np.flatnonzero(~np.isnan(y.reshape(-1)))
    rows = rows[:: -(-rows.size // LOO_ROWS)]
    tally = Tally()
    tally.add(y.reshape(-1)[rows], found.select(rows), None if weight is None else weight[rows])
    scores = tally.scores()
    return scores | {"nll": scores["nll"] + float(np.sum(model.loo_optimism_))}


NAMES = {
    "r2": "R2",
    "rmse": "RMSE",
    "mae": "MAE",
    "nll": "NLL",
    "crps": "CRPS",
    "calibration_error": "calibration error",
}


def show_scores(scores: dict[str, Any]) -> list[str]:
    """Lines for people."""
    lines = [f"{NAMES[name]:<18} {scores[name]:.4g}" for name in NAMES if name in scores]
    for coverage in COVERAGES:
        inside = scores.get(f"coverage_{coverage:g}")
        if inside is not None:
            width = scores[f"width_{coverage:g}"]
            head = f"{coverage:.0%} intervals".replace("%", " %")
            lines.append(f"{head:<18} cover {100 * inside:.1f} %, mean width {width:.4g}")
    return lines
