"""One run of training: its random numbers, threads, clock, progress and engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.models.jobs import Stopwatch

Progress = Callable[[str, int, int], None]  # (stage, done, total)


def silent(stage: str, done: int, total: int) -> None:
    """Progress that is shown to nobody."""


@dataclass(frozen=True, eq=False)
class Run:
    """What one training has to itself.

    Attributes
    ----------
    rng : Generator
        Source of random numbers.
    n_threads : int
        Threads, 1 or more; the result does not depend on it.
    watch : Stopwatch
        Says when to end with the best found so far, and remembers Ctrl-C.
    progress : callable (stage, done, total)
        Called from the thread that trains.
    keep : bool
        Whether Ctrl-C keeps the best found so far; otherwise KeyboardInterrupt is raised.
    engine : {"auto", "cpu", "cuda"}
        Where to train, for `choose`.
    """

    rng: np.random.Generator
    n_threads: int
    watch: Stopwatch
    progress: Progress = silent
    keep: bool = True
    engine: str = "cpu"

    def raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C, unless the best found so far is kept."""
        if self.watch.interrupted and not self.keep:
            raise KeyboardInterrupt


def progress_bars(verbose: int) -> Progress:
    """Progress as one tqdm bar per stage; silent for verbose = 0."""
    if not verbose:
        return silent
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
