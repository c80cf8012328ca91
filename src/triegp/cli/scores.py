"""Scores of predictions as commands show them, to people and to machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.metrics.forecasts import make_forecast
from triegp.metrics.summary import Scores, Tally

COVERAGES = (0.5, 0.9)
LOO_ROWS = 50_000  # rows whose leave-one-out distributions are scored; evenly spaced
NAMES = {
    "r2": "R2",
    "rmse": "RMSE",
    "mae": "MAE",
    "nll": "NLL",
    "crps": "CRPS",
    "calibration_error": "calibration error",
}


def loo_scores(model: Any, weight: npt.NDArray[np.float64] | None = None) -> dict[str, Any]:
    """Leave-one-out scores of the training rows, of at most LOO_ROWS of them.

    weight: sample weights of the training rows, (n,), which means over rows are weighted by. A
    model of cells does not hold its rows; it has only the mean log density of a sample.
    """
    if not model.holds_rows_:
        return {"rows": None, "nll": -float(model.loo_score_)}
    distribution, y = first_target(model.loo_distribution()), model.loo_targets().reshape(-1)
    rows = np.flatnonzero(~np.isnan(y))
    rows = rows[:: -(-rows.size // LOO_ROWS)]
    weight = None if weight is None else weight[rows]
    forecast = make_forecast(y[rows], distribution.select(rows), weight=weight, coverages=COVERAGES)
    scores = score_facts(Tally().add(forecast).scores())
    return scores | {"nll": scores["nll"] + float(np.sum(model.loo_optimism_))}


def first_target(distribution: Any) -> Any:
    """The distribution of the only target."""
    return distribution[0] if isinstance(distribution, list) else distribution


def score_facts(scores: Scores) -> dict[str, Any]:
    """Scores by name, for JSON."""
    facts = {"rows": scores.n_rows} | {name: getattr(scores, name) for name in NAMES}
    for part in scores.coverages:
        facts[f"coverage_{part.nominal:g}"] = part.observed
        facts[f"width_{part.nominal:g}"] = part.width
    return facts


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
