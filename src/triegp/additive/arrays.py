"""Row values in an engine's own memory.

Numpy's functions work on the arrays of any engine, but not on those of two kinds at once. So all
that has one entry a row is held by the forest's engine (`Engine.hold`), and what is small enough to
decide by is fetched (`Engine.fetch`). On the CPU both are the array itself.

What users pass in is checked, held and answered in kind by the public functions (`forest_product`,
`solve_forest`). Those that work inside (`multiply`, `solve_held`) take and give what is held, and
check nothing: to look at what a card has would hold it up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.engines import Engine

Floats = npt.NDArray[np.float64]


def fetch_norms(engine: Engine, x: Floats) -> Floats:
    """Lengths of the columns of x, (k,), in the host's memory."""
    if engine.batches:
        return np.sqrt(engine.fetch(engine.dots(x, x)))
    return np.asarray(np.linalg.norm(x, axis=0))
