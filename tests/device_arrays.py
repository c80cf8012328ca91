"""Stand-ins for arrays on a device: numpy memory inside, the interface of CuPy's arrays outside.

Numpy's functions and operators work on them and give the same kind. Mixing them with numpy arrays
raises TypeError, and so does implicit conversion to one.
"""

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class DeviceArray(NDArrayOperatorsMixin):
    """Behaves as a CuPy array: `get` copies it to the host."""

    def __init__(self, array):
        self._array = np.asarray(array)

    dtype = property(lambda self: self._array.dtype)
    shape = property(lambda self: self._array.shape)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)

    def get(self):
        return self._array.copy()

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return wrap(getattr(ufunc, method)(*map(inner, inputs), **kwargs))

    def __array_function__(self, function, types, args, kwargs):
        return wrap(function(*map(inner, args), **{k: inner(v) for k, v in kwargs.items()}))

    def __getitem__(self, key):
        return wrap(self._array[inner(key)])

    def __float__(self):
        return float(self._array)

    def __int__(self):
        return int(self._array)

    def __bool__(self):
        return bool(self._array)

    def __format__(self, spec):
        return format(self._array[()], spec)

    def any(self):
        return wrap(self._array.any())

    def max(self):
        return wrap(self._array.max())

    def sum(self):
        return wrap(self._array.sum())


def inner(value):
    if isinstance(value, DeviceArray):
        return value._array
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value


def wrap(value):
    return DeviceArray(value) if isinstance(value, np.ndarray | np.generic) else value


class Dlpack:
    """Host memory that says it lies on CUDA device 3, as any library's array may.

    It can be copied to the host and made from there: by DLPack and by the array API's namespace.
    """

    def __init__(self, array, device="cuda:3"):
        self._array, self.device = np.asarray(array), device
        self.shape = self._array.shape

    def __array__(self, *args, **kwargs):
        raise TypeError("this array is not in the host's memory")

    def __dlpack_device__(self):
        return (2, 3)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device != (1, 0):
            raise BufferError("no host can read this")
        return self._array.copy().__dlpack__()

    def __array_namespace__(self, api_version=None):
        return DlpackNamespace


class DlpackNamespace:
    @staticmethod
    def asarray(values, *, device):
        return Dlpack(values, device)


class OutOfMemoryError(MemoryError):
    """What CuPy raises if the device has no memory left."""

    __module__ = "cupy.cuda.memory"


class CudaError(RuntimeError):
    """What CuPy raises if a call of CUDA fails."""

    __module__ = "cupy_backends.cuda.api.driver"
