"""How this engine compiles its kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on threads of our own (`threads`), never on numba's threading layer, and without
fast-math the same input gives the same bits.
"""

import numba as nb

jit = nb.njit(nogil=True, cache=True, error_model="numpy")
inline = nb.njit(nogil=True, error_model="numpy", inline="always")
