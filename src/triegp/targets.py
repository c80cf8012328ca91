"""Targets as users pass them: columns, weights, known noise; and their location and scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.validation import float_array, non_negative_vector

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows as they came, for `refresh`."""

    X: npt.NDArray[Any]
    targets: Floats
    weight: Floats | None
    known_noise: Floats | None

    @classmethod
    def copy(cls, X: Any, targets: Floats, weight: Any, known_noise: Any) -> TrainingRows:
        """Own copies; features keep float32 where they came in it."""
        rows = np.array(X)
        if rows.dtype != np.float32:
            rows = rows.astype(np.float64)
        parts = (None if part is None else np.array(part, float) for part in (weight, known_noise))
        return cls(rows, targets.copy(), *parts)

    def append(self, X: Any, targets: Floats, weight: Any, known_noise: Any) -> TrainingRows:
        """These rows and more."""
        new = TrainingRows.copy(X, targets, weight, known_noise)
        n_old, n_new = self.targets.shape[0], new.targets.shape[0]

        def join(a: Floats | None, b: Floats | None, fill: float) -> Floats | None:
            if a is None and b is None:
                return None
            first = np.full(n_old, fill) if a is None else a
            return np.concatenate([first, np.full(n_new, fill) if b is None else b])

        return TrainingRows(
            np.concatenate([self.X, new.X]),
            np.concatenate([self.targets, new.targets]),
            join(self.weight, new.weight, 1.0),
            join(self.known_noise, new.known_noise, 0.0),
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """For a model file."""
        parts = {"X": self.X, "targets": self.targets}
        if self.weight is not None:
            parts["weight"] = self.weight
        if self.known_noise is not None:
            parts["known_noise"] = self.known_noise
        return {f"rows.{name}": part for name, part in parts.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> TrainingRows:
        """From a model file."""
        return cls(
            arrays["rows.X"],
            arrays["rows.targets"],
            arrays.get("rows.weight"),
            arrays.get("rows.known_noise"),
        )


def count_rows(X: Any) -> int | None:
    """Number of rows of something like a table; None if it does not tell."""
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(X) if hasattr(X, "__len__") else None


def check_targets(y: Any) -> tuple[Floats, bool]:
    """Targets as columns (n, k), and whether they came as one vector."""
    if y is None:
        raise ValueError("y must be given: this estimator requires y to be passed, got None")
    array = np.asarray(y)
    if array.dtype.kind == "O":
        array = array.astype(np.float64)
    if array.ndim not in (1, 2) or array.shape[0] == 0 or (array.ndim == 2 and array.shape[1] < 1):
        raise ValueError(f"y must have shape (n_rows,) or (n_rows, k), got {array.shape}")
    targets = float_array("y", array)
    if not np.isfinite(targets).all():
        where = np.argwhere(~np.isfinite(targets))[0]
        value = "NaN" if np.isnan(targets[tuple(where)]) else str(targets[tuple(where)])
        raise ValueError(f"y must be finite, got {value} at row {where[0]}")
    return targets.reshape(targets.shape[0], -1), array.ndim == 1


def check_weight(sample_weight: Any, n_rows: int) -> Floats | None:
    """Sample weights as a vector (n,), or None; a single number counts for all rows."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    return non_negative_vector("sample_weight", weight, n_rows)


def standard_noise(known_noise: Any, n_rows: int, scale: Floats) -> Floats | None:
    """Known variances in standardised units, (n, k)."""
    if known_noise is None:
        return None
    known = non_negative_vector("known_noise", known_noise, n_rows)
    return known[:, None] / scale / scale


def location_and_scale(targets: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    """Mean and deviation of each target; repeating a row equals weighing it. 1 for constants."""
    count = np.ones(targets.shape[0]) if weight is None else weight
    total = count.sum()
    size = np.abs(targets[count > 0]).max(axis=0)
    size = np.where(size > 0, size, 1.0)  # squares of huge targets must not overflow
    scaled = targets / size
    mean = count @ scaled / total
    var = count @ (scaled - mean) ** 2 / max(total - 1.0, min(total, 1.0))
    sd = np.sqrt(var)
    constant = sd <= 1e-12
    return mean * size, np.where(constant, 1.0, sd) * np.where(constant, 1.0, size)
