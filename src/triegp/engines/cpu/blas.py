"""One BLAS thread inside a block of code, whichever thread runs the block.

threadpoolctl finds the libraries. Since its version 3.7, only the thread that first sets a limit of
OpenBLAS can change it, and calls from other threads do nothing. So a library with one limit for the
whole process is called directly, and its users are counted here.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from triegp.imports import scipy


@dataclass(frozen=True)
class _Library:
    """A BLAS library.

    Attributes
    ----------
    shared : bool
        Whether one limit applies to all threads of the process; if not, each thread has its own.
    read : callable () -> int
        The limit.
    limit : callable (int) -> Any
        Sets the limit.
    """

    shared: bool
    read: Callable[[], int]
    limit: Callable[[int], Any]


class _Users:
    """Threads inside a block, and the limits that hold outside."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth: dict[int, int] = {}  # number of nested blocks, by thread
        self.before: list[int] | None = None  # limits of the shared libraries


_users = _Users()
_here = threading.local()  # .before: limits of the other libraries, which are the thread's own


def _after_fork() -> None:
    """Keep only the thread that forked: the others do not exist in the child.

    The limits are restored when the child leaves its first block. Restoring them here would start
    BLAS threads in every child.
    """
    global _users
    me, old = threading.get_ident(), _users
    _users = _Users()
    _users.before = old.before
    if me in old.depth:
        _users.depth[me] = old.depth[me]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread inside; the last user to leave restores the previous limit.

    The optimiser's vectors have q entries, too few to share between threads. BLAS threads that wait
    for each other would take ten times as long as the work, and cores from the other members.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    me = threading.get_ident()
    shared, own = _libraries()
    with _users.lock:
        nested = _users.depth.get(me, 0)
        if _users.before is None:
            _users.before = [library.read() for library in shared]
        if not _users.depth:
            for library in shared:
                library.limit(1)
        _users.depth[me] = nested + 1
    if not nested:
        _here.before = [library.read() for library in own]
        for library in own:
            library.limit(1)


def _leave() -> None:
    me = threading.get_ident()
    shared, own = _libraries()
    with _users.lock:
        nested = _users.depth.pop(me) - 1
        if nested:
            _users.depth[me] = nested
        elif not _users.depth and _users.before is not None:
            for library, before in zip(shared, _users.before, strict=True):
                library.limit(before)
            _users.before = None
    if not nested:
        for library, before in zip(own, _here.before, strict=True):
            library.limit(before)


@cache
def _libraries() -> tuple[list[_Library], list[_Library]]:
    """The BLAS libraries of this process, found once: the search reads all memory maps.

    First those with one limit for the process, then those with a limit for each thread.
    """
    _ = scipy.linalg  # it comes with a library of its own

    found = [_library(part) for part in ThreadpoolController().lib_controllers]
    blas = [library for library in found if library is not None]
    return [one for one in blas if one.shared], [one for one in blas if not one.shared]


def _library(controller: Any) -> _Library | None:
    """The library of one of threadpoolctl's controllers, None if it is not BLAS."""
    if controller.user_api != "blas":
        return None
    layer = getattr(controller, "threading_layer", "unknown")
    if controller.internal_api == "mkl" or layer == "openmp":
        return _Library(False, controller.get_num_threads, controller.set_num_threads)
    if controller.internal_api == "openblas":
        own = ctypes.CDLL(controller.filepath)
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            names = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            read, limit = (getattr(own, name, None) for name in names)
            if read is not None and limit is not None:
                return _Library(True, read, limit)
    return _Library(True, controller.get_num_threads, controller.set_num_threads)
