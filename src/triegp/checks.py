"""Argument checks. Every error names the argument, the value received and the value expected.

Array arguments are converted to numpy arrays. If `hold` is given (`Engine.hold` or a similar
function), arrays on a device are accepted too, and the result lies in the memory `hold` copies to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.devices import on_device

Floats = npt.NDArray[np.float64]
Hold = Callable[[Any], Any]


def finite_vector(
    name: str, value: Any, length: int | None = None, hold: Hold | None = None
) -> Floats:
    """Return `value` as a contiguous float64 vector of `length` finite numbers."""
    vector = float_array(name, value, hold)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {vector.shape}")
    if length is not None and vector.size != length:
        raise ValueError(f"{name} must have {length} entries, got {vector.size}")
    _refuse_nonfinite(name, vector)
    return vector


def finite_columns(name: str, value: Any, n_rows: int, hold: Hold | None = None) -> Floats:
    """Return `value` as a contiguous float64 array (n_rows,) or (n_rows, k) of finite numbers."""
    array = float_array(name, value, hold)
    if array.ndim not in (1, 2) or array.shape[0] != n_rows:
        raise ValueError(f"{name} must have shape ({n_rows},) or ({n_rows}, k), got {array.shape}")
    _refuse_nonfinite(name, array)
    return array


def non_negative_vector(
    name: str, value: Any, length: int | None = None, hold: Hold | None = None
) -> Floats:
    """Return `value` as a contiguous float64 vector of finite numbers >= 0."""
    vector = finite_vector(name, value, length, hold)
    if vector.size and vector.min() < 0:
        i = int(np.argmin(vector))
        raise ValueError(f"{name} must not be negative, got {vector[i]} at position {i}")
    return vector


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a finite float > 0."""
    try:
        number = real_number(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a positive number, got {value!r:.80}") from None
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return number


def real_number(value: Any) -> float:
    """Return `value` as a float; raises TypeError or ValueError if it is text or not a number."""
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int of at least `least`, and at most `most`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name} must be an integer, {least} or more, got {value!r:.80}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value!r:.80}")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """Return `value` as a bool if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if not (isinstance(value, str) and value in choices):
        expected = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {expected}, got {value!r:.80}")
    return value


def float_array(name: str, value: Any, hold: Hold | None = None) -> Floats:
    """Return `value` as a contiguous float64 array.

    Raises ValueError for complex numbers, text, ragged lists and masked entries.
    """
    refuse_masked(name, value)
    from_device = hold is not None and on_device(value)
    try:
        array = hold(value) if hold is not None and from_device else np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        if from_device:
            return array.astype(np.float64, order="C", copy=False)
        with np.errstate(over="ignore"):  # a long double may become inf, which callers refuse
            array = np.asarray(array, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers, got {value!r:.80}") from None
    return array if hold is None else hold(array)


def refuse_masked(name: str, value: Any) -> None:
    """Raise ValueError if `value` is a masked array with masked entries."""
    if np.ma.is_masked(value):
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise ValueError(f"{name} must not have masked entries, got one at row {row}")


def _refuse_nonfinite(name: str, array: Floats) -> None:
    if not np.isfinite(array).all():
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        position = where[0] if len(where) == 1 else where
        raise ValueError(f"{name} must be finite, got {array[where]} at position {position}")


def random_generator(random_state: Any) -> np.random.Generator:
    """Return a numpy Generator for any `random_state` that scikit-learn accepts.

    A Generator is returned unchanged.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or random_state is np.random:
        draw: Any = np.random.randint  # numpy's global state, as scikit-learn does
    elif isinstance(random_state, np.random.RandomState):
        draw = random_state.randint
    else:
        try:
            draw = np.random.RandomState(operator.index(random_state)).randint
        except (TypeError, ValueError) as error:
            raise ValueError(
                "random_state must be None, an integer, a RandomState or a Generator, got "
                f"{random_state!r:.80}: {error}"
            ) from None
    return np.random.default_rng(draw(0, 2**31 - 1, size=4))
