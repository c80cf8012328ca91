"""Attributes that are computed on first use, by one thread, and again in a forked child.

`functools.cached_property` has one lock for all instances of a class up to Python 3.11, which a
forked child may never get, and none after that: then each thread computes the value.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar, overload

from triegp.engines.cpu.threads import on_pool

Value = TypeVar("Value")

_making: dict[tuple[int, str], threading.RLock] = {}  # by instance and attribute, while computed


def _forget_threads() -> None:
    """In a forked child, the threads that computed something are gone."""
    _making.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class computed_once(cached_property[Value]):  # noqa: N801  (it is used as a decorator)
    """A method that becomes an attribute: its value, computed on first use.

    Threads that need the same value wait for the first of them. A thread of the pool does not wait:
    the first may wait for the pool. It computes the value itself, which has the same bits.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        super().__init__(compute)
        self.name = compute.__name__

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        if on_pool():
            return self._value(instance)
        key = id(instance), self.name
        with _making.setdefault(key, threading.RLock()):
            try:
                return self._value(instance)
            finally:
                _making.pop(key, None)

    def _value(self, instance: Any) -> Value:
        """The value that is known, or that is computed now; the first one stays."""
        known = instance.__dict__
        if self.name in known:
            found: Value = known[self.name]
            return found
        return known.setdefault(self.name, self.func(instance))  # type: ignore[no-any-return]
