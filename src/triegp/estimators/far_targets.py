"""Targets that are absurdly far from all others, such as typos: the user is warned of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.models.state import Stream
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

FACTOR = 1e3  # least ratio of the distances from the median, of far targets to all others
LARGEST_SHARE = 0.01  # of the rows that may be far
FEWEST_ROWS = 20  # whose targets differ from the median


def far_targets_warning(rows: Rows) -> list[Warning]:
    """A warning for each target of the rows that has values far from all others.

    rows: with targets (n, k) in their own units.
    """
    used = np.arange(rows.n_rows) if rows.weight is None else np.flatnonzero(rows.weight > 0)
    told: list[Warning] = []
    for t in range(rows.n_targets):
        far = used[find_far(rows.y[used, t])]
        if far.size:
            column = f" in column {t}" if rows.n_targets > 1 else ""
            others = f", and {far.size - 1} more like it" if far.size > 1 else ""
            told.append(
                UserWarning(
                    f"y is {rows.y[far[0], t]:.6g} at row {far[0]}{column}{others}: over 1,000 "
                    "times as far from the median as all other targets. If it is a typo, correct "
                    "it or leave the row out"
                )
            )
    return told


def far_additions(rows: Rows, stream: Stream) -> str:
    """What to say of added rows with targets far from all of the last fit; "" if none is. O(k).

    A training target is at most sqrt(n) deviations from their mean.
    """
    plan = stream.plan
    if plan.n_fit < FEWEST_ROWS:
        return ""
    with np.errstate(over="ignore"):
        least = FACTOR * np.sqrt(plan.n_fit) * stream.scale
        is_far = np.abs(rows.y - stream.mean) > np.where(plan.varied_at_fit, least, np.inf)
    for t, transform in enumerate(stream.transforms):
        if transform is not None:
            span = FACTOR * (0.5 * transform.high - 0.5 * transform.low)
            middle = 0.5 * transform.high + 0.5 * transform.low
            is_far[:, t] = np.abs(0.5 * rows.y[:, t] - 0.5 * middle) > span
    if rows.weight is not None:
        is_far[rows.weight == 0] = False
    if not is_far.any():
        return ""
    i, t = np.argwhere(is_far)[0].tolist()
    column = f" in column {t}" if rows.n_targets > 1 else ""
    return (
        f"y is {rows.y[i, t]:.6g} at row {i}{column} of the added rows: over 1,000 times as far "
        "away as all targets of the last fit. If it is a typo, fit again without it: rows that "
        "were added stay in the model"
    )


def find_far(y: Floats) -> npt.NDArray[np.intp]:
    """Numbers of the values far from all others, the furthest first; often none. O(n log n).

    The distances from the median, sorted, have a gap before the far ones: on a logarithmic scale at
    least that of a factor of 1,000, and wider than from the median distance to the gap. The first
    leaves alone what tails like those of a t distribution bear, the second wide log-normal ones.
    """
    half = 0.5 * y  # differences do not overflow
    distance = np.abs(half - np.median(half))
    n_apart = int(np.count_nonzero(distance))
    if n_apart < FEWEST_ROWS:
        return np.empty(0, np.intp)
    most = max(int(LARGEST_SHARE * y.size), 1)
    order = np.argsort(-distance, kind="stable")[: min(most + 1, n_apart)]
    size = np.log(distance[order])
    gaps = size[:-1] - size[1:]
    k = int(np.argmax(gaps))
    core = float(np.log(np.median(distance[distance > 0])))
    is_far = gaps[k] > max(np.log(FACTOR), size[k + 1] - core)
    return order[: k + 1] if is_far else order[:0]
