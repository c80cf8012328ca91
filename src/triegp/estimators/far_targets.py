"""Targets that are absurdly far from all others, such as typos: the user is warned of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
