"""Codes: quantised rows as packed bit strings, in canonical bit order.

Canonical bit order is feature after feature, each feature's most significant bit first. Canonical
bit b of a row lies in byte b // 8, under the mask 128 >> (b % 8). The last byte is padded with
zeros. Features do not start on byte boundaries: all bytes but the last hold eight bits. The engines
build keys with one table look-up per byte, so dense packing needs the fewest look-ups.

The *box* is the range from the smallest to the largest training value, in every feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.devices import like

MAX_PRECISION = 32
MAX_BITS = 100_000


@dataclass(frozen=True, eq=False)
class Codes:
    """Quantised rows.

    Attributes
    ----------
    packed : uint8 array (n_rows, ceil(n_bits / 8))
        Bits of each row in canonical order.
    precision : int64 array (n_features,)
        Bits per feature.
    unrelated : bool array (n_rows,) or None
        True for rows outside the training box that have covariance k = 0 with all rows inside
        it. None if there are no such rows.
    """

    packed: npt.NDArray[np.uint8]
    precision: npt.NDArray[np.int64]
    unrelated: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        packed, unrelated = self.packed, self.unrelated
        width = -(-self.n_bits // 8)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
            raise ValueError(
                f"packed must be uint8 of shape (n_rows, {width}) for {self.n_bits} bits, got "
                f"{packed.dtype} of shape {packed.shape}"
            )
        if unrelated is not None and unrelated.dtype != np.bool_:
            raise ValueError(f"unrelated must be bool, got {unrelated.dtype}")
        if unrelated is not None and unrelated.shape != packed.shape[:1]:
            raise ValueError(
                f"unrelated must have shape ({packed.shape[0]},), got {unrelated.shape}"
            )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.packed.shape[0])

    @property
    def n_bits(self) -> int:
        """Number of bits per row, q."""
        return int(self.precision.sum())


def pack_codes(codes: Any, precision: Any) -> Codes:
    """Pack integer codes into bit strings.

    Parameters
    ----------
    codes : integer array (n_rows, n_features)
        The code of feature j lies in [0, 2**precision[j]). The value 2**precision[j] marks the
        row as outside the box.
    precision : int, or integer array (n_features,)
        Bits per feature, 1 to 32 each and at most 100000 in total. An int applies to all features.

    Returns
    -------
    Codes

    Examples
    --------
    >>> pack_codes([[5, 1], [2, 0]], precision=[3, 1]).packed
    array([[176],
           [ 64]], dtype=uint8)

    Notes
    -----
    O(n_rows * n_features) time, ceil(n_bits / 8) bytes per row.
    """
    codes = np.asarray(codes)
    if codes.ndim != 2 or codes.dtype.kind not in "iu":
        raise ValueError(
            f"codes must be a two-dimensional integer array, got {codes.dtype} {codes.shape}"
        )
    n_rows, n_features = codes.shape
    widths = check_precision(precision, n_features)
    packed = np.zeros((n_rows, -(-int(widths.sum()) // 8)), dtype=np.uint8)
    unrelated: npt.NDArray[np.bool_] | None = None
    first_bit = 0
    for j, width in enumerate(widths.tolist()):
        column = codes[:, j]
        if n_rows and (column.min() < 0 or column.max() > 1 << width):
            worst = column.min() if column.min() < 0 else column.max()
            raise ValueError(f"codes of feature {j} must lie in [0, 2**{width}], got {worst}")
        beyond = column >> np.array(width - 1, column.dtype) >> np.array(1, column.dtype) != 0
        if beyond.any():
            unrelated = beyond if unrelated is None else unrelated | beyond
            column = np.where(beyond, 0, column)
        _deposit(packed, column.astype(np.uint32), first_bit, width)
        first_bit += width
    return Codes(packed, widths, unrelated)


def hold_codes(codes: Codes, hold: Callable[[Any], Any]) -> Codes:
    """Return the same codes in other memory, for example an engine's (`Engine.hold`)."""
    return replace(codes, packed=hold(codes.packed))


def inner_rows(codes: Codes) -> npt.NDArray[np.int64]:
    """Return the indices of the rows inside the box, in the same memory as the codes."""
    rows = np.arange(codes.n_rows) if codes.unrelated is None else np.flatnonzero(~codes.unrelated)
    found: npt.NDArray[np.int64] = like(rows, codes.packed)
    return found


def select_codes(codes: Codes, rows: npt.NDArray[np.int64]) -> Codes:
    """Return the codes of the given rows, which must all lie inside the box."""
    return Codes(codes.packed.take(rows, axis=0), codes.precision)


def _deposit(
    packed: npt.NDArray[np.uint8], column: npt.NDArray[np.uint32], first_bit: int, width: int
) -> None:
    """Write `column`, `width` bits wide, to canonical bits first_bit, first_bit + 1, ..."""
    last_byte = (first_bit + width - 1) // 8
    for byte in range(first_bit // 8, last_byte + 1):
        right = first_bit + width - 8 * (byte + 1)  # bits of the code to the right of this byte
        part = column >> np.uint32(right) if right >= 0 else column << np.uint32(-right)
        packed[:, byte] |= (part & np.uint32(255)).astype(np.uint8)


def check_precision(precision: Any, n_features: int) -> npt.NDArray[np.int64]:
    """Return `precision` as (n_features,): 1 to 32 bits per feature, at most 10**5 in total."""
    try:
        widths = np.asarray(precision)
    except ValueError:  # ragged
        widths = np.empty(0)
    if widths.dtype.kind not in "iu" or widths.ndim > 1:
        raise ValueError(
            f"precision must be an integer or one integer per feature, got {precision!r:.80}"
        )
    if widths.ndim == 0:
        widths = np.full(n_features, int(widths))
    if widths.size != n_features:
        raise ValueError(f"precision must have {n_features} entries, got {widths.size}")
    for j, width in enumerate(widths.tolist()):
        if not 1 <= width <= MAX_PRECISION:
            raise ValueError(
                f"precision must be between 1 and {MAX_PRECISION}, got {width} for feature {j}"
            )
    if widths.sum() > MAX_BITS:
        raise ValueError(f"precision must sum to at most {MAX_BITS} bits, got {widths.sum()}")
    return widths.astype(np.int64)
