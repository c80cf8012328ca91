"""From rows and targets to trained ensembles: encoders, then one ensemble a target or for all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from triegp.blas import one_blas_thread
from triegp.callbacks import FitTasks
from triegp.encoding import BitEncoder
from triegp.engines import available_cores
from triegp.ensemble import Trained, recipe_of, train
from triegp.jobs import Stopwatch
from triegp.presets import Settings
from triegp.progress import progress_bar
from triegp.targets import Rows, select_targets
from triegp.training import MAX_DENSE_BITS
from triegp.validation import one_of, positive_number

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Manner:
    """How an estimator goes about training; `BinaryTreeGPRegressor` says what each means."""

    multi_target: str
    time_budget: float | None
    on_interrupt: str
    n_jobs: int | None
    verbose: int
    random_state: Any


def check_manner(manner: Manner) -> Manner:
    """Refuse what makes no sense."""
    one_of("multi_target", manner.multi_target, ("own", "shared"))
    one_of("on_interrupt", manner.on_interrupt, ("raise", "keep"))
    if manner.time_budget is not None:
        positive_number("time_budget", manner.time_budget)
    if not hasattr(manner.verbose, "__index__") or manner.verbose < 0:
        raise ValueError(f"verbose must be an integer, 0 or more, got {manner.verbose!r}")
    count_threads(manner.n_jobs)
    return manner


def fit_encoders(
    X: Any, weight: Floats | None, settings: Settings, outside: str
) -> tuple[BitEncoder, ...]:
    """One encoder for each scaling, without shift."""
    scalings = ("minmax", "ecdf") if settings.scaling == "both" else (settings.scaling,)
    encoders = tuple(
        BitEncoder(
            scaling=scaling,
            precision=settings.precision,
            outside=outside,
            margin=settings.box_margin,
        ).fit(X, sample_weight=weight)
        for scaling in scalings
    )
    extra = encoders[0].n_features_in_ if settings.shift else 0  # a shift takes a bit a feature
    n_bits = extra + max(encoder.n_bits_ for encoder in encoders)
    if settings.optimizer == "bfgs" and n_bits > MAX_DENSE_BITS:
        raise ValueError(
            f"optimizer 'bfgs' keeps a q x q matrix and must have at most {MAX_DENSE_BITS} "
            f"bits, got {n_bits}: use 'lbfgs' or less precision"
        )
    return encoders


def train_targets(
    encoders: tuple[BitEncoder, ...],
    X: npt.NDArray[Any],
    rows: Rows,
    settings: Settings,
    manner: Manner,
    tasks: FitTasks,
) -> tuple[list[Trained], str]:
    """Ensembles, one a target or one for all; and what ended training, if something did.

    What is left of the time budget is shared among the targets to come.
    """
    recipe = recipe_of(settings, rows.n_effective)
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
        own, keep = select_targets(rows, group), manner.on_interrupt == "keep"
        with one_blas_thread():
            trained.append(train(encoders, X, own, recipe, stream, n_jobs, watch, progress, keep))
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
