"""Compiler options of this engine's kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on our own thread pool (`threads`), not on numba's threading layer. Without fast-math
the same input gives the same bits.
"""

import os

import numba as nb
from numba.core.compiler_lock import global_compiler_lock as compiling

jit = nb.njit(nogil=True, cache=True, error_model="numpy")
inline = nb.njit(nogil=True, error_model="numpy", inline="always")

# A fork waits until no thread compiles. Otherwise the child could never compile a kernel: its copy
# of the compiler's lock would be held by a thread that the child does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=compiling.acquire,
        after_in_parent=compiling.release,
        after_in_child=compiling.release,
    )
