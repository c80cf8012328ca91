"""How much memory a model may take."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import resource

CONTAINER_LIMITS = (  # of memory in bytes, versions 2 and 1 of cgroups
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def check_memory(n_bytes: int) -> None:
    """Raise MemoryError if a model of so many bytes exceeds the memory that this process may have.

    A file is much smaller than its model. Without this, an edited file could ask for any amount.
    Nothing is checked on Windows, which does not tell.
    """
    if sys.platform == "win32":
        return
    largest = min(_memory_limits())
    if n_bytes > largest:
        raise MemoryError(
            f"the model needs about {n_bytes / 1e9:.3g} GB of memory, this machine has "
            f"{largest / 1e9:.3g} GB for this process"
        )


def _memory_limits() -> Iterator[int]:
    """Bytes of memory of the machine, of `ulimit -v`, and of the container, if these are set."""
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # another version of cgroups, or no limit: "max"
            yield int(path.read_text())
