"""Search spaces of Optuna as columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

Floats = npt.NDArray[np.float64]
Space = Mapping[str, BaseDistribution]


def is_categorical(space: Space) -> list[bool]:
    """Whether each parameter is one of several choices."""
    return [isinstance(one, CategoricalDistribution) for one in space.values()]


def encode(space: Space, params: Sequence[Mapping[str, Any]]) -> Floats:
    """Rows of numbers, (len(params), n_parameters): choices by their index, logs of log scales."""
    out = np.empty((len(params), len(space)))
    for k, (name, one) in enumerate(space.items()):
        values = np.array([one.to_internal_repr(own[name]) for own in params], np.float64)
        out[:, k] = np.log(values) if _is_log(one) else values
    return out


def decode(space: Space, row: Floats) -> dict[str, Any]:
    """Parameters of one row of numbers."""
    return {
        name: one.to_external_repr(_value(one, float(number)))
        for (name, one), number in zip(space.items(), row, strict=True)
    }


def draw(space: Space, n_rows: int, rng: np.random.Generator) -> Floats:
    """Random rows, (n_rows, n_parameters): uniform, on log scales in the logarithm."""
    return np.column_stack([_draw(one, n_rows, rng) for one in space.values()])


def mutate(space: Space, row: Floats, n_rows: int, rng: np.random.Generator) -> Floats:
    """Rows near one, (n_rows, n_parameters).

    At least one parameter of each moves, others with probability 1/2: numbers by a Gaussian step
    of a tenth to a thousandth of the range, choices to any other draw.
    """
    moves = rng.random((n_rows, len(space))) < 0.5
    moves[np.arange(n_rows), rng.integers(len(space), size=n_rows)] = True
    width = 10.0 ** -rng.uniform(1.0, 3.0, n_rows)
    out = np.tile(row, (n_rows, 1))
    for k, one in enumerate(space.values()):
        fresh = _draw(one, n_rows, rng)
        if not isinstance(one, CategoricalDistribution):
            low, high = _range(one)
            step = np.maximum(width * (high - low), 0.7 * _least_step(one, row[k]))
            near = np.clip(row[k] + step * rng.standard_normal(n_rows), low, high)
            fresh = _round(one, near)
        out[:, k] = np.where(moves[:, k], fresh, row[k])
    return out


def _is_log(one: BaseDistribution) -> bool:
    return isinstance(one, FloatDistribution | IntDistribution) and one.log


def _range(one: Any) -> tuple[float, float]:
    """Range of the numbers of a parameter."""
    low, high = float(one.low), float(one.high)
    return (float(np.log(low)), float(np.log(high))) if one.log else (low, high)


def _least_step(one: Any, number: float) -> float:
    """Distance of neighbouring values at a number; 0 for continuous parameters."""
    if one.step is None:
        return 0.0
    return float(one.step / np.exp(number)) if one.log else float(one.step)


def _draw(one: Any, n_rows: int, rng: np.random.Generator) -> Floats:
    if isinstance(one, CategoricalDistribution):
        return rng.integers(len(one.choices), size=n_rows).astype(np.float64)
    low, high = _range(one)
    if one.log and one.step is not None:  # as far beyond the ends as values are rounded to them
        low, high = float(np.log(one.low - 0.5)), float(np.log(one.high + 0.5))
    elif one.step is not None:
        count = round((one.high - one.low) / one.step) + 1
        return np.asarray(one.low + one.step * rng.integers(count, size=n_rows), np.float64)
    return _round(one, rng.uniform(low, high, n_rows))


def _round(one: Any, numbers: Floats) -> Floats:
    """The nearest numbers that are values of the parameter."""
    if one.step is None:
        return numbers
    if one.log:
        return np.asarray(np.log(np.clip(np.rint(np.exp(numbers)), one.low, one.high)))
    return np.asarray(one.low + one.step * np.rint((numbers - one.low) / one.step))


def _value(one: Any, number: float) -> float:
    """Value of a number, as Optuna stores it."""
    if isinstance(one, CategoricalDistribution):
        return number
    value = float(np.exp(number)) if one.log else number
    if isinstance(one, IntDistribution):
        value = float(round(value))
    return float(min(max(value, one.low), one.high))
