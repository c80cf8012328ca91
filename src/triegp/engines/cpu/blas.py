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
from weakref import WeakKeyDictionary

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


class _Block:
    """A block in which BLAS runs on one thread; it lives as long as the call that entered it."""


class _Users:
    """Blocks that threads are in, and the limits that hold outside."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # The thread of each block. Blocks that Ctrl-C ended without being left are gone.
        self.inside: WeakKeyDictionary[_Block, int] = WeakKeyDictionary()
        self.before: list[int] | None = None  # limits of the shared libraries


_users = _Users()
_here = threading.local()  # .before: limits of the other libraries, the thread's own, or None


def _after_fork() -> None:
    """Keep only the thread that forked: the others do not exist in the child.

    The limits are restored when the child leaves its first block. Restoring them here would start
    BLAS threads in every child.
    """
    global _users
    me, old = threading.get_ident(), _users
    _users = _Users()
    _users.before = old.before
    mine = [block for block, thread in old.inside.items() if thread == me]
    _users.inside.update((block, me) for block in mine)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread inside; the last user to leave restores the previous limit.

    The optimiser's vectors have q entries, too few to share between threads. BLAS threads that wait
    for each other would take ten times as long as the work, and cores from the other members.
    """
    block, left = _Block(), False
    pressed: BaseException | None = None
    try:
        _enter(block)
        yield
    finally:
        try:
            while not left:
                try:
                    _leave(block)
                    left = True
                except BaseException as error:  # Ctrl-C may come here, too: the limit would stay
                    pressed = error
        finally:
            if not left:  # another one came while the first was noted
                _leave(block)
        if pressed is not None:
            raise pressed


def _enter(block: _Block) -> None:
    me = threading.get_ident()
    shared, own = _libraries()
    with _users.lock:
        nested = me in _users.inside.values()
        if _users.before is None:
            _users.before = [library.read() for library in shared]
        first = not _users.inside
        _users.inside[block] = me
        if first:
            for library in shared:
                library.limit(1)
    if not nested:
        _here.before = [library.read() for library in own]
        for library in own:
            library.limit(1)


def _leave(block: _Block) -> None:
    """Undo what `_enter` did, also if it or an earlier call of this was interrupted."""
    me = threading.get_ident()
    shared, own = _libraries()
    with _users.lock:
        _users.inside.pop(block, None)
        nested = me in _users.inside.values()
        if not _users.inside and _users.before is not None:
            for library, before in zip(shared, _users.before, strict=True):
                library.limit(before)
            _users.before = None
    limits = getattr(_here, "before", None)
    if limits is not None and not nested:
        for library, limit in zip(own, limits, strict=True):
            library.limit(limit)
        _here.before = None


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
