"""numba's CUDA simulator, made fit for many small kernels. Imported only where it is on.

It runs a thread of Python for each thread of a block and polls them. With the interpreter's usual
turns of 5 ms a kernel takes ten times as long as with short ones; and with short ones two threads
that come to a shared array at once can each get one of their own, unless one waits for the other.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.cuda.simulator import kernelapi
from numba.np.numpy_support import as_dtype

TURN = 1e-4  # seconds
_lock = threading.Lock()


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


kernelapi.FakeCUDAShared.array = _shared_array
