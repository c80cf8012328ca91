"""Ctrl-C at every instruction of some files, one after the other."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tools.pressing import Presser


def press_everywhere(
    work: Callable[[], Any], files: Sequence[str], functions: Sequence[str] = (), every: int = 1
) -> Iterator[tuple[str, Any]]:
    """Run `work` once per instruction, with Ctrl-C there: the place, and what came of it.

    What came of it is KeyboardInterrupt, or what `work` returned. every: only each so manieth.
    """
    if sys.version_info >= (3, 13):
        pytest.skip("Python 3.13 does not tell trace functions about every instruction")
    counter = Presser(files, functions=functions)
    counter.run(work)
    assert counter.n_seen > 0
    for k in range(1, counter.n_seen + 1, every):
        presser = Presser(files, at=k, functions=functions)
        try:
            found = presser.run(work)
        except KeyboardInterrupt:
            found = KeyboardInterrupt
        yield presser.place, found
