"""One thread for BLAS while many small fits run side by side.

An optimiser's steps are algebra with vectors of q numbers: too small to share out, and BLAS threads
that wait for each other take ten times as long as the work, and the cores from other fits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

_lock = threading.Lock()
_users = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS runs on one thread inside; the last to leave puts back what was there."""
    global _users, _limits
    with _lock:
        _users += 1
        if _limits is None:
            _limits = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
