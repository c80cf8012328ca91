"""Compiler options of this engine's kernels: no GIL, cached on disk, IEEE division, no fast-math.

Kernels run on our own thread pool (`threads`), not on numba's threading layer. The same input gives
the same bits; only dot products may be summed in another order on another processor, as by BLAS. If
numba finds no folder for its cache, kernels are compiled again in every process. numba is imported
when the first kernel is called: a model that is served without compiled kernels does not need it.
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread  # noqa: F401  (its hook for forks comes before ours, see below)
import logging  # noqa: F401
import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any

from triegp.imports import LOADING, import_once

_held: list[list[Any]] = []  # locks that a fork in progress holds
_pressed: list[bool] = []  # Ctrl-C that came while a fork waited for them


def _hold_locks() -> None:
    """Wait until no thread imports libraries, makes a dispatcher or compiles.

    Otherwise a forked child could never do that: its copy of a lock would be held by a thread that
    the child does not have. Python ignores exceptions of this function, so Ctrl-C is kept for the
    end of the fork.
    """
    held: list[Any] = []
    _held.append(held)
    for find in (lambda: LOADING, _compiler_lock):  # imports of numba take the lock of its compiler
        lock = find()
        while lock is not None and lock not in held:
            try:
                lock.acquire()
                held.append(lock)
            except KeyboardInterrupt:
                _pressed.append(True)


def _compiler_lock() -> Any:
    """The lock of numba's compiler; None if numba is not loaded."""
    module = sys.modules.get("numba.core.compiler_lock")
    return getattr(module, "global_compiler_lock", None)


def _release_locks() -> None:
    for lock in reversed(_held.pop()):
        lock.release()


def _release_in_parent() -> None:
    _release_locks()
    if _pressed:
        _pressed.clear()
        threading.Timer(0.01, _thread.interrupt_main).start()  # here it would be ignored, too


def _release_in_child() -> None:
    _pressed.clear()
    _release_locks()


# Locks are taken in the reverse order of registration: that of `logging`, which numba's import
# takes while `LOADING` is held, must come after ours. Hence the import of logging above.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_locks, after_in_parent=_release_in_parent, after_in_child=_release_in_child
    )


class Kernel:
    """A function that is compiled when it is first called, or by a kernel that calls it.

    Attributes
    ----------
    py_func : callable
        The function itself.
    targetoptions : dict
        Options of numba. numba looks here for those of a function that it inlines.
    """

    def __init__(self, kernel: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, kernel)
        self.py_func = kernel
        self.targetoptions = {
            "nogil": True,
            "error_model": "numpy",
            "no_cfunc_wrapper": True,  # for C code that calls kernels: there is none
            **options,
        }
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Compile for the types of the arguments if that has not been done, and run."""
        return (self._dispatcher or self.dispatcher)(*arguments)

    @property
    def dispatcher(self) -> Any:
        """What numba makes of the function, once.

        The one lock for this is that of numba's compiler. With another one, a thread that compiles
        a kernel could wait for one that makes a dispatcher, which waits for the compiler.
        """
        if self._dispatcher is not None:
            return self._dispatcher
        numba = _numba()
        with numba.core.compiler_lock.global_compiler_lock:
            if self._dispatcher is None:
                self._dispatcher = self._make(numba.njit)
            return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What numba takes the function for if another kernel calls it."""
        return self.dispatcher._numba_type_

    def _make(self, njit: Any) -> Any:
        try:
            return njit(cache=True, **self.targetoptions)(self.py_func)
        except RuntimeError:  # no folder for the cache
            _warn_no_cache()
            return njit(**self.targetoptions)(self.py_func)


def jit(kernel: Callable[..., Any]) -> Any:
    """Compile a kernel on first use, and cache it if numba finds a folder that it can write to."""
    return Kernel(kernel)


def dot_product(kernel: Callable[..., Any]) -> Any:
    """Compile a sum in any order, so that vectors are added: 2 to 6 times as fast."""
    return Kernel(kernel, fastmath={"reassoc"})


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
    return import_once("numba")
