"""Compiler options of this engine's kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on our own thread pool (`threads`), not on numba's threading layer. Without fast-math
the same input gives the same bits. If numba finds no folder for its cache, kernels are compiled
again in every process. numba is imported when the first kernel is called: a model that is served
without compiled kernels does not need it.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (its hook for forks comes before ours, see below)
import logging  # noqa: F401
import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any

_making = threading.RLock()  # held while a dispatcher is made
_held: list[Any] = []  # locks that a fork in progress holds


def _hold_locks() -> None:
    """Wait until no thread compiles or loads numba.

    Otherwise a forked child could never compile a kernel: its copy of a lock would be held by a
    thread that the child does not have.
    """
    while True:
        compiling = _compiler_lock()  # first: a thread that compiles may make a dispatcher
        locks = [_making] if compiling is None else [compiling, _making]
        for lock in locks:
            lock.acquire()
        if _compiler_lock() is compiling:
            _held.append(locks)
            return
        _making.release()  # numba was loaded in the meantime


def _compiler_lock() -> Any:
    """The lock of numba's compiler; None if numba is not loaded."""
    module = sys.modules.get("numba.core.compiler_lock")
    return getattr(module, "global_compiler_lock", None)


def _release_locks() -> None:
    for lock in reversed(_held.pop()):
        lock.release()


# Locks are taken in the reverse order of registration: that of `logging`, which numba's import
# takes while `_making` is held, must come after ours. Hence the import of logging above.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_locks, after_in_parent=_release_locks, after_in_child=_release_locks
    )


class Kernel:
    """A function that is compiled when it is first called, or by a kernel that calls it.

    Attributes
    ----------
    py_func : callable
        The function itself.
    targetoptions : dict
        Options of numba. numba looks here for those of a function that it inlines.
    dispatcher : Any
        What numba makes of the function, on first use.
    """

    dispatcher: Any

    def __init__(self, kernel: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, kernel)
        self.py_func = kernel
        self.targetoptions = {"nogil": True, "error_model": "numpy", **options}

    def __call__(self, *arguments: Any) -> Any:
        """Compile for the types of the arguments if that has not been done, and run."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Make the dispatcher on first use.

        `cached_property` would hold a lock of its own, which a forked child may never get.
        """
        if name != "dispatcher":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _making:
            if "dispatcher" not in self.__dict__:  # otherwise another thread has made it
                self.dispatcher = self._make()
            return self.dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What numba takes the function for if another kernel calls it."""
        return self.dispatcher._numba_type_

    def _make(self) -> Any:
        njit = _numba().njit
        if "inline" in self.targetoptions:  # part of the kernels that call it
            return njit(**self.targetoptions)(self.py_func)
        try:
            return njit(cache=True, **self.targetoptions)(self.py_func)
        except RuntimeError:  # no folder for the cache
            _warn_no_cache()
            return njit(**self.targetoptions)(self.py_func)


def jit(kernel: Callable[..., Any]) -> Any:
    """Compile a kernel on first use, and cache it if numba finds a folder that it can write to."""
    return Kernel(kernel)


def inline(kernel: Callable[..., Any]) -> Any:
    """Compile a function as part of the kernels that call it."""
    return Kernel(kernel, inline="always")


@cache  # once
def _warn_no_cache() -> None:
    warnings.warn(
        "numba finds no folder for its cache, so kernels are compiled in every process: set "
        "NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=3,
    )


@cache
def _numba() -> Any:
    """The package numba."""
    import numba

    return numba
