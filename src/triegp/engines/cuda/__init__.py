"""The CUDA engine: numba kernels on the device, CuPy for memory and sorting.

It needs the extra `triegp[cuda]`; import it only if a device is to be used. With
NUMBA_ENABLE_CUDASIM=1 in the environment the same kernels run in numba's simulator on the host,
with numpy in place of CuPy. This is slow and meant for tests.
"""

from triegp.engines.cuda.engine import CudaEngine

__all__ = ["CudaEngine"]
