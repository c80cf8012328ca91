"""Strictly increasing maps z = T(y) of a target: models work on z, users see y.

Every record has a name, the smallest and the largest training target `low` and `high` (infinite if
they are not known), and three functions, of float64 arrays of any shape:

* `forward(y)`: T(y); -inf or +inf for y below or above the domain of T;
* `inverse(z)`: the y of finite z; infinite if it exceeds float64;
* `log_derivative(y)`: log dT/dy, for y inside the domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Transform(Protocol):
    """A strictly increasing map of one target."""

    @property
    def name(self) -> str:
        """Name, as in the parameter `target_transform`."""
        ...

    @property
    def low(self) -> float:
        """Smallest training target."""
        ...

    @property
    def high(self) -> float:
        """Largest training target."""
        ...

    def forward(self, y: Floats) -> Floats:
        """T(y)."""
        ...

    def inverse(self, z: Floats) -> Floats:
        """The y with T(y) = z."""
        ...

    def log_derivative(self, y: Floats) -> Floats:
        """Log dT/dy."""
        ...


@dataclass(frozen=True)
class Log:
    """T(y) = log(y) - centre, for y > 0.

    The centre is the log of a training target, so that a constant target is mapped to 0.
    """

    centre: float
    low: float = -np.inf
    high: float = np.inf

    name = "log"

    def forward(self, y: Floats) -> Floats:
        """T(y); -inf for y <= 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(y, 0.0)) - self.centre)

    def inverse(self, z: Floats) -> Floats:
        """exp(z + centre)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(z + self.centre))

    def log_derivative(self, y: Floats) -> Floats:
        """-log(y)."""
        with np.errstate(divide="ignore"):
            return -np.log(np.maximum(y, 0.0))


@dataclass(frozen=True)
class YeoJohnson:
    """The map of Yeo and Johnson (Biometrika 2000) of u = (y - centre) / scale.

    T is ((1 + u)^p - 1) / p for u >= 0 and (1 - (1 - u)^(2 - p)) / (2 - p) for u < 0, with
    logarithms where an exponent is 0. With a power p in [0, 2] every z has an inverse.
    """

    centre: float
    scale: float
    power: float
    low: float = -np.inf
    high: float = np.inf

    name = "yeo-johnson"

    def forward(self, y: Floats) -> Floats:
        """T(y)."""
        with np.errstate(over="ignore"):  # far away: z is infinite
            u = (y - self.centre) / self.scale
            return yeo_johnson(u, self.power)

    def inverse(self, z: Floats) -> Floats:
        """The y with T(y) = z."""
        size = np.abs(z)
        exponent = np.where(z >= 0, self.power, 2.0 - self.power)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log = np.where(exponent == 0, size, np.log1p(exponent * size) / exponent)
            return np.asarray(self.centre + self.scale * np.copysign(np.expm1(log), z))

    def log_derivative(self, y: Floats) -> Floats:
        """(p - 1) sign(u) log(1 + |u|) - log(scale)."""
        with np.errstate(over="ignore"):
            u = (y - self.centre) / self.scale
        return np.asarray(
            (self.power - 1.0) * np.sign(u) * np.log1p(np.abs(u)) - np.log(self.scale)
        )


def yeo_johnson(u: Floats, power: float) -> Floats:
    """The map of Yeo and Johnson, without units; power in [0, 2]."""
    log = np.log1p(np.abs(u))
    exponent = np.where(u >= 0, power, 2.0 - power)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(exponent == 0, log, np.expm1(exponent * log) / exponent)
    return np.asarray(np.copysign(size, u))


@dataclass(frozen=True, eq=False)
class Quantile:
    """Piecewise linear between knots (y, z), and on along the first and last line beyond them.

    Attributes
    ----------
    y, z : float64 (k,)
        Knots, at least 2; both increase strictly. The first and the last are the smallest and the
        largest training target.
    """

    y: Floats
    z: Floats

    name = "quantile"

    @property
    def low(self) -> float:
        """Smallest training target."""
        return float(self.y[0])

    @property
    def high(self) -> float:
        """Largest training target."""
        return float(self.y[-1])

    def forward(self, y: Floats) -> Floats:
        """T(y)."""
        return _interpolate(y, self.y, self.z)

    def inverse(self, z: Floats) -> Floats:
        """The y with T(y) = z."""
        return _interpolate(z, self.z, self.y)

    def log_derivative(self, y: Floats) -> Floats:
        """Log of the slope; at a knot, that of the line above."""
        slope = np.log(np.diff(self.z)) - np.log(np.diff(self.y))
        return np.asarray(slope[_segment(y, self.y)])


def _segment(x: Floats, knots: Floats) -> npt.NDArray[np.int64]:
    """Line that each x lies on, from 0 to k - 2."""
    return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, knots.size - 2)


def _interpolate(x: Floats, knots: Floats, values: Floats) -> Floats:
    """Piecewise linear, from the nearer of the two knots, so that knots are met exactly."""
    k = _segment(x, knots)
    width, step = np.diff(knots)[k], np.diff(values)[k]
    near = k + (x - knots[k] > 0.5 * width)
    with np.errstate(over="ignore", invalid="ignore"):
        found = values[near] + (x - knots[near]) / width * step
    return np.asarray(np.where(np.isinf(x), x, found))
