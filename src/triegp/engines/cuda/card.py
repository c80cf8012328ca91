"""The seam between the kernels and the card: memory, sorting, compiling and launching.

On a card `xp` is CuPy: it holds memory, sorts, loads what numba compiled and launches it (numba's
own launch takes 25 microseconds an array, ours less than one). Under numba's simulator
(NUMBA_ENABLE_CUDASIM=1) `xp` is numpy, and blocks are small, so that a few dozen rows already make
several of them.
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
    THREADS = 4  # a block; the simulator starts a thread of Python for each
    TILE = 16
else:
    import cupy
    from cupy_backends.cuda.api import driver

    xp = cupy
    THREADS = 256
    TILE = 512  # adjacent leaves that one block holds in its shared memory


SMALL_BYTES = 1 << 28  # up to which nobody asks how much memory is free, which takes time
OFFSETS = 8 * np.arange(512, dtype=np.int64)  # of a kernel's arguments, all of 8 bytes


class Kernel:
    """A function for the card, compiled when it first meets arguments of a kind.

    Arguments are C-contiguous arrays on the card, Python's numbers, and tuples of them, which may
    be empty. What a factory gives a kernel by its closure is known when it is compiled, and
    branches that are never taken are not: they need not fit the arguments. No fast-math: the same
    input gives the same bits.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._simulated = cuda.jit(function) if SIMULATED else None
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    def __call__(self, n_blocks: int, *arguments: Any, together: bool = False) -> None:
        """Run n_blocks blocks of THREADS threads; none at all is allowed.

        together: the blocks wait for each other, so as few run as the card can hold at once.
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
        """Append arguments to `flat`, as numba hands them over; return their kinds."""
        kind: list[Any] = []
        for value in values:
            if isinstance(value, int):  # bool is one
                kind.append(int)
                flat.append(value)
            elif isinstance(value, float):
                kind.append(float)
                flat.append(int(np.float64(value).view(np.int64)))
            elif isinstance(value, tuple):
                kind.append(self._hand_over(value, flat))
            elif not value.flags.c_contiguous:
                raise ValueError(f"{self.function.__name__} takes C-contiguous arrays")
            else:  # two unused, sizes, address, shape, strides
                kind.append((value.dtype, value.ndim))
                flat += (0, 0, value.size, value.itemsize, value.data.ptr)
                flat += value.shape
                flat += value.strides
        return tuple(kind)

    def _compile(self, kind: tuple[Any, ...]) -> Any:
        with self._lock:
            if kind not in self._compiled:
                path = self._translated(kind)
                (name,) = re.findall(r"\.entry\s+([\w$]+)", path.read_text())
                found = cupy.RawModule(path=str(path)).get_function(name)
                _ = found.kernel  # loads it
                self._compiled[kind] = found
            return self._compiled[kind]

    def _translated(self, kind: tuple[Any, ...]) -> Path:
        """The kernel as PTX, from the folder where it was kept or made anew."""
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
            os.chmod(file.name, 0o644)  # others may read it, as numba's own
            os.replace(file.name, path)  # whole or not at all
        return path


class Recording:
    """The kernels that some work runs, to be run again on the same arrays.

    All the work does must be kernels: what CuPy does by itself is not seen. A kernel's arguments
    are kept, and are handed over in a tenth of the time that it takes to look at them.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._launches: list[Callable[[], None]] = []
        _active.recording = self._launches
        try:
            work()
        finally:
            _active.recording = None

    def again(self) -> None:
        """Run them in the same order."""
        for one in self._launches:
            one()


class _Active(threading.local):
    recording: list[Callable[[], None]] | None = None


_active = _Active()


def _go(one: Callable[[], None]) -> None:
    if _active.recording is not None:
        _active.recording.append(one)
    one()


def _start(handle: int, n_blocks: int, at: int, together: bool, kept: Any) -> None:
    """Launch what was handed over; `kept` is what must not go away meanwhile."""
    stream = cupy.cuda.get_current_stream().ptr
    shape = (n_blocks, 1, 1, THREADS, 1, 1)
    if together:
        driver.launchCooperativeKernel(handle, *shape, 0, stream, at)
    else:
        driver.launchKernel(handle, *shape, 0, stream, at, 0)


def _simulate(function: Any, n_blocks: int, arguments: tuple[Any, ...]) -> None:
    function[n_blocks, THREADS](*arguments)


@cache
def _sources() -> str:
    """Digest of all that kernels are made of."""
    folder = Path(__file__).parent
    paths = [*sorted(folder.glob("*.py")), folder.parent / "messages.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """Of the compilers."""
    names = ("numba", "numba-cuda", "llvmlite")
    found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    return tuple(str(found.get(name)) for name in names)


@cache
def _cache_folder() -> Path:
    """Where compiled kernels are kept: numba's folder, beside the sources, the user's own."""
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
    """What numba calls an argument of a kind."""
    if kind in (int, float):
        return types.int64 if kind is int else types.float64
    if kind and isinstance(kind[0], np.dtype):
        return types.Array(from_dtype(kind[0]), kind[1], "C")
    return types.BaseTuple.from_types([_type(one) for one in kind])  # type: ignore[no-untyped-call]


def kernel(function: Callable[..., None]) -> Kernel:
    """Make a kernel of a function."""
    return Kernel(function)


def device(function: Any) -> Any:
    """Compile a function that kernels call."""
    return cuda.jit(device=True)(function)


def launch(function: Kernel, n_items: int, *arguments: Any) -> None:
    """Run a kernel with at least one thread for each of n_items items."""
    function(-(-n_items // THREADS), *arguments)


def to_device(array: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """An array in the card's memory: as it is if it lies there, else copied."""
    there = xp.ascontiguousarray(xp.asarray(array, dtype=dtype))
    if SIMULATED and not there.flags.writeable:  # the simulator writes back what kernels only read
        return there.copy()
    return there


def to_host(array: Any) -> npt.NDArray[Any]:
    """An array in the host's memory."""
    return array if isinstance(array, np.ndarray) else array.get()


def argsort(values: Any) -> Any:
    """Places in rising order, equal values in their own order."""
    return xp.argsort(values, kind="stable")


def current_device() -> int:
    """Number of the device that everything goes to."""
    return 0 if SIMULATED else int(cupy.cuda.runtime.getDevice())


def free_bytes() -> int:
    """Memory of the card that is free, or held by CuPy for later."""
    if SIMULATED:
        return 1 << 33
    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())
