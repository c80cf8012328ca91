"""Choose the engine: the CPU engine, or the CUDA engine if it can run and the work is large enough.

The CUDA engine, and with it CuPy and numba's CUDA target, is imported only here: if `engine` is
"cuda", if it is "auto" and the work is large enough, or if a model lies on a device.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from triegp.checks import one_of
from triegp.devices import is_exhausted
from triegp.engines.contract import DeviceEngine, Engine
from triegp.engines.cpu import CpuEngine
from triegp.engines.cpu.threads import available_cores
from triegp.engines.records import Floats
from triegp.imports import LOADING, import_once

ENGINES = ("auto", "cpu", "cuda")

# Rows times orders to be evaluated from which "auto" uses the device. Below this, a fit takes a few
# seconds on two cores, about as long as compiling the kernels.
AUTO_WORK = 10_000_000

# "auto" uses the device if so many times the memory of the work is free: calibration takes up to as
# much again, and other processes may come.
AUTO_ROOM = 2.0

# Estimate of device bytes per row besides its codes, with one order evaluated at a time.
CARD_ROW_BYTES = 120

LEAST_CAPABILITY = 75  # lowest compute capability that CUDA 13 compiles for, times 10

PACKAGES = {"numba-cuda": "numba_cuda", "CuPy": "cupy"}


def check_engine(engine: str) -> str:
    """Return `engine` if it is one of ENGINES.

    Raises ValueError for any other value, and RuntimeError if it is "cuda" and CUDA cannot run
    here.
    """
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
        "auto" is "cuda" if the extra `triegp[cuda]` is installed, a device is present, there is
        enough work and the device has enough free memory; otherwise it is "cpu". "auto" never uses
        numba's simulator. "cuda" raises RuntimeError naming the missing package or device; it never
        falls back. It uses the simulator if NUMBA_ENABLE_CUDASIM=1.
    work : float
        Rows times orders that will be evaluated together. "auto" needs at least `AUTO_WORK`.
    n_threads : int
        Threads of the CPU engine; 0 means all cores.
    card_bytes : float
        Device memory that the work needs, in bytes. If less is free, "cuda" raises MemoryError.
        "auto" is "cpu" unless `AUTO_ROOM` times as much is free.
    """
    check_engine(engine)
    wanted = engine == "auto" and work >= AUTO_WORK and not _simulated()
    if engine == "cuda" and card_bytes > (there := _free_bytes()):
        raise MemoryError(
            f'engine="cuda" needs about {card_bytes / 1e9:.1f} GB on the device, {there / 1e9:.1f} '
            'GB are free: use fewer rows or engine="cpu"'
        )
    wanted = wanted and cuda_problem() is None and AUTO_ROOM * card_bytes <= _free_bytes()
    if engine == "cuda" or wanted:
        with LOADING:
            from triegp.engines.cuda import CudaEngine

        cuda: Engine = CudaEngine()
        return cuda
    return CpuEngine(n_threads=n_threads)


def cuda_problem() -> str | None:
    """Why the CUDA engine cannot run here, as text; None if it can."""
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
        with LOADING:
            import triegp.engines.cuda  # noqa: F401
    except Exception as error:  # incompatible package versions can raise anything
        return f"the engine does not load: {_in_words(error)}"
    return None


def _device_problem() -> str | None:
    """Why the device cannot be used, as text; None if it can. Checked with CuPy and with numba."""
    try:
        with LOADING:
            import cupy
            from numba import cuda
    except Exception as error:
        return f"CuPy or numba-cuda does not load: {_in_words(error)}"
    try:
        if not cupy.cuda.runtime.getDeviceCount():
            return "there is no CUDA device"
        capability = int(cupy.cuda.Device().compute_capability)
    except Exception as error:
        what = "the device has no memory left" if is_exhausted(error) else "there is no CUDA device"
        return f"{what}: {_in_words(error)}"
    if capability < LEAST_CAPABILITY:
        has, needs = capability / 10, LEAST_CAPABILITY / 10
        return f"the device is too old: it has compute capability {has}, CUDA 13 needs {needs}"
    if not cuda.is_available():
        said = cuda.cuda_error()
        if said is None:  # the driver works
            return "numba does not find CUDA's compiler, libNVVM: pip install 'triegp[cuda]'"
        return f"numba finds no CUDA device: {' '.join(str(said).split())}"
    return None


def _free_bytes() -> int:
    """Free device memory in bytes; 0 if the device is too full to query it."""
    with LOADING:
        from triegp.engines.cuda.card import free_bytes

    try:
        return free_bytes()
    except RuntimeError:  # raised by CuPy if it cannot create its context on the device
        return 0


def _in_words(error: Exception) -> str:
    """Type and message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _simulated() -> bool:
    """Whether numba's CUDA kernels run in its simulator, on the host."""
    with LOADING:
        from numba import config  # the CPU engine loads numba when it compiles

    return bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]


def device_engine() -> DeviceEngine:
    """The engine of arrays that lie on a device."""
    cuda: DeviceEngine = import_once("triegp.engines.cuda").CudaEngine()
    return cuda


def device_quantiles(weights: Any, means: Any, variances: Any, q: Floats) -> Any:
    """Quantiles of mixtures of Gaussians that lie on a device, (m, len(q)), on that device.

    weights: (K,) or (K, m); means, variances: (K, m). q: float64 (len(q),), in (0, 1).
    """
    return import_once("triegp.engines.cuda.mixtures").quantiles(weights, means, variances, q)


def threads_of(engine: Engine) -> int:
    """Threads that an engine on the host may use; all cores for an engine on a device."""
    n_threads = engine.n_threads if isinstance(engine, CpuEngine) else 0
    return n_threads or available_cores()
