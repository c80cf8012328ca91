"""Context of one training: random numbers, threads, clock, progress and engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.models.jobs import Stopwatch

Progress = Callable[[str, int, int], None]  # (stage, done, total)


def silent(stage: str, done: int, total: int) -> None:
    """Progress callback that shows nothing."""


@dataclass(frozen=True, eq=False)
class Run:
    """Context of one training.

    Attributes
    ----------
    rng : Generator
        Source of random numbers.
    n_threads : int
        Number of threads, >= 1; the result does not depend on it.
    watch : Stopwatch
        When it stops, training ends with the best result so far. It also records Ctrl-C.
    progress : callable (stage, done, total)
        Called in the thread that trains.
    keep : bool
        Whether Ctrl-C keeps the best found so far; otherwise KeyboardInterrupt is raised.
    engine : {"auto", "cpu", "cuda"}
        Where to train, as `triegp.engines.choose` takes it.
    """

    rng: np.random.Generator
    n_threads: int
    watch: Stopwatch
    progress: Progress = silent
    keep: bool = True
    engine: str = "cpu"

    def raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed and `keep` is False."""
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
