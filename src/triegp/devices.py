"""Arrays that lie on a device: brought to where they are worked on, results given back in kind.

Estimators encode rows on the host, so that is where features, targets and weights go; what an
engine is given directly goes to its own memory (`Engine.hold`). Either way results return to the
device that the rows came from, as the same kind of array, and to the host if they came from there.
Arrays of the host (numpy, pandas, polars, lists, CPU tensors) pass as they are. A library is
imported only where an object of its own, or one that nothing else can read, has come.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

# Of DLPack, device types whose memory the host reads: its own, and pinned for CUDA and ROCm.
HOST_DEVICES = (1, 3, 11)


def on_device(array: Any) -> bool:
    """Whether it is an array in a device's memory, which the host can't read."""
    kind = type(array)
    if hasattr(kind, "__dlpack_device__"):
        try:
            return int(array.__dlpack_device__()[0]) not in HOST_DEVICES
        except Exception:  # it can't tell: then it is for whoever reads it to say why
            return False
    return hasattr(kind, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """A numpy copy of an array on a device; anything else as it is."""
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
                pass  # a library that does not copy for others
    return _cupy(array).asarray(array).get()


def adopt(array: Any) -> Any:
    """An array of another library on a device as one that CuPy reads; anything else as it is."""
    if not on_device(array) or _library(array) == "cupy":
        return array
    if _library(array) == "torch":
        return array.detach()
    if hasattr(type(array), "__cuda_array_interface__"):
        return array
    return _cupy(array).from_dlpack(array)


def like(values: Any, array: Any) -> Any:
    """Values (numpy's, or an engine's own) as the same kind and on the same device as another.

    Whatever lies on the host takes them to the host, as numpy arrays. Where the other array is of a
    kind that says nothing of how it is made, the values come as a CuPy array.
    """
    if not on_device(array):
        return to_host(values)
    library = _library(array)
    if library == "cupy":
        return _on_card(array.device.id, values)
    if library == "torch":
        return importlib.import_module("torch").as_tensor(values, device=array.device)
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().asarray(to_host(values), device=array.device)
    return _on_card(_cupy(array).asarray(array).device.id, values)


def _read_dlpack(array: Any) -> npt.NDArray[Any]:
    return np.from_dlpack(_CopyOnHost(array))


class _CopyOnHost:
    """Exports another's memory as a copy in the host's; numpy asks its exporters for nothing."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _library(array: Any) -> str:
    """Name of the package that its type comes from."""
    return type(array).__module__.partition(".")[0]


def _cupy(array: Any) -> Any:
    """CuPy, to read an array of some other library."""
    try:
        return importlib.import_module("cupy")
    except ImportError:
        raise TypeError(
            f"an array of type {type(array).__name__} on a device can only be read with CuPy, "
            "which is not installed: pip install 'triegp[cuda]', or copy it to the host"
        ) from None


def _on_card(device: int, values: npt.NDArray[Any]) -> Any:
    cupy = importlib.import_module("cupy")
    with cupy.cuda.Device(device):
        return cupy.asarray(values)
