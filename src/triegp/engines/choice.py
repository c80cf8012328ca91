"""Which engine trains: the CPU's, or CUDA's where it can run and the work is worth it.

CuPy and numba's CUDA target are imported here only, when they are asked for or when "auto" has work
for them.
"""

from __future__ import annotations

import importlib.util

from numba import config

from triegp.checks import one_of
from triegp.engines.contract import Engine
from triegp.engines.cpu import CpuEngine

ENGINES = ("auto", "cpu", "cuda")

# From here on "auto" takes the card: rows times orders to be evaluated. Below, a fit takes a few
# seconds on two cores, and so does compiling the kernels.
AUTO_WORK = 10_000_000

CARD_ROW_BYTES = (
    120  # estimate of what a row takes on the card beside its codes, one order at a time
)

LEAST_CAPABILITY = 75  # that CUDA 13 compiles for, in tenths

PACKAGES = {"numba-cuda": "numba_cuda", "CuPy": "cupy"}


def check_engine(engine: str) -> str:
    """Return `engine` if it is one of ENGINES; RuntimeError for "cuda" where that can't run."""
    one_of("engine", engine, ENGINES)
    if engine == "cuda":
        problem = cuda_problem()
        if problem is not None:
            raise RuntimeError(f'engine="cuda" cannot run here: {problem}')
    return engine


def choose(engine: str, work: float, n_threads: int = 0, card_bytes: float = 0) -> Engine:
    """The engine to train on.

    Parameters
    ----------
    engine : {"auto", "cpu", "cuda"}
        "cuda" insists, and raises RuntimeError with what is missing. "auto" is "cuda" where the
        extra and a device are there, there is enough work for it and enough memory, otherwise
        "cpu". It never takes numba's simulator; "cuda" does where NUMBA_ENABLE_CUDASIM=1 says so.
    work : float
        Rows times orders that will be evaluated together; `AUTO_WORK` is enough.
    n_threads : int
        For the CPU; 0 is all cores.
    card_bytes : float
        What the work takes of the card's memory. Where less is free, "auto" is "cpu", and "cuda"
        raises MemoryError.
    """
    check_engine(engine)
    wanted = engine == "auto" and work >= AUTO_WORK and not _simulated()
    if engine == "cuda" and card_bytes > (there := _free_bytes()):
        raise MemoryError(
            f'engine="cuda" needs about {card_bytes / 1e9:.1f} GB on the card, {there / 1e9:.1f} '
            'GB are free: use fewer rows or engine="cpu"'
        )
    if engine == "cuda" or (wanted and cuda_problem() is None and card_bytes <= _free_bytes()):
        from triegp.engines.cuda import CudaEngine

        cuda: Engine = CudaEngine()
        return cuda
    return CpuEngine(n_threads=n_threads)


def cuda_problem() -> str | None:
    """What keeps the CUDA engine from running here, in words; None where nothing does."""
    if not _simulated():
        missing = [
            name for name, module in PACKAGES.items() if importlib.util.find_spec(module) is None
        ]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            return f"{' and '.join(missing)} {verb} not installed: pip install 'triegp[cuda]'"
        problem = _device_problem()
        if problem is not None:
            return problem
    try:
        import triegp.engines.cuda  # noqa: F401
    except Exception as error:  # whatever versions that do not go together may raise
        return f"the engine does not load: {_in_words(error)}"
    return None


def _device_problem() -> str | None:
    """What the driver says against it, asked for by both libraries."""
    try:
        import cupy
        from numba import cuda
    except Exception as error:
        return f"CuPy or numba-cuda does not load: {_in_words(error)}"
    try:
        if not cupy.cuda.runtime.getDeviceCount():
            return "there is no CUDA device"
        capability = int(cupy.cuda.Device().compute_capability)
    except Exception as error:
        return f"there is no CUDA device: {_in_words(error)}"
    if capability < LEAST_CAPABILITY:
        has, needs = capability / 10, LEAST_CAPABILITY / 10
        return f"the device is too old: it has compute capability {has}, CUDA 13 asks for {needs}"
    if not cuda.is_available():
        said = cuda.cuda_error()
        if said is None:  # the driver is fine
            return "numba does not find CUDA's compiler, libNVVM: pip install 'triegp[cuda]'"
        return f"numba finds no CUDA device: {' '.join(str(said).split())}"
    return None


def _free_bytes() -> int:
    """Memory of the card that is free; none where a card is too full to be asked."""
    from triegp.engines.cuda.card import free_bytes

    try:
        return free_bytes()
    except RuntimeError:  # what CuPy raises where it cannot make itself a place there
        return 0


def _in_words(error: Exception) -> str:
    """On one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _simulated() -> bool:
    """Whether numba's kernels run in its simulator, on the host."""
    return bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
