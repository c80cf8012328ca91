"""Row values in an engine's own memory: how they get there.

Numpy's functions work on the arrays of any engine, but not on those of two kinds at once. So all
that has one entry a row is held by the forest's engine (`Engine.hold`), and what is small enough to
decide by is fetched (`Engine.fetch`). On the CPU both are the array itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import Engine
from triegp.interop import on_device
from triegp.validation import finite_columns

Floats = npt.NDArray[np.float64]


def hold_columns(engine: Engine, name: str, value: Any, n_rows: int) -> Floats:
    """Return `value`, (n_rows,) or (n_rows, k), in the engine's memory.

    What comes from the host is checked to be finite; to look at what a card has would hold it up.
    """
    if engine.batches and on_device(value):
        if value.ndim in (1, 2) and value.shape[0] == n_rows and value.dtype == np.float64:
            return engine.hold(value)
        raise ValueError(
            f"{name} must be float64 of shape ({n_rows},) or ({n_rows}, k), got {value.dtype} of "
            f"shape {value.shape}"
        )
    return engine.hold(finite_columns(name, value, n_rows))


def fetch_norms(engine: Engine, x: Floats) -> Floats:
    """Lengths of the columns of x, (k,), in the host's memory."""
    if engine.batches:
        return np.sqrt(engine.fetch(engine.dots(x, x)))
    return np.asarray(np.linalg.norm(x, axis=0))
