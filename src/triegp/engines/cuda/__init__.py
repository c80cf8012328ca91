"""The CUDA engine: numba kernels on the card, CuPy for memory and sorting.

Import it only where a card is wanted: it needs the extra `triegp[cuda]`. With
NUMBA_ENABLE_CUDASIM=1 in the environment the same kernels run on numba's simulator, on the host,
with numpy in CuPy's place: slow, and meant for tests.
"""

from triegp.engines.cuda.engine import CudaEngine

__all__ = ["CudaEngine"]
