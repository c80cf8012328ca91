"""The interface between the kernels and the device: memory, sorting, compiling and launching.

On a GPU `xp` is CuPy. It holds memory, sorts, and loads and launches the kernels that numba
compiled (numba's own launch takes 25 microseconds per array, this one less than one). In numba's
simulator (NUMBA_ENABLE_CUDASIM=1) `xp` is numpy, and blocks are small, so that a few dozen rows
already make several blocks.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import tempfile
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import config, cuda, from_dtype, types

SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
if SIMULATED:
    xp: Any = np
    THREADS = 4  # per block; the simulator starts a Python thread for each
    TILE = 16
else:
    import cupy
    from cupy_backends.cuda.api import driver

    xp = cupy
    THREADS = 256
    TILE = 512  # adjacent leaves that one block holds in shared memory


SMALL_BYTES = 1 << 28  # smaller requests skip the query for free memory, which takes time
OFFSETS = 8 * np.arange(512, dtype=np.int64)  # in bytes, of a kernel's arguments of 8 bytes each


class Kernel:
    """A kernel, compiled on its first call with each combination of argument types.

    Arguments are C-contiguous device arrays, Python numbers, and tuples of these, which may be
    empty. Closure variables that a factory sets are compile-time constants. Branches that they rule
    out are not compiled, so these need not fit the argument types. No fast-math: the same input
    gives the same bits.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._simulated = cuda.jit(function) if SIMULATED else None
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    def __call__(self, n_blocks: int, *arguments: Any, together: bool = False) -> None:
        """Run n_blocks blocks of THREADS threads; n_blocks may be 0.

        together: the blocks wait for each other, so their number is limited to what the device can
        run at once.
        """
        if n_blocks == 0:
            return
        if self._simulated is not None:
            _go(partial(_simulate, self._simulated, 1 if together else n_blocks, arguments))
            return
        flat: list[int] = []
        kind = self._hand_over(arguments, flat)
        function = self._compiled.get(kind) or self._compile(kind)
        values = np.array(flat, np.int64)
        addresses = OFFSETS[: values.size] + values.ctypes.data
        handle, at = function.kernel.ptr, addresses.ctypes.data
        if together:
            most = driver.occupancyMaxActiveBlocksPerMultiprocessor(handle, THREADS, 0)
            n_blocks = min(n_blocks, most * cupy.cuda.Device().attributes["MultiProcessorCount"])
        kept = (values, addresses, arguments)
        _go(partial(_start, handle, n_blocks, at, together, kept))

    def _hand_over(self, values: tuple[Any, ...], flat: list[int]) -> tuple[Any, ...]:
        """Append the arguments to `flat` in numba's calling convention; return their types."""
        kind: list[Any] = []
        for value in values:
            if isinstance(value, int):  # includes bool
                kind.append(int)
                flat.append(value)
            elif isinstance(value, float):
                kind.append(float)
                flat.append(int(np.float64(value).view(np.int64)))
            elif isinstance(value, tuple):
                kind.append(self._hand_over(value, flat))
            elif not value.flags.c_contiguous:
                raise ValueError(
                    f"{self.function.__name__} needs C-contiguous arrays, got one that is not"
                )
            else:  # two unused words, size, item size, address, shape, strides
                kind.append((value.dtype, value.ndim))
                flat += (0, 0, value.size, value.itemsize, value.data.ptr)
                flat += value.shape
                flat += value.strides
        return tuple(kind)

    def _compile(self, kind: tuple[Any, ...]) -> Any:
        """The compiled kernel for these argument types, loaded on the device."""
        with self._lock:
            if kind not in self._compiled:
                path = self._translated(kind)
                (name,) = re.findall(r"\.entry\s+([\w$]+)", path.read_text())
                found = cupy.RawModule(path=str(path)).get_function(name)
                _ = found.kernel  # loads it
                self._compiled[kind] = found
            return self._compiled[kind]

    def _translated(self, kind: tuple[Any, ...]) -> Path:
        """Path of the kernel's PTX, from the cache folder or compiled now."""
        capability = divmod(int(cupy.cuda.Device().compute_capability), 10)
        inside = [
            getattr(getattr(value, "py_func", value), "__name__", repr(value))
            for value in (cell.cell_contents for cell in self.function.__closure__ or ())
        ]
        facts = (_sources(), _versions(), capability, kind, inside)
        name = self.function.__qualname__.replace("<locals>.", "")
        digest = hashlib.sha256(repr((self.function.__module__, name, facts)).encode()).hexdigest()[
            :20
        ]
        path = _cache_folder() / f"{name}-{digest}.ptx"
        if not path.exists():
            text, _ = cuda.compile(
                self.function,
                types.void(*(_type(k) for k in kind)),
                device=False,
                abi="numba",
                cc=capability,
                output="ptx",
            )
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                file.write(text.decode() if isinstance(text, bytes) else text)
            os.chmod(file.name, 0o644)  # readable by others, like numba's own cache
            os.replace(file.name, path)  # atomic: other processes never see a partial file
        return path


class Recording:
    """The kernel launches of `work`, to be repeated on the same arrays.

    `work` must consist of kernels only: what CuPy computes itself is not recorded. The arguments
    are kept, so that a repeated launch takes a tenth of the time needed to convert them.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._launches: list[Callable[[], None]] = []
        _active.recording = self._launches
        try:
            work()
        finally:
            _active.recording = None

    def again(self) -> None:
        """Repeat all launches in the same order."""
        for one in self._launches:
            one()


class _Active(threading.local):
    """The recording in progress on this thread, if any."""

    recording: list[Callable[[], None]] | None = None


_active = _Active()


def _go(one: Callable[[], None]) -> None:
    """Launch, and record the launch if a recording is in progress."""
    if _active.recording is not None:
        _active.recording.append(one)
    one()


def _start(handle: int, n_blocks: int, at: int, together: bool, kept: Any) -> None:
    """Launch a kernel; `kept` keeps its arguments alive until then."""
    stream = cupy.cuda.get_current_stream().ptr
    shape = (n_blocks, 1, 1, THREADS, 1, 1)
    if together:
        driver.launchCooperativeKernel(handle, *shape, 0, stream, at)
    else:
        driver.launchKernel(handle, *shape, 0, stream, at, 0)


def _simulate(function: Any, n_blocks: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel in the simulator."""
    function[n_blocks, THREADS](*arguments)


@cache
def _sources() -> str:
    """Digest of all source files that kernels are made of."""
    folder = Path(__file__).parent
    paths = [*sorted(folder.glob("*.py")), folder.parent / "messages.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """Versions of the compilers."""
    names = ("numba", "numba-cuda", "llvmlite")
    found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    return tuple(str(found.get(name)) for name in names)


@cache
def _cache_folder() -> Path:
    """Folder for compiled kernels: the first writable one, or a new temporary folder.

    NUMBA_CACHE_DIR if it is set, otherwise __pycache__ beside the sources, then the user's cache
    folder.
    """
    kept = config.CACHE_DIR  # type: ignore[attr-defined]
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = [Path(__file__).parent / "__pycache__", Path(caches) / "triegp"]
    for folder in [Path(kept)] if kept else places:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return Path(tempfile.mkdtemp(prefix="triegp-"))


def _type(kind: Any) -> Any:
    """The numba type for an argument type of `Kernel._hand_over`."""
    if kind in (int, float):
        return types.int64 if kind is int else types.float64
    if kind and isinstance(kind[0], np.dtype):
        return types.Array(from_dtype(kind[0]), kind[1], "C")
    return types.BaseTuple.from_types([_type(one) for one in kind])  # type: ignore[no-untyped-call]


def kernel(function: Callable[..., None]) -> Kernel:
    """Decorator: make a kernel of a function."""
    return Kernel(function)


def device(function: Any) -> Any:
    """Decorator: compile a function that kernels call."""
    return cuda.jit(device=True)(function)


def launch(function: Kernel, n_items: int, *arguments: Any) -> None:
    """Run a kernel with at least one thread per item."""
    function(-(-n_items // THREADS), *arguments)


def to_device(array: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """An array in device memory: itself if it is there and contiguous, otherwise a copy."""
    there = xp.ascontiguousarray(xp.asarray(array, dtype=dtype))
    if SIMULATED and not there.flags.writeable:  # the simulator writes back read-only arguments
        return there.copy()
    return there


def to_host(array: Any) -> npt.NDArray[Any]:
    """The array in host memory."""
    return array if isinstance(array, np.ndarray) else array.get()


def argsort(values: Any) -> Any:
    """Indices that sort the values in ascending order, stably."""
    return xp.argsort(values, kind="stable")


def finish() -> None:
    """Wait for the current stream: what it has written can then be read from other streams."""
    if not SIMULATED:
        cupy.cuda.get_current_stream().synchronize()


def current_device() -> int:
    """Number of the current CUDA device."""
    return 0 if SIMULATED else int(cupy.cuda.runtime.getDevice())


def free_bytes() -> int:
    """Device memory in bytes that is free or held unused by CuPy's memory pool."""
    if SIMULATED:
        return 1 << 33
    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())
