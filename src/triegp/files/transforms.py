"""Transforms of the targets in a model file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import real_number
from triegp.files.contents import check_array
from triegp.models.transforms import Log, Quantile, Transform, YeoJohnson

Arrays = dict[str, npt.NDArray[Any]]

LOGS = (-746.0, 710.0)  # of the numbers of float64


def pack_transforms(transforms: Sequence[Transform | None]) -> tuple[list[Any], Arrays]:
    """Facts that JSON can hold, one per target, and arrays.

    Raises TypeError for a transformer of scikit-learn.
    """
    facts: list[Any] = []
    arrays: Arrays = {}
    for t, one in enumerate(transforms):
        if one is None:
            facts.append(None)
        elif isinstance(one, Log):
            facts.append({"name": one.name, "centre": one.centre, **_range(one)})
        elif isinstance(one, YeoJohnson):
            own = {"centre": one.centre, "scale": one.scale, "power": one.power}
            facts.append({"name": one.name, **own, **_range(one)})
        elif isinstance(one, Quantile):
            facts.append({"name": one.name})
            arrays |= {f"transform.{t}.y": one.y, f"transform.{t}.z": one.z}
        else:
            raise TypeError(
                f"model files never hold pickles, so {one.name} as target_transform cannot be "
                "saved: pickle the estimator instead"
            )
    return facts, arrays


def unpack_transforms(facts: Any, arrays: Arrays, n_targets: int) -> tuple[Transform | None, ...]:
    """The transforms, checked; none in files without them."""
    if facts is None:
        return ()
    if len(facts) != n_targets:
        raise ValueError(f"transforms must be {n_targets}, got {len(facts)}")
    return tuple(_unpack(own, arrays, f"transform.{t}") for t, own in enumerate(facts))


def _unpack(facts: Any, arrays: Arrays, prefix: str) -> Transform | None:
    if facts is None:
        return None
    name = facts["name"]
    if name == Log.name:
        centre = _finite(facts, "centre")
        if not LOGS[0] <= centre <= LOGS[1]:
            raise ValueError(f"centre must be the log of a target, got {centre}")
        low, high = _read_range(facts)
        if low == 0 or -np.inf < low < 0:
            raise ValueError(f"the smallest target of a log must be positive, got {low}")
        return Log(centre, low, high)
    if name == YeoJohnson.name:
        centre, scale, power = (_finite(facts, part) for part in ("centre", "scale", "power"))
        if not (scale > 0 and 0 <= power <= 2):
            raise ValueError(f"yeo-johnson needs scale > 0 and 0 <= power <= 2, got {facts!r:.80}")
        return YeoJohnson(centre, scale, power, *_read_range(facts))
    if name == Quantile.name:
        y = check_array(arrays, f"{prefix}.y", np.float64, (None,), least=2)
        z = check_array(arrays, f"{prefix}.z", np.float64, (y.size,))
        if not ((np.diff(y) > 0).all() and (np.diff(z) > 0).all()):
            raise ValueError(f"{prefix}.y and {prefix}.z must increase strictly")
        return Quantile(y, z)
    raise ValueError(f"transform must be a name that this triegp knows, got {name!r:.80}")


def _range(transform: Log | YeoJohnson) -> dict[str, float]:
    """Smallest and largest training target, as far as they are known."""
    ends = {"low": transform.low, "high": transform.high}
    return {name: end for name, end in ends.items() if np.isfinite(end)}


def _read_range(facts: Any) -> tuple[float, float]:
    """Smallest and largest training target, infinite in files that do not hold them."""
    low = _finite(facts, "low") if "low" in facts else -np.inf
    high = _finite(facts, "high") if "high" in facts else np.inf
    if low > high:
        raise ValueError(f"low of a transform must not exceed high, got {low} and {high}")
    return low, high


def _finite(facts: Any, name: str) -> float:
    value = float(real_number(facts[name]))
    if not np.isfinite(value):
        raise ValueError(f"{name} of a transform must be finite, got {value}")
    return value
