"""The seam between the kernels and the card: memory, sorting, and how kernels are compiled.

On a card `xp` is CuPy. Under numba's simulator (NUMBA_ENABLE_CUDASIM=1) it is numpy, and blocks
are small, so that a few dozen rows already make several of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import config, cuda

SIMULATED = bool(config.ENABLE_CUDASIM)
if SIMULATED:
    xp: Any = np
    THREADS = 4  # a block; the simulator starts a thread of Python for each
    TILE = 16
else:
    import cupy

    xp = cupy
    THREADS = 256
    TILE = 512  # adjacent leaves that one block holds in its shared memory


def kernel(function: Any) -> Any:
    """Compile for the card; no fast-math. Several dtypes make several versions."""
    return cuda.jit(function)


def device(function: Any) -> Any:
    """Compile a function that kernels call."""
    return cuda.jit(device=True)(function)


def launch(function: Any, n_items: int, *arguments: Any) -> None:
    """Run a kernel with at least one thread for each of n_items items."""
    if n_items:
        function[-(-n_items // THREADS), THREADS](*arguments)


def launch_blocks(function: Any, n_blocks: int, *arguments: Any) -> None:
    """Run a kernel with n_blocks blocks."""
    if n_blocks:
        function[n_blocks, THREADS](*arguments)


def to_device(array: Any, dtype: npt.DTypeLike = None) -> Any:
    """An array in the card's memory: as it is if it lies there, else copied."""
    return xp.ascontiguousarray(xp.asarray(array, dtype=dtype))


def to_host(array: Any) -> npt.NDArray[Any]:
    """An array in the host's memory."""
    return array if isinstance(array, np.ndarray) else array.get()  # type: ignore[no-any-return]


def argsort(values: Any) -> Any:
    """Places in rising order, equal values in their own order."""
    return xp.argsort(values, kind="stable")
