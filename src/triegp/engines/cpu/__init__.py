"""The CPU engine: numba kernels that hold no GIL, on threads of our own."""

from triegp.engines.cpu.engine import CpuEngine
from triegp.engines.cpu.threads import available_cores

__all__ = ["CpuEngine", "available_cores"]
