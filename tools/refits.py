"""What a model that was read from a file may do when it learns again: refits, in many ways.

Parameters, seeds, plan and rows come with a file, from whoever wrote it. With a time budget of its
user's own, a refit must end soon, in a model that predicts, or in an error that says what is wrong.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from tools.model_kinds import new_rows

BUDGET = 1.0  # seconds for a refit; what has to be done in any case comes on top
LONGEST = 1000  # letters of an error that a person can read
ARGUMENTS = ("X", "y", "sample_weight", "known_noise", "keep_last", "forget", "rows")


class UnclearError(Exception):
    """An error that does not say what is wrong."""


def kept_targets(model: Any) -> Any:
    """Targets of the rows of a model, as they were passed."""
    rows = model._stream.kept
    return rows.y[:, 0] if model.one_dimensional_ else rows.y


def some_rows(model: Any, n_rows: int) -> tuple[Any, Any]:
    """New rows, as many as asked for, with targets of rows that the model holds."""
    rows = new_rows(model._stream.columns)
    at = np.arange(n_rows)
    chosen = rows.iloc[at % len(rows)] if hasattr(rows, "iloc") else rows[at % len(rows)]
    y = kept_targets(model)
    return chosen, y[at % len(y)]


def refresh(model: Any, path: Path, draw: np.random.Generator) -> Any:
    """Fit again to the rows of the file."""
    return model.refresh()


def grow(model: Any, path: Path, draw: np.random.Generator) -> Any:
    """Add rows until a fit is due, in two batches, and a few more."""
    n_rows = model.n_rows_
    for n in (n_rows // 2 + 1, n_rows // 2 + 1, 3):
        model.partial_fit(*some_rows(model, n))
    model.predict(new_rows(model._stream.columns))  # the fit is done before
    return model


def forget(model: Any, path: Path, draw: np.random.Generator) -> Any:
    """Forget rows, then fit to those that are left; only mixtures can."""
    if hasattr(model, "forget"):
        model.forget(keep_last=int(draw.integers(1, 2 * model.n_rows_)), factor=draw.uniform())
        model.predict(new_rows(model._stream.columns))
    return model.refresh()


def fit_others(model: Any, path: Path, draw: np.random.Generator) -> Any:
    """Fit a clone, or the model itself, to other rows."""
    rows = some_rows(model, 40)
    return (clone(model) if draw.random() < 0.5 else model).fit(*rows)


def save_again(model: Any, path: Path, draw: np.random.Generator) -> Any:
    """Save it with its rows, and fit what is read."""
    import triegp

    model.save(path.with_name("rows"), training_data=True)
    return triegp.load(path.with_name("rows")).set_params(time_budget=BUDGET).refresh()


STEPS: tuple[Callable[[Any, Path, np.random.Generator], Any], ...]
STEPS = (refresh, grow, forget, fit_others, save_again)


def refit(path: Path, draw: np.random.Generator, step: Any) -> str:
    """Learn again from a file with rows: "fitted" or "told"; raises what it must not raise.

    step: one of STEPS. "told": a ValueError or TypeError that names a parameter or an argument, or
    a MemoryError that says how much is needed.
    """
    import triegp

    model = triegp.load(path)
    parameters = tuple(model.get_params(deep=False))
    model.set_params(time_budget=BUDGET, engine="auto")
    with contextlib.redirect_stderr(io.StringIO()):  # progress bars
        try:
            fitted = step(model, path, draw)
        except (ValueError, TypeError) as error:
            check_told(error, (*parameters, *ARGUMENTS))
            return "told"
        except MemoryError as error:
            if "needs about" not in str(error):
                raise
            return "told"
        check_usable(fitted)
    return "fitted"


def check_told(error: Exception, names: tuple[str, ...]) -> None:
    """Raise UnclearError unless an error is short and names what is wrong."""
    text = str(error)
    named = any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
    if not named or len(text) > LONGEST:
        raise UnclearError(f"an error of {len(text)} letters: {text[:200]!r}") from error


def check_usable(model: Any) -> None:
    """Raise UnclearError unless a refitted model predicts."""
    mean, std = model.predict(new_rows(model._stream.columns), return_std=True)
    transformed = bool(model._stream.transforms)
    if np.isnan(mean).any() or np.isnan(std).any() or (std < 0).any():
        raise UnclearError("predictions are not numbers after a refit")
    if not (transformed or (np.isfinite(mean).all() and np.isfinite(std).all())):
        raise UnclearError("predictions are not finite after a refit")
