"""How estimators train, whatever they train: manners, encoders, one model a target or for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from triegp.checks import one_of, positive_number
from triegp.encoding.encoder import OUTSIDE, BitEncoder
from triegp.engines import available_cores
from triegp.engines.choice import check_engine
from triegp.estimators.callbacks import FitTasks
from triegp.models.contract import Trained
from triegp.models.jobs import Stopwatch
from triegp.models.progress import progress_bar
from triegp.models.rows import Rows, select_targets

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Manner:
    """How an estimator goes about training; `BinaryTreeGPRegressor` says what each means."""

    outside: str
    keep_rows: bool
    multi_target: str
    time_budget: float | None
    on_interrupt: str
    engine: str
    n_jobs: int | None
    verbose: int
    random_state: Any


@dataclass(frozen=True, eq=False)
class Run:
    """What one training has to itself.

    Attributes
    ----------
    rng : Generator
        Its chance.
    n_jobs : int
        Threads, 1 or more; the result must not depend on it.
    watch : Stopwatch
        Says when to end with the best found so far, and remembers Ctrl-C.
    progress : callable (stage, done, total)
        To be told how far it is, from the calling thread. The stage "fits" counts towards
        scikit-learn's callbacks.
    keep : bool
        Whether Ctrl-C keeps the best found so far; otherwise KeyboardInterrupt is to be raised.
    engine : {"auto", "cpu", "cuda"}
        Where to train, for `choose`.
    """

    rng: np.random.Generator
    n_jobs: int
    watch: Stopwatch
    progress: Callable[[str, int, int], None]
    keep: bool
    engine: str


def check_manner(manner: Manner) -> Manner:
    """Refuse what makes no sense."""
    one_of("outside", manner.outside, OUTSIDE)
    if not isinstance(manner.keep_rows, bool | np.bool_):
        raise ValueError(f"keep_rows must be True or False, got {manner.keep_rows!r}")
    one_of("multi_target", manner.multi_target, ("own", "shared"))
    one_of("on_interrupt", manner.on_interrupt, ("raise", "keep"))
    if manner.time_budget is not None:
        positive_number("time_budget", manner.time_budget)
    if not hasattr(manner.verbose, "__index__") or manner.verbose < 0:
        raise ValueError(f"verbose must be an integer, 0 or more, got {manner.verbose!r}")
    count_threads(manner.n_jobs)
    check_engine(manner.engine)
    return manner


def fit_encoders(
    X: Any, weight: Floats | None, *, scaling: str, precision: Any, outside: str, margin: float
) -> tuple[BitEncoder, ...]:
    """One encoder for each scaling, without shift; "both" is two of them. As in `BitEncoder`."""
    scalings = ("minmax", "ecdf") if scaling == "both" else (scaling,)
    return tuple(
        BitEncoder(scaling=one, precision=precision, outside=outside, margin=margin).fit(
            X, sample_weight=weight
        )
        for one in scalings
    )


def train_targets(
    train: Callable[[Rows, Run], Trained], rows: Rows, manner: Manner, tasks: FitTasks
) -> tuple[list[Trained], str]:
    """Train one model a target, or one for all; and what ended training, if something did.

    What is left of the time budget is shared among the targets to come.
    """
    groups = group_targets(rows.targets.shape[1], manner.multi_target)
    streams = random_generator(manner.random_state).spawn(len(groups))
    n_jobs = count_threads(manner.n_jobs)
    began = time.monotonic()
    trained: list[Trained] = []
    ended_by = ""
    for k, (group, stream) in enumerate(zip(groups, streams, strict=True)):
        watch = Stopwatch(_share(manner.time_budget, began, len(groups) - k))
        if ended_by:
            watch.halt()
        progress = tasks.follow(progress_bar(manner.verbose), watch)
        run = Run(stream, n_jobs, watch, progress, manner.on_interrupt == "keep", manner.engine)
        trained.append(train(select_targets(rows, group), run))
        if watch.interrupted:
            ended_by = "Ctrl-C"
        elif tasks.stopped:
            ended_by = ended_by or "a callback"
    return trained, ended_by or f"time_budget of {manner.time_budget} s"


def group_targets(n_targets: int, multi_target: str) -> list[list[int]]:
    """Which targets are trained together."""
    if multi_target == "shared":
        return [list(range(n_targets))]
    return [[t] for t in range(n_targets)]


def random_generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from scikit-learn's kind of random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        seed = check_random_state(random_state).randint(0, 2**31 - 1, size=4)
    except ValueError as error:
        raise ValueError(f"random_state must be an integer or RandomState: {error}") from None
    return np.random.default_rng(seed)


def count_threads(n_jobs: int | None) -> int:
    """Threads for scikit-learn's n_jobs."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise ValueError(f"n_jobs must be a non-zero integer or None, got {n_jobs!r}")
    return n_jobs if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)


def _share(time_budget: float | None, began: float, n_left: int) -> float | None:
    """Seconds for the next of n_left equal parts of what is left of a budget."""
    if time_budget is None:
        return None
    return max(0.0, time_budget - (time.monotonic() - began)) / n_left
