"""The engine."""


class CudaEngine:
    """Soon."""
