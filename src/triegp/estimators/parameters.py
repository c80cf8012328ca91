"""Parameters that both estimators share: their checks, and what `fit` derives from them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import boolean, one_of, positive_number, random_generator
from triegp.devices import on_device
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.held import fit_held
from triegp.encoding.quantiser import Quantiser
from triegp.engines import available_cores
from triegp.engines.choice import ENGINES, check_engine
from triegp.estimators.outside import CHOICES, encoder_choice
from triegp.estimators.repeats import MEANINGS
from triegp.estimators.transforms import IDENTITY, check_transform

Floats = npt.NDArray[np.float64]

MULTI_TARGETS = ("own", "shared")
ON_INTERRUPT = ("raise", "keep")
MOST_THREADS = 64  # unless there are more cores


def check_common(parameters: dict[str, Any], *, here: bool = True) -> None:
    """Raise ValueError if a parameter that both estimators share is invalid.

    Raises RuntimeError if engine="cuda" cannot run here, unless here=False: a model is saved and
    read where it is not trained.
    """
    one_of("outside", parameters["outside"], CHOICES)
    boolean("keep_rows", parameters["keep_rows"])
    check_refit(parameters["refit"])
    one_of("multi_target", parameters.get("multi_target", "own"), MULTI_TARGETS)
    one_of("weights", parameters["weights"], MEANINGS)
    one_of("on_interrupt", parameters["on_interrupt"], ON_INTERRUPT)
    if parameters["time_budget"] is not None:
        positive_number("time_budget", parameters["time_budget"])
    verbose = parameters["verbose"]
    if not hasattr(verbose, "__index__") or verbose < 0:
        raise ValueError(f"verbose must be an integer >= 0, got {verbose!r:.80}")
    count_threads(parameters["n_jobs"])
    if here:
        check_engine(parameters["engine"])
    else:
        one_of("engine", parameters["engine"], ENGINES)
    seed = parameters["random_state"]
    if isinstance(seed, int | float | str | list | dict):  # what a file can hold; nothing is drawn
        random_generator(seed)
    check_transform(parameters.get("target_transform", IDENTITY))


def check_refit(refit: Any) -> None:
    """Raise ValueError unless refit is "auto" or False."""
    if refit is not False and not (isinstance(refit, str) and refit == "auto"):
        raise ValueError(f"refit must be 'auto' or False, got {refit!r:.80}")


def count_threads(n_jobs: int | None) -> int:
    """Number of threads for n_jobs, with the meaning it has in scikit-learn.

    There are at most 64, or as many as there are cores: n_jobs may come from a file.
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise ValueError(f"n_jobs must be a non-zero integer or None, got {n_jobs!r:.80}")
    if n_jobs > 0:
        return min(n_jobs, max(MOST_THREADS, available_cores()))
    return max(1, available_cores() + 1 + n_jobs)


def fit_encoders(
    X: npt.NDArray[Any],
    weight: Floats | None,
    *,
    scaling: str,
    precision: Any,
    outside: str,
    margin: float = 0.0,
) -> tuple[Quantiser, ...]:
    """One fitted quantiser per scaling, without shift; two of them for "both".

    X may lie on a device if there are no weights.
    """
    kind = encoder_choice(outside)
    scalings = ("minmax", "ecdf") if scaling == "both" else (scaling,)
    if on_device(X):
        facts = {"precision": precision, "outside": kind, "margin": margin}
        return tuple(fit_held(X, scaling=one, **facts) for one in scalings)
    return tuple(
        BitEncoder(scaling=one, precision=precision, outside=kind, margin=margin).fit(
            X, sample_weight=weight
        )
        for one in scalings
    )


def group_targets(n_targets: int, multi_target: str) -> list[list[int]]:
    """Groups of targets that are trained together."""
    if multi_target == "shared":
        return [list(range(n_targets))]
    return [[t] for t in range(n_targets)]


def share_budget(time_budget: float | None, began: float, n_left: int) -> float | None:
    """Seconds for the next group of targets: an equal share of the rest of the budget."""
    if time_budget is None:
        return None
    return max(0.0, time_budget - (time.monotonic() - began)) / n_left
