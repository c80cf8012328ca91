"""Transforms of the targets: learned from training rows, applied to all rows that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.estimators.inputs import location_and_scale
from triegp.imports import import_once, scipy
from triegp.models.transforms import Log, Quantile, Transform, YeoJohnson, yeo_johnson
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Transforms = tuple[Transform | None, ...]

IDENTITY = "identity"
NAMES = ("auto", IDENTITY, "log", "yeo-johnson", "quantile")
MOST_KNOTS = 1_000  # of the quantile transform
QUARTILES = 1.349  # distance between the quartiles of the standard normal distribution
LEAST_SCALE = 0.01  # of the standard deviation, if most targets are equal
NEGLIGIBLE = 1e-4  # powers this near to 0 or 2 are 0 or 2: the search does not reach its bounds
AGREEMENT = 1e-6  # relative: how well a transformer must map training targets back
STEP = float(np.finfo(np.float64).eps) ** (1.0 / 3.0)  # of central differences, relative
HALVINGS = 60  # to find the end of a transformer's range


def check_transform(choice: Any) -> None:
    """Raise ValueError unless `choice` is a name or has the methods of a transformer."""
    if isinstance(choice, str) and choice in NAMES:
        return
    methods = ("fit", "transform", "inverse_transform")
    if isinstance(choice, (str, type)) or not all(hasattr(choice, name) for name in methods):
        raise ValueError(
            f"target_transform must be one of {', '.join(map(repr, NAMES))}, or a scikit-learn "
            f"transformer with inverse_transform, got {choice!r:.80}"
        )


def refuse_known_noise(choice: Any, rows: Rows) -> None:
    """Raise ValueError if there is known noise and targets are transformed."""
    if rows.known_noise is not None and not is_identity(choice):
        raise ValueError(
            "known_noise is in units of y squared, which a transform does not keep: it requires "
            f"target_transform='identity', got {choice!r:.80}"
        )


def is_identity(choice: Any) -> bool:
    """Whether the parameter asks for no transform."""
    return isinstance(choice, str) and choice == IDENTITY


def fit_transforms(choice: Any, rows: Rows, choose: Callable[[int], str]) -> Transforms:
    """One transform per target, None for the identity; empty if no target is transformed.

    choice: the parameter `target_transform`. choose(t): name for target t, if it is "auto".
    """
    refuse_known_noise(choice, rows)
    if is_identity(choice):
        return ()
    found = []
    for t in range(rows.n_targets):
        is_auto = isinstance(choice, str) and choice == "auto"
        found.append(fit_transform(choose(t) if is_auto else choice, rows.y[:, t], rows.weight))
    return tuple(found) if any(one is not None for one in found) else ()


def fit_transform(choice: Any, y: Floats, weight: Floats | None) -> Transform | None:
    """The transform of one target, learned from y (n,); None for the identity.

    A row of weight c equals c rows, but for transformers of scikit-learn, which see no weights.
    """
    used = np.ones(y.size, bool) if weight is None else weight > 0
    count = np.ones(y.size) if weight is None else weight
    if not isinstance(choice, str):
        return fit_transformer(choice, y[used])
    if choice == "log":
        return _fit_log(y, count)
    if choice == "yeo-johnson":
        return _fit_yeo_johnson(y[used], count[used])
    if choice == "quantile":
        return _fit_quantile(y[used], count[used])
    return None


def transform_rows(rows: Rows, transforms: Transforms) -> Rows:
    """Rows with transformed targets; raises ValueError for targets outside a transform's domain."""
    if not transforms:
        return rows
    z = rows.y.copy()
    for t, one in enumerate(transforms):
        if one is not None:
            z[:, t] = one.forward(rows.y[:, t])
            _check_domain(one.name, rows.y[:, t], z[:, t])
    return replace(rows, y=z)


def describe_transforms(transforms: Transforms, n_targets: int) -> list[Any]:
    """Name of each target's transform, or the fitted transformer."""
    shown = transforms or (None,) * n_targets
    return [
        IDENTITY if one is None else one.transformer if isinstance(one, Transformer) else one.name
        for one in shown
    ]


def _check_domain(name: str, y: Floats, z: Floats) -> None:
    bad = ~np.isfinite(z)
    if bad.any():
        row = int(np.argmax(bad))
        domain = "y must be > 0" if name == "log" else "y must have finite images"
        raise ValueError(f"{domain} for target_transform={name!r}, got {y[row]} at row {row}")


def _fit_log(y: Floats, count: Floats) -> Log:
    """The log, centred at that of the lower median."""
    with np.errstate(divide="ignore"):
        _check_domain("log", y, np.log(np.maximum(y, 0.0)))
    used = y[count > 0]
    return Log(float(np.log(_lower_quantile(y, count, 0.5))), float(used.min()), float(used.max()))


def _lower_quantile(y: Floats, count: Floats, level: float) -> float:
    """The smallest y with at least this share of the weight up to it."""
    order = np.argsort(y, kind="stable")
    total = np.cumsum(count[order])
    return float(y[order[np.searchsorted(total, level * total[-1])]])


def _fit_yeo_johnson(y: Floats, count: Floats) -> YeoJohnson:
    """The power in [0, 2] of highest likelihood.

    Before, y is standardised by its median and by the distance of its quartiles. A standard
    deviation would be that of the longer tail, and near 0 the map is almost linear.
    """
    deviation = float(location_and_scale(y[:, None], count)[1][0])
    first, centre, third = (_lower_quantile(y, count, level) for level in (0.25, 0.5, 0.75))
    scale = max((third - first) / QUARTILES, LEAST_SCALE * deviation)
    u = (y - centre) / scale
    log_size = float(np.average(np.sign(u) * np.log1p(np.abs(u)), weights=count))

    def nll(power: float) -> float:
        z = yeo_johnson(u, power)
        var = float(np.average((z - np.average(z, weights=count)) ** 2, weights=count))
        return 0.5 * float(np.log(var)) - (power - 1.0) * log_size

    low, high = float(y.min()), float(y.max())
    if low == high:
        return YeoJohnson(centre, scale, 1.0, low, high)
    power = float(scipy.optimize.minimize_scalar(nll, bounds=(0.0, 2.0), method="bounded").x)
    power = 0.0 if power < NEGLIGIBLE else 2.0 if power > 2.0 - NEGLIGIBLE else power
    return YeoJohnson(centre, scale, power, low, high)


def _fit_quantile(y: Floats, count: Floats) -> Quantile:
    """Knots halfway between targets, at the normal scores of the share of targets below them.

    There are about 2 sqrt(n) intervals of equal share, at most 1,000. No target lies on a knot
    except the smallest and the largest, and equal targets lie between two. The outer lines go
    through the smallest and the largest target, at the middle of their share.
    """
    location_and_scale(y[:, None], count)  # refuses targets further apart than float64 allows
    value, group = np.unique(y, return_inverse=True)
    share = np.bincount(group, count) / count.sum()
    if value.size == 1:  # one line, with the deviation of a constant target
        scale = float(location_and_scale(y[:, None], count)[1][0])
        return Quantile(value + np.array([-scale, scale]), np.array([-1.0, 1.0]))
    n_parts = int(np.clip(2.0 * np.sqrt(count.sum()), 2, MOST_KNOTS))
    below = np.cumsum(share)[:-1]
    cut = np.unique(np.searchsorted(below, np.arange(1, n_parts) / n_parts))
    cut = cut[cut < below.size]
    knots = np.concatenate([value[:1], 0.5 * value[cut] + 0.5 * value[cut + 1], value[-1:]])
    levels = np.concatenate([[0.5 * share[0]], below[cut], [1.0 - 0.5 * share[-1]]])
    z = scipy.special.ndtri(np.clip(levels, 1e-15, 1.0 - 1e-15))
    kept = [0]
    for k in range(1, knots.size - 1):  # neighbouring floats and tiny weights do not rise
        if knots[kept[-1]] < knots[k] < knots[-1] and z[kept[-1]] < z[k] < z[-1]:
            kept.append(k)
    kept.append(knots.size - 1)
    return Quantile(knots[kept], z[kept])


@dataclass(frozen=True, eq=False)
class Transformer:
    """A fitted transformer of scikit-learn, of one column.

    Attributes
    ----------
    transformer : object
        With `transform` and `inverse_transform` of arrays (n, 1).
    low, high : float
        Smallest and largest training target.
    scale : float
        Deviation of the training targets.
    """

    transformer: Any
    low: float
    high: float
    scale: float

    @property
    def name(self) -> str:
        """Name of the class."""
        return type(self.transformer).__name__

    def forward(self, y: Floats) -> Floats:
        """T(y); infinite where the transformer gives no number."""
        z = _apply(self.transformer.transform, y)
        outside = np.where(y < self.low, -np.inf, np.inf)
        return np.where(np.isnan(z), outside, z)

    def inverse(self, z: Floats) -> Floats:
        """The y with T(y) = z, and the nearest one found if z lies outside the range of T."""
        y = _apply(self.transformer.inverse_transform, z)
        lost = np.isnan(y) & ~np.isnan(z)
        if lost.any():
            y = y.copy()
            y[lost] = self._end_of_range(z[lost])
        return y

    def _end_of_range(self, z: Floats) -> Floats:
        """The inverse at the last z, on the way from the nearest training target, that has one."""
        ends = self.forward(np.array([self.low, self.high]))
        good, bad = np.clip(z, *ends), z
        for _ in range(HALVINGS):
            middle = 0.5 * good + 0.5 * bad
            works = ~np.isnan(_apply(self.transformer.inverse_transform, middle))
            good, bad = np.where(works, middle, good), np.where(works, bad, middle)
        return _apply(self.transformer.inverse_transform, good)

    def log_derivative(self, y: Floats) -> Floats:
        """By central differences with two steps, relative to the deviation and to y.

        The first is used unless the two differ by more than rounding errors explain.
        """
        wide, size, _ = self._slope(y, np.full(y.shape, STEP * self.scale))
        tight, size, step = self._slope(y, STEP * np.minimum(np.abs(y), self.scale))
        with np.errstate(all="ignore"):
            rounding = 8.0 * np.finfo(np.float64).eps * size / step
            use_wide = np.isfinite(wide) & ~(np.abs(wide - tight) > rounding)
            slope = np.where(use_wide & (wide > 0), wide, tight)
            return np.log(np.where(slope > 0, slope, 0.0))

    def _slope(self, y: Floats, step: Floats) -> tuple[Floats, Floats, Floats]:
        """Central difference at y, the size of T there, and the step as taken."""
        below, above = y - step, y + step
        with np.errstate(all="ignore"):
            low, high = self.forward(below), self.forward(above)
            size = np.maximum(np.abs(low), np.abs(high))
            return (high - low) / (above - below), size, above - below


def fit_transformer(transformer: Any, y: Floats) -> Transformer:
    """A clone of the transformer, fitted to y (n,); raises ValueError unless it is increasing."""
    clone = import_once("sklearn.base").clone  # loading a model does not need scikit-learn
    own = clone(transformer)
    own.fit(y[:, None])
    scale = float(location_and_scale(y[:, None], None)[1][0])
    fitted = Transformer(own, float(y.min()), float(y.max()), scale)
    value = np.unique(y)
    z = fitted.forward(value)
    _check_domain(fitted.name, value, z)
    flat = np.diff(z) <= 0
    if flat.any():
        k = int(np.argmax(flat))
        raise ValueError(
            f"target_transform must increase strictly, {fitted.name} maps y of {value[k]} and "
            f"{value[k + 1]} to {z[k]} and {z[k + 1]}"
        )
    with np.errstate(invalid="ignore"):
        apart = np.abs(fitted.inverse(z) - value)
    off = ~(apart <= AGREEMENT * np.maximum(np.abs(value), scale))
    if off.any():
        k = int(np.argmax(off))
        raise ValueError(
            f"target_transform must have an inverse, {fitted.name} maps y of {value[k]} back to "
            f"{fitted.inverse(z)[k]}"
        )
    return fitted


def _apply(function: Callable[[Any], Any], values: Floats) -> Floats:
    """function of the values as one column; NaN where it gives no number or raises ValueError."""
    flat = values.ravel()
    out = np.full(flat.size, np.nan)
    finite = np.isfinite(flat)
    if finite.any():
        out[finite] = _column(function, flat[finite])
    return out.reshape(values.shape)


def _column(function: Callable[[Any], Any], flat: Floats) -> Floats:
    with np.errstate(all="ignore"):
        try:
            return np.asarray(function(flat[:, None]), np.float64).reshape(flat.size)
        except ValueError:  # scikit-learn refuses all values if one is outside the domain
            if flat.size == 1:
                return np.full(1, np.nan)
            half = flat.size // 2
            return np.concatenate([_column(function, flat[:half]), _column(function, flat[half:])])
