"""numba's CUDA simulator, made fit for many small kernels. Imported only where it is on.

It runs a thread of Python for each thread of a block and polls them. With the interpreter's usual
turns of 5 ms a kernel takes ten times as long as with short ones. With short ones two threads that
come to a shared array at once can each get one of their own, unless one waits for the other; and
one that leaves a function takes `cuda` away from those still in it, unless the last does that.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.simulator import kernel, kernelapi
from numba.np.numpy_support import as_dtype

TURN = 1e-4  # seconds
_lock = threading.Lock()
_inside: dict[int, tuple[int, dict[str, Any]]] = {}  # by module: threads in its functions, its own


@contextmanager
def simulation() -> Iterator[None]:
    """Around a launch: short turns; and overflow is no error, as on a card."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.setswitchinterval(usual)


def _shared_array(self: Any, shape: Any, dtype: Any, alignment: Any = None) -> Any:
    """The block's array of this line of source, made by whoever comes first."""
    del alignment  # memory of the host has it
    caller = sys._getframe(1)
    line = (caller.f_code.co_filename, caller.f_lineno)
    with _lock:
        if line not in self._allocations:
            self._allocations[line] = np.empty(shape, as_dtype(dtype))
        return self._allocations[line]


@contextmanager
def _swapped_cuda_module(function: Any, stand_in: Any) -> Iterator[None]:
    """The simulator's `cuda` in a function's module, from the first that comes to the last."""
    names = function.__globals__
    with _lock:
        count, there = _inside.get(id(names), (0, {}))
        if not count:
            there = {name: value for name, value in names.items() if value is cuda}
            names.update(dict.fromkeys(there, stand_in))
        _inside[id(names)] = (count + 1, there)
    try:
        yield
    finally:
        with _lock:
            count, there = _inside[id(names)]
            _inside[id(names)] = (count - 1, there)
            if count == 1:
                names.update(there)


kernelapi.FakeCUDAShared.array = _shared_array
kernel.swapped_cuda_module = _swapped_cuda_module
