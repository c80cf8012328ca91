"""Attributes that are computed on first use, without a lock."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  (it takes the place of that)
        """`functools.cached_property` as it is from Python 3.12 on: without a lock.

        In Python 3.11 one lock is shared by all instances, and held while a value is computed:
        models would wait for each other, and a child forked meanwhile would wait for ever. Here,
        threads that ask at the same time may compute a value twice; all of them get the first one
        that was ready.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            name, values = self.attrname, instance.__dict__
            return values[name] if name in values else values.setdefault(name, self.func(instance))
