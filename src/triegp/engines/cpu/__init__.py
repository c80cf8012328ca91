"""The CPU engine: numba kernels that release the GIL, run on our own thread pool."""

from triegp.engines.cpu.engine import CpuEngine
from triegp.engines.cpu.threads import available_cores

__all__ = ["CpuEngine", "available_cores"]
