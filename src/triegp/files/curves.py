"""The training curve in a model file: all lines one after the other, and the length of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.files.contents import check_array
from triegp.models.curve import MOST_POINTS, Line, TrainingCurve, make_curve

Arrays = dict[str, npt.NDArray[Any]]

MOST_LETTERS = 80  # of the name of a line
LAST_STEP = 1 << 53


def pack_curve(curve: TrainingCurve | None) -> tuple[dict[str, Any] | None, Arrays]:
    """Facts that JSON can hold, and arrays; nothing without a curve."""
    if curve is None:
        return None, {}
    lines = [Line(*pair) for pair in zip(curve.step, curve.nll, strict=True)]
    arrays = _pack_lines("curve.trained", lines)
    if curve.held_out is not None:
        arrays |= _pack_lines("curve.held_out", [Line(*pair) for pair in curve.held_out])
    return {"names": list(curve.names), "held_out": curve.held_out is not None}, arrays


def unpack_curve(facts: Any, arrays: Arrays) -> TrainingCurve | None:
    """The curve, checked; None in files without one."""
    if facts is None:
        return None
    names, held = facts["names"], facts["held_out"]
    if not (isinstance(names, list) and names and all(map(_is_name, names))):
        raise ValueError(f"names of a training curve must be short strings, got {names!r:.80}")
    if not isinstance(held, bool):
        raise ValueError(f"held_out of a training curve must be true or false, got {held!r:.40}")
    lines = _unpack_lines("curve.trained", arrays, len(names))
    other = _unpack_lines("curve.held_out", arrays, len(names)) if held else None
    return make_curve(lines, names, other)


def _pack_lines(prefix: str, lines: Sequence[Line]) -> Arrays:
    return {
        f"{prefix}.points": np.array([line.step.size for line in lines], np.int64),
        f"{prefix}.step": np.concatenate([line.step for line in lines]),
        f"{prefix}.nll": np.concatenate([line.nll for line in lines]),
    }


def _unpack_lines(prefix: str, arrays: Arrays, n_lines: int) -> list[Line]:
    points = check_array(arrays, f"{prefix}.points", np.int64, (n_lines,))
    if points.min() < 0 or points.max() > MOST_POINTS:
        raise ValueError(f"{prefix}.points must lie between 0 and {MOST_POINTS}")
    n_points = int(points.sum())
    step = check_array(arrays, f"{prefix}.step", np.int64, (n_points,))
    nll = check_array(arrays, f"{prefix}.nll", np.float64, (n_points,))
    ends = np.cumsum(points)[:-1]
    lines = [Line(*pair) for pair in zip(np.split(step, ends), np.split(nll, ends), strict=True)]
    for own, _ in lines:
        if own.size and (own[0] < 0 or own[-1] > LAST_STEP or (own[1:] < own[:-1]).any()):
            raise ValueError(f"{prefix}.step must not be negative, nor fall within a line")
    return lines


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MOST_LETTERS
