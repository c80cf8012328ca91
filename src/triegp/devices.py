"""Arrays on a device (GPU): copies to the host and back.

Estimators encode rows on the host, so they copy features, targets and weights there. Arrays passed
directly to an engine are copied to the engine's own memory (`Engine.hold`). In both cases the
results are returned on the device of the input rows, as the same kind of array. If the input was on
the host (numpy, pandas, polars, lists, CPU tensors), it is used unchanged and the results are on
the host. An array library is imported only if an array of that library was passed in, or if no
other library can read the array.

Streams: models are trained on the default stream (`device_work`). Otherwise work is given to CuPy's
current stream, as CuPy does it. Arrays of other libraries are read after what the current stream of
that library was given, and arrays for them are complete when they are returned.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

# DLPack device types that the host can read: CPU, pinned CUDA memory, pinned ROCm memory.
HOST_DEVICES = (1, 3, 11)

ENGINE = "triegp.engines.cuda"  # the module that uses a device

# Parts of the messages of CUDA and its libraries that say that there is no memory.
EXHAUSTED = ("OUT_OF_MEMORY", "MemoryAllocation", "ALLOC_FAILED", "out of memory")


def on_device(array: Any) -> bool:
    """Return True if `array` lies in device memory that the host can't read."""
    kind = type(array)
    if hasattr(kind, "__dlpack_device__"):
        try:
            return int(array.__dlpack_device__()[0]) not in HOST_DEVICES
        except Exception:  # no device reported: whatever reads the array raises its own error
            return False
    return hasattr(kind, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """Return a numpy copy of an array on a device; return anything else unchanged."""
    if not on_device(array):
        return array
    library = _library(array)
    if library == "cupy":
        return array.get()
    if library == "torch":
        return array.detach().cpu().numpy()
    for has, read in (("__dlpack__", _read_dlpack), ("__array__", np.asarray)):
        if hasattr(array, has):
            try:
                return read(array)
            except (TypeError, ValueError, BufferError, RuntimeError):
                pass  # the library does not export a host copy: try the next way
    return _cupy(array).asarray(array).get()


def adopt(array: Any) -> Any:
    """Return an array on a device in a form that CuPy reads; return anything else unchanged."""
    if not on_device(array) or _library(array) == "cupy":
        return array
    if _library(array) == "torch":  # CuPy does not wait for PyTorch's streams
        importlib.import_module("torch").cuda.current_stream(array.device).synchronize()
        return array.detach()
    if hasattr(type(array), "__cuda_array_interface__"):
        return array
    return _cupy(array).from_dlpack(array)


def like(values: Any, array: Any) -> Any:
    """Return `values` as the same kind of array as `array`, on the same device.

    `values` is a numpy array or an array in an engine's memory. If `array` is on the host, the
    result is a numpy array. If `array` is on a device but its library is unknown and has no
    `__array_namespace__`, the result is a CuPy array.
    """
    if not on_device(array):
        return to_host(values)
    library = _library(array)
    if library == "cupy":
        return _on_card(array.device.id, values)
    if library == "torch":
        return _tensor(values, array.device)
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().asarray(to_host(values), device=array.device)
    return _on_card(_cupy(array).asarray(array).device.id, values)


@contextmanager
def device_work() -> Iterator[None]:
    """Run a block on the default stream, with all of its work done at the end.

    Threads that the block starts use the default stream, too, and what it makes can then be read
    from any stream. It begins when the current stream has done what it was given.

    Raises MemoryError if a device runs out of memory, whatever the library that says so. Arrays of
    the block are then let go, even while the error is being handled.
    """
    try:
        with _default_stream():
            yield
    except Exception as error:
        if not is_exhausted(error):
            raise
        traceback.clear_frames(error.__traceback__)
        text = " ".join(str(error).split())
        raise MemoryError(
            f'the device is out of memory: use fewer rows or engine="cpu" ({text})'
        ) from error


def is_exhausted(error: BaseException) -> bool:
    """Whether CuPy, or CUDA called by CuPy, says that the device has no memory left."""
    if _library(error) not in ("cupy", "cupy_backends", "cupyx"):
        return False
    return isinstance(error, MemoryError) or any(part in str(error) for part in EXHAUSTED)


@contextmanager
def _default_stream() -> Iterator[None]:
    """Make the default stream the current one, and wait for it at the end.

    Nothing is done unless CuPy is loaded and there is a device, nor at the end unless the CUDA
    engine is loaded: waiting would make a context on the device.
    """
    cupy = sys.modules.get("cupy")
    current = cupy.cuda.get_current_stream() if cupy and cupy.cuda.is_available() else None
    if cupy is not None and current is not None and current.ptr:
        current.synchronize()
        with cupy.cuda.Stream.null:
            yield
    else:
        yield
    cupy = sys.modules.get("cupy")  # the block may have been the first to need it
    if cupy is not None and ENGINE in sys.modules and cupy.cuda.is_available():
        cupy.cuda.Stream.null.synchronize()


def _tensor(values: Any, device: Any) -> Any:
    """A tensor with these values, in PyTorch's own memory."""
    torch = importlib.import_module("torch")
    if not on_device(values):
        return torch.as_tensor(values, device=device)
    importlib.import_module("cupy").cuda.get_current_stream().synchronize()
    # CuPy would use the memory again while PyTorch's stream still reads it: hence the copy.
    out = torch.as_tensor(values, device=device).clone()
    torch.cuda.current_stream(device).synchronize()
    return out


def _read_dlpack(array: Any) -> npt.NDArray[Any]:
    return np.from_dlpack(_CopyOnHost(array))


class _CopyOnHost:
    """Export an array through DLPack as a copy on the host.

    `np.from_dlpack` does not request such a copy itself.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _library(array: Any) -> str:
    """Return the name of the package that defines the array's type."""
    return type(array).__module__.partition(".")[0]


def _cupy(array: Any) -> Any:
    """Import CuPy to read an array of another library; raise TypeError if it is missing."""
    try:
        return importlib.import_module("cupy")
    except ImportError:
        raise TypeError(
            f"an array of type {type(array).__name__} on a device can only be read with CuPy, "
            "which is not installed: pip install 'triegp[cuda]', or copy the array to the host"
        ) from None


def _on_card(device: int, values: npt.NDArray[Any]) -> Any:
    cupy = importlib.import_module("cupy")
    with cupy.cuda.Device(device):
        found = cupy.asarray(values)
        stream = cupy.cuda.get_current_stream()
        if stream.ptr:  # models lie in memory of the default stream, which may be used again
            stream.synchronize()
        return found
