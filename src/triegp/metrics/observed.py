"""What is scored: targets and their weights, checked, and averages over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, non_negative_vector
from triegp.devices import to_host

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Observed:
    """Targets of m rows, and how often each counts.

    Attributes
    ----------
    y : float64 (m, t)
        One column per target.
    weight : float64 (m,) or None
        Sample weights; None if all rows count once.
    one_dimensional : bool
        Whether y was passed as a vector.
    """

    y: Floats
    weight: Floats | None
    one_dimensional: bool

    @property
    def n_rows(self) -> int:
        """Number of rows, m."""
        return int(self.y.shape[0])

    @property
    def counts(self) -> Mask:
        """Whether each row counts, (m,)."""
        return np.ones(self.n_rows, bool) if self.weight is None else self.weight > 0

    def known(self, name: str, missing: Mask) -> Mask:
        """Rows that are not missing, (m,); raises ValueError if a row that counts is missing.

        name: of the argument that is NaN at the missing rows.
        """
        wrong = missing & self.counts
        if wrong.any():
            raise ValueError(
                f"{name} must not be NaN, got NaN at row {int(np.argmax(wrong))}: only rows whose "
                "sample_weight is 0 are ignored, such as those that leave-one-out has no "
                "prediction for"
            )
        return ~missing

    def average(self, by_row: Floats) -> float:
        """Weighted mean over the rows that count, and the mean over targets; by_row: (m, t)."""
        if self.weight is None:
            return float(by_row.mean())
        used = self.counts
        return float(np.average(by_row[used], axis=0, weights=self.weight[used]).mean())

    def result(self, by_row: Floats, *, whole: bool) -> float | Floats:
        """The average, or the values of all rows in the shape of y if `whole`; by_row: (m, t)."""
        if not whole:
            return self.average(by_row)
        return by_row[:, 0] if self.one_dimensional else by_row


def read_observed(y: Any, sample_weight: Any) -> Observed:
    """Targets (m,) or (m, t) and weights; raises ValueError for those that cannot be scored."""
    values = float_array("y", to_host(y))
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(
            f"y must have shape (m,) or (m, n_targets), with at least one row, got {values.shape}"
        )
    weight = None
    if sample_weight is not None:
        weight = non_negative_vector("sample_weight", to_host(sample_weight), values.shape[0])
        if not weight.any():
            raise ValueError("sample_weight must not be 0 for all rows")
    found = Observed(values.reshape(values.shape[0], -1), weight, values.ndim == 1)
    missing = np.asarray(np.isnan(found.y).any(axis=1))
    if missing.any():
        found.known("y", missing)
    infinite = np.isinf(found.y).any(axis=1)
    if infinite.any():
        raise ValueError(f"y must be finite, got infinity at row {int(np.argmax(infinite))}")
    return found
