"""Targets as users pass them: columns, weights, known noise; and their location and scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, non_negative_vector

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of rows beside their features, as the model sees it.

    Attributes
    ----------
    targets : float64 (n, k)
        Standardised.
    known_noise : float64 (n, k) or None
        In standardised units.
    weight : float64 (n,) or None
        Sample weights.
    """

    targets: Floats
    known_noise: Floats | None
    weight: Floats | None

    def columns(self) -> list[dict[str, Any]]:
        """What `measure`, `condition` and `insert` take, target by target."""
        return [
            {
                "y": self.targets[:, j],
                "known_noise": None if self.known_noise is None else self.known_noise[:, j],
                "sample_weight": self.weight,
            }
            for j in range(self.targets.shape[1])
        ]

    @property
    def n_effective(self) -> float:
        """Number of rows, weights counted."""
        return float(self.targets.shape[0] if self.weight is None else self.weight.sum())


def select_targets(rows: Rows, columns: Sequence[int]) -> Rows:
    """The same rows with some of their targets."""
    known = None if rows.known_noise is None else rows.known_noise[:, columns]
    return Rows(rows.targets[:, columns], known, rows.weight)


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


def join_rows(parts: Sequence[TrainingRows]) -> TrainingRows:
    """All rows, one part after the other; weights and noise that some lack are filled in."""

    def join(columns: list[Floats | None], fill: float) -> Floats | None:
        if all(column is None for column in columns):
            return None
        sizes = [part.targets.shape[0] for part in parts]
        pairs = zip(columns, sizes, strict=True)
        return np.concatenate([np.full(n, fill) if c is None else c for c, n in pairs])

    return TrainingRows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.targets for part in parts]),
        join([part.weight for part in parts], 1.0),
        join([part.known_noise for part in parts], 0.0),
    )


def standardise(batch: TrainingRows, mean: Floats, scale: Floats) -> Rows:
    """Targets and known noise in standardised units; mean, scale: float64 (n_targets,)."""
    known = None if batch.known_noise is None else batch.known_noise[:, None] / scale / scale
    return Rows((batch.targets - mean) / scale, known, batch.weight)


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


def check_known_noise(known_noise: Any, n_rows: int) -> Floats | None:
    """Known variances as a vector (n,), or None."""
    if known_noise is None:
        return None
    return non_negative_vector("known_noise", known_noise, n_rows)


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
