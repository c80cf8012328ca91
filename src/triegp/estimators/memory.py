"""How long an estimator remembers rows: a window, and weights that fade. By counting rows alone.

Forgetting costs O(n) per tree, so it is done in steps. What is forgotten after N rows depends on N
only: neither on the batches in which rows came, nor on when predictions were asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.checks import real_number, whole_number
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

STEPS = 16  # of a window: rows are dropped a sixteenth of it at a time
FADES = 8  # of a half life: weights fade an eighth of it at a time
HALF_LIVES = 10  # after which rows are dropped: their weight has fallen below 0.001
MOST_ROWS = 2**62


class Fade(NamedTuple):
    """What a batch does to weights.

    before: factor of the weights of all rows before it. own: float64 (k,), factors of its own rows,
    or None if all are 1. n_newest: rows that have not faded yet.
    """

    before: float
    own: Floats | None
    n_newest: int


@dataclass(frozen=True)
class Memory:
    """How many rows are remembered, and how fast their weights fade.

    Attributes
    ----------
    window : int
        Rows that are remembered, at least; up to a sixteenth more until the next step.
    half_life : float or None
        Rows after which the weight of a row is halved; None if weights do not fade.
    """

    window: int
    half_life: float | None = None

    @property
    def step(self) -> int:
        """Rows that are dropped at a time."""
        return max(1, self.window // STEPS)

    @property
    def fade_step(self) -> int:
        """Rows that have the same weight, and fade together; there must be a half life."""
        assert self.half_life is not None
        return max(1, int(min(self.half_life, MOST_ROWS)) // FADES)

    def count_dropped(self, n_rows: int) -> int:
        """How many of n rows are forgotten, the first ones; a multiple of `step`."""
        return max(0, n_rows - self.window) // self.step * self.step

    def fade(self, n_newest: int, n_added: int) -> Fade:
        """Factors of the weights when rows are added to a stream with n_newest that never faded.

        Row i of a stream, counted from 0, has faded (N - 1) // s - i // s times after N rows, for
        s = `fade_step`. The last row has its full weight.
        """
        if self.half_life is None:
            return Fade(1.0, None, 0)
        size = self.fade_step
        n_newest = min(n_newest, size)
        block = (n_newest + np.arange(n_added)) // size
        n_fades = int(block[-1])
        factor = 2.0 ** (-size / self.half_life)
        left = n_newest + n_added - n_fades * size
        own = None if n_fades == 0 else factor ** (n_fades - block).astype(np.float64)
        return Fade(factor**n_fades, own, left)

    def is_due(self, n_rows: int, n_newest: int, n_added: int) -> bool:
        """Whether something is forgotten when rows are added to n rows."""
        if self.count_dropped(n_rows + n_added):
            return True
        return self.fade(n_newest, n_added).before < 1.0


def memory_of(
    window: Any, half_life: Any, *, keep_rows: bool, weights: str = "frequency"
) -> Memory | None:
    """The memory that the parameters of an estimator say, None if nothing is forgotten.

    Raises ValueError if they are invalid, if rows are not kept, or if precisions would fade.
    """
    if window is None and half_life is None:
        return None
    most = math.inf
    if window is not None:
        most = whole_number("window", window)
    if half_life is not None:
        half_life = _number_of_rows("half_life", half_life)
        if weights == "precision":
            raise ValueError(
                'half_life needs weights="frequency", got weights="precision": precisions say how '
                "noisy a row is, not how much it counts. Use window instead"
            )
        most = min(most, math.ceil(min(HALF_LIVES * half_life, MOST_ROWS)))
    if not keep_rows:
        raise ValueError(
            f"window and half_life need keep_rows=True, got keep_rows=False with window={window} "
            f"and half_life={half_life}: rows that are not kept cannot be forgotten"
        )
    return Memory(int(most), half_life)


def remember(rows: Rows, memory: Memory) -> tuple[Rows, int]:
    """The rows that are remembered of the first rows of a stream, with the weights that they have.

    Also returns how many have not faded yet.
    """
    fade = memory.fade(0, rows.n_rows)
    first = memory.count_dropped(rows.n_rows)
    return fade_rows(rows, fade.own).select(np.arange(first, rows.n_rows)), fade.n_newest


def fade_rows(rows: Rows, factor: Floats | float | None) -> Rows:
    """Rows with their weights times a factor, or times one per row; None: as they are."""
    if factor is None or (isinstance(factor, float) and factor == 1.0):
        return rows
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    return replace(rows, weight=factor * weight)


def _number_of_rows(name: str, value: Any) -> float:
    try:
        number = real_number(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not (math.isfinite(number) and number >= 1.0):
        raise ValueError(f"{name} must be a finite number of rows, 1 or more, got {value!r:.80}")
    return number
