"""How a long fit shows where it is: a tqdm bar a stage where tqdm is installed, lines where not."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def progress_bar(verbose: int) -> Callable[[str, int, int], None]:
    """A function (stage, done, total) that shows progress; silent for verbose = 0."""
    if not verbose:
        return lambda stage, done, total: None
    if importlib.util.find_spec("tqdm") is None:
        return _print_stages()
    return _draw_bars()


def _draw_bars() -> Callable[[str, int, int], None]:
    from tqdm.auto import tqdm

    bars: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            bars[stage] = tqdm(total=total, desc=stage, leave=True)
        bar = bars[stage]
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return show


def _print_stages() -> Callable[[str, int, int], None]:
    last: dict[str, int] = {}

    def show(stage: str, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if last.get(stage) != tenth:
            last[stage] = tenth
            print(f"{stage}: {done} of {total}", file=sys.stderr)

    return show
