"""Rows outside the training box: found, told to the user, and set aside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.calibration.border import distances
from triegp.devices import like, on_device, to_host
from triegp.encoding.quantiser import OUTSIDE, Quantiser
from triegp.encoding.reading import check_finite, row_blocks

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

CHOICES = ("widen", *OUTSIDE)
FAR = 0.5  # box widths; a row this far outside is worth a warning on its own
MOST_NAMES = 5  # columns named in a warning


class Outside(NamedTuple):
    """What of some rows lies outside the box.

    rows: bool (m,). columns: int64 (c,), features in which rows are outside. furthest: the largest
    distance from the box in box widths.
    """

    rows: Bools
    columns: npt.NDArray[np.int64]
    furthest: float


def encoder_choice(outside: str) -> str:
    """How the encoder treats rows outside: it moves those that are to be widened to the border."""
    return "clip" if outside == "widen" else outside


def mark_outside(encoder: Quantiser, X: Array) -> Bools:
    """Whether each row lies outside the training box, (m,). O(m d)."""
    return find_outside(encoder, X).rows


def find_outside(encoder: Quantiser, X: Array) -> Outside:
    """Rows and columns outside the training box, on the host. O(m d).

    Raises ValueError for values that are not finite.
    """
    if on_device(X):
        return _find_there(encoder, X)
    low, high = encoder.low_, encoder.high_
    names = getattr(encoder, "feature_names_in_", None)
    rows = np.zeros(X.shape[0], np.bool_)
    columns = np.zeros(low.size, np.bool_)
    furthest = 0.0
    for block in row_blocks(*X.shape):
        check_finite(X[block], names, block.start)
        beyond = (low > X[block]) | (high < X[block])
        rows[block] = beyond.any(axis=1)
        columns |= beyond.any(axis=0)
        if rows[block].any():
            far = distances(low, high, X[block][rows[block]])
            furthest = max(furthest, float(far.max()))
    return Outside(rows, np.flatnonzero(columns), furthest)


def _find_there(encoder: Quantiser, X: Array) -> Outside:
    """`find_outside` for rows on a device, which are finite; only those outside leave it."""
    low, high = like(encoder.low_, X), like(encoder.high_, X)
    some = np.flatnonzero(((low > X) | (high < X)).any(axis=1))
    found = find_outside(encoder, to_host(X[some]))
    rows = np.zeros(X.shape[0], np.bool_)
    rows[to_host(some)] = True
    return found._replace(rows=rows)


def is_unusual(found: Outside, n_train: int, n_features: int) -> bool:
    """Whether rows lie outside that chance does not put there.

    A new row from the distribution of the training rows is the smallest or the largest in one of
    the features with probability at most 2 d / (n + 1). Unusual are more rows than three standard
    deviations above that number, or a row that is half a box width outside.
    """
    count = int(found.rows.sum())
    if not count:
        return False
    chance = min(2.0 * n_features / (n_train + 1.0), 1.0) * found.rows.size
    return bool(found.furthest >= FAR or count > chance + 3.0 * np.sqrt(chance))


def describe(found: Outside, names: Any) -> str:
    """Share of the rows and their columns, for a warning."""
    some = found.columns[:MOST_NAMES].tolist()
    more = ", ..." if found.columns.size > MOST_NAMES else ""
    numbers = ", ".join(map(str, some)) + more
    percent = 100 * float(found.rows.mean())
    shown = f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"
    share = f"{shown} % of the rows lie outside the training box"
    if names is None:
        return f"{share}, in columns {numbers}"
    quoted = ", ".join(repr(str(names[j])) for j in some) + more
    return f"{share}, in columns {quoted} ({numbers})"
