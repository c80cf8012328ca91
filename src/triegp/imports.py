"""Libraries that are imported on first use, by one thread at a time; forks wait for them.

A child that is forked while another thread imports a module can never import that module: its copy
of the module's lock is held by a thread that the child does not have. So imports that happen in the
middle of the work hold `LOADING`, and so does a fork.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

LOADING = threading.RLock()  # held during imports on first use; taken before any other lock
_loaded: dict[str, Any] = {}


def import_once(name: str) -> Any:
    """The module of this name; the lock is taken only when it is first asked for."""
    if name not in _loaded:
        with LOADING:
            _loaded[name] = importlib.import_module(name)
    return _loaded[name]


class _Parts:
    """A package whose modules are imported when they are first used."""

    def __init__(self, package: str) -> None:
        self.__dict__["_package"] = package

    def __getattr__(self, part: str) -> Any:
        if part.startswith("__"):  # asked by copy, inspect and the like, not a module
            raise AttributeError(part)
        found = self.__dict__[part] = import_once(f"{self._package}.{part}")
        return found


if TYPE_CHECKING:
    import scipy as scipy
else:
    scipy = _Parts("scipy")
