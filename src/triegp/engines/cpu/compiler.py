"""Compiler options of this engine's kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on our own thread pool (`threads`), not on numba's threading layer. Without fast-math
the same input gives the same bits. If numba finds no folder for its cache, kernels are compiled
again in every process.
"""

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numba as nb
from numba.core.compiler_lock import global_compiler_lock as compiling

inline = nb.njit(nogil=True, error_model="numpy", inline="always")


def jit(kernel: Callable[..., Any]) -> Any:
    """Compile a kernel on first use, and cache it if numba finds a folder that it can write to."""
    try:
        return nb.njit(nogil=True, cache=True, error_model="numpy")(kernel)
    except RuntimeError:  # no folder for the cache
        _warn_no_cache()
        return nb.njit(nogil=True, error_model="numpy")(kernel)


@cache  # once
def _warn_no_cache() -> None:
    warnings.warn(
        "numba finds no folder for its cache, so kernels are compiled in every process: set "
        "NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=3,
    )


# A fork waits until no thread compiles. Otherwise the child could never compile a kernel: its copy
# of the compiler's lock would be held by a thread that the child does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=compiling.acquire,
        after_in_parent=compiling.release,
        after_in_child=compiling.release,
    )
