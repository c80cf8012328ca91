"""Context of one training: random numbers, threads, clock, progress and engine."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from triegp.imports import import_once
from triegp.models.jobs import Pool, Stopwatch

REPEAT_SECONDS = 2.0  # a third Ctrl-C this soon after the second raises
FINISHING = (
    "\nCtrl-C: training ends, the model is being finished; again to finish at once",
    "\nCtrl-C: finishing at once; again within 2 seconds to give up",
)

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
    left_out : list of str
        What was left out or shortened to meet the time budget, or after Ctrl-C: phrases such as "3
        of 24 members". Every stage may append; `fit` puts them into its warning.
    pool : Pool or None
        Workers elsewhere that learn the orders of trees; None to use threads. Not used with a time
        budget, which this process has to keep.
    """

    rng: np.random.Generator
    n_threads: int
    watch: Stopwatch
    progress: Progress = silent
    keep: bool = True
    engine: str = "cpu"
    left_out: list[str] = field(default_factory=list)
    pool: Pool | None = None

    def raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed and `keep` is False."""
        if self.watch.interrupted and not self.keep:
            raise KeyboardInterrupt

    @property
    def last_watch(self) -> Stopwatch:
        """Watch for work without which there is no model; see `Stopwatch.last`."""
        return self.watch.last(2 if self.keep else 1)

    def leave_out(self, what: str) -> None:
        """Record what is left out; the same phrase is recorded once."""
        if what not in self.left_out:
            self.left_out.append(what)

    def tell(self, stage: str, total: int) -> Callable[[int], None]:
        """Progress of one stage, as a function of how much is done."""
        return lambda done: self.progress(stage, done, total)


@contextmanager
def keep_interrupts(watch: Stopwatch, verbose: int = 0) -> Iterator[None]:
    """Make Ctrl-C stop the watch instead of raising KeyboardInterrupt.

    The first ends training, the second also ends what has to finish. From the third on, Ctrl-C
    raises KeyboardInterrupt if it comes within 2 seconds of the one before; GivenUp if that is at
    the very beginning or end of the block, so the caller catches it, too. With verbose > 0, each
    is answered by a line on stderr.

    Does nothing outside the main thread, or if the program handles Ctrl-C in its own way.
    """
    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[float] = []

    def handle(number: int, frame: Any) -> None:
        pressed.append(watch.elapsed())
        if len(pressed) > 2 and pressed[-1] - pressed[-2] <= REPEAT_SECONDS:
            signal.signal(signal.SIGINT, before)  # this may interrupt the line that restores it
            raise GivenUp
        watch.interrupt()
        if verbose and _is_open(sys.stderr):
            # A write in progress may not be entered again, and Ctrl-C may have ended the program
            # that reads stderr, too; then the line is missing.
            with suppress(RuntimeError, OSError):
                print(FINISHING[min(len(pressed), 2) - 1], file=sys.stderr, flush=True)

    before = signal.default_int_handler
    try:
        signal.signal(signal.SIGINT, handle)
        yield
    except GivenUp:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)


class GivenUp(BaseException):
    """Ctrl-C that nothing on the way may keep."""


def progress_bars(verbose: int) -> Progress:
    """Progress as one tqdm bar per stage on stderr; silent for verbose = 0, or if none is open."""
    if not verbose or not _is_open(sys.stderr):
        return silent
    tqdm = import_once("tqdm.auto").tqdm
    bars: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        with suppress(OSError):  # whoever read stderr is gone, training goes on
            if stage not in bars:
                bars[stage] = tqdm(total=total, desc=stage, leave=True)
            bar = bars[stage]
            bar.update(done - bar.n)
            if done >= total:
                bar.close()

    return show


def _is_open(stream: TextIO | None) -> bool:
    """Whether something can be written; Python without a console has no stderr at all."""
    return stream is not None and not getattr(stream, "closed", False)
