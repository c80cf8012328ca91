"""Compiler options of this engine's kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on our own thread pool (`threads`), not on numba's threading layer. Without fast-math
the same input gives the same bits.
"""

import numba as nb

jit = nb.njit(nogil=True, cache=True, error_model="numpy")
inline = nb.njit(nogil=True, error_model="numpy", inline="always")
