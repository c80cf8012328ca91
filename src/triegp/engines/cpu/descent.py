"""Conjugate gradients with numpy: columns that are done are left out at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from triegp.engines.contract import Floats, Ints


def dots(x: Floats, z: Floats) -> Floats:
    """Products of the columns of x with those of z, both (n, k): (k,)."""
    return np.asarray(np.einsum("nk,nk->k", x, z))


class CpuDescent:
    """As the protocol's `Descent`; multiply and inverse: by the matrix, by the preconditioner."""

    def __init__(
        self,
        multiply: Callable[[Floats], Floats],
        x: Floats,
        columns: Ints,
        r: Floats,
        inverse: Callable[[Floats], Floats] | None,
    ) -> None:
        self._multiply, self._inverse = multiply, inverse or (lambda r: r)
        self._x, self._columns, self._r = x, columns, r
        z = self._inverse(r)
        self._p, self._rz = z, dots(r, z)

    def advance(self) -> tuple[Floats, Floats, Floats]:
        """One step: |r| of every column that is left, how far it went, and r'M^-1 r before it."""
        p = self._p
        q = self._multiply(p)
        curvature = dots(p, q)
        up = curvature > 0
        stride = np.where(up, self._rz / np.where(up, curvature, 1.0), 0.0)
        self._x[:, self._columns] += stride * p
        self._r = self._r - stride * q
        return np.linalg.norm(self._r, axis=0), stride, self._rz

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Go on with some of the columns that are left."""
        self._columns, self._rz = self._columns[some], self._rz[some]
        self._r, self._p = self._r[:, some], self._p[:, some]

    def turn(self) -> None:
        """The next direction: M^-1 r, and a part of the last."""
        z = self._inverse(self._r)
        new = dots(self._r, z)
        self._p = z + (new / self._rz) * self._p
        self._rz = new
