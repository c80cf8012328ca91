"""Dense algebra on the device, for functions that numpy does not dispatch to CuPy properly."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from triegp.engines.cuda.card import SIMULATED, xp
from triegp.engines.records import Floats

if SIMULATED:
    from scipy.linalg import solve_triangular

    def _strict() -> AbstractContextManager[Any]:
        return nullcontext()

else:
    from cupyx import errstate
    from cupyx.scipy.linalg import solve_triangular

    def _strict() -> AbstractContextManager[Any]:
        """Make CuPy raise an error for a failed factorisation; by default it does not."""
        return errstate(linalg="raise")  # type: ignore[no-any-return]


def cholesky(matrices: Floats) -> Floats:
    """Lower Cholesky factors, (..., m, m). Raises LinAlgError if one is not positive definite."""
    with _strict():
        return xp.linalg.cholesky(matrices)  # type: ignore[no-any-return]


def solve_lower(lower: Floats, x: Floats) -> Floats:
    """L^-1 x for a lower triangular L (m, m) and x (m,) or (m, k)."""
    return solve_triangular(lower, x, lower=True)  # type: ignore[no-any-return]
