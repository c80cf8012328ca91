"""The CPU engine: numba kernels that hold no GIL, on threads of our own."""

from triegp.engines.cpu.engine import CpuEngine

__all__ = ["CpuEngine"]
