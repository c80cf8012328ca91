"""What was fitted: the estimator, its rows and columns, and how training went."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from triegp.plots.features import label_column

KIND_NAMES = {
    "number": "number",
    "category": "category",
    "ordered": "ordered category",
    "time": "time",
    "duration": "duration",
}
EXACT_ROWS = 2_000  # up to which leave-one-out of trees and a smooth part is exact
NOT_OF_THE_MODEL = ("verbose", "n_jobs", "engine")  # parameters that do not change the result


@dataclass(frozen=True)
class TargetFit:
    """The model of one target.

    Attributes
    ----------
    name : str
        Name of the target.
    transform : str
        Name of its transform.
    n_trees : int
        Trees of its model.
    smooth : float
        Share of the explained variance that the smooth part has; 0 if there is none.
    has_smooth : bool
        Whether there is a smooth part.
    noise : float
        Variance of the noise before calibration, relative to that of the (transformed) target.
    """

    name: str
    transform: str
    n_trees: int
    smooth: float
    has_smooth: bool
    noise: float


@dataclass(frozen=True)
class Fit:
    """What was fitted.

    Attributes
    ----------
    estimator, version : str
        Class of the estimator and version of triegp.
    n_rows, n_features : int
        Training rows and columns of the table.
    kinds : tuple of (str, int)
        Kinds of columns, and how many there are of each.
    constant : tuple of str
        Columns that have one value in all training rows.
    n_copies : int
        Rows that are copies of others.
    seconds : float or None
        Duration of the fit.
    n_iter : int or None
        Optimiser steps; None if not known.
    stopped_early, diverged : bool
        Whether training ended early, or because the likelihood fell.
    parameters : tuple of (str, str)
        Parameters other than their defaults, without those that do not change the result.
    exact : bool
        Whether leave-one-out is exact up to rounding.
    targets : tuple of TargetFit
        One per target.
    """

    estimator: str
    version: str
    n_rows: int
    n_features: int
    kinds: tuple[tuple[str, int], ...]
    constant: tuple[str, ...]
    n_copies: int
    seconds: float | None
    n_iter: int | None
    stopped_early: bool
    diverged: bool
    parameters: tuple[tuple[str, str], ...]
    exact: bool
    targets: tuple[TargetFit, ...]


def describe_fit(model: Any, names: tuple[str, ...]) -> Fit:
    """What was fitted. names: of the targets."""
    columns = model.columns_
    counted = Counter(columns.kinds)
    importances = model.importances_
    parts = importances if isinstance(importances, list) else [importances]
    shown = model.target_transform_
    transforms = shown if isinstance(shown, list) else [shown]
    bases = _bases(model, len(names))
    targets = []
    for t, name in enumerate(names):
        n_trees, has_smooth, noise = bases[t]
        chosen = transforms[t]
        targets.append(
            TargetFit(
                name=name,
                transform=chosen if isinstance(chosen, str) else type(chosen).__name__,
                n_trees=n_trees,
                smooth=float(np.sum(parts[t].explained_smooth)),
                has_smooth=has_smooth,
                noise=noise,
            )
        )
    forest = hasattr(model, "forests_")
    return Fit(
        estimator=type(model).__name__,
        version=version("triegp"),
        n_rows=int(model.n_rows_),
        n_features=len(columns.kinds),
        kinds=tuple((KIND_NAMES[kind], counted[kind]) for kind in KIND_NAMES if counted[kind]),
        constant=tuple(label_column(columns, j) for j in constant_features(model)),
        n_copies=int(model.n_copies_),
        seconds=model.fit_seconds_,
        n_iter=_known_steps(model),
        stopped_early=bool(model.stopped_early_),
        diverged=bool(getattr(model, "diverged_", False)),
        parameters=changed_parameters(model),
        exact=not forest or int(model.n_rows_) <= EXACT_ROWS,
        targets=tuple(targets),
    )


def constant_features(model: Any) -> list[int]:
    """Columns of the table whose working columns all have a box without width."""
    encoder = model.encoders_[0]
    varies = np.zeros(len(model.columns_.kinds), np.bool_)
    np.logical_or.at(varies, model.layout_.source, encoder.high_ > encoder.low_)
    found: list[int] = np.flatnonzero(~varies).tolist()
    return found


def changed_parameters(model: Any) -> tuple[tuple[str, str], ...]:
    """Parameters that differ from their defaults, as text."""
    defaults = inspect.signature(type(model).__init__).parameters
    found = []
    for name, value in model.get_params(deep=False).items():
        default = defaults[name].default if name in defaults else None
        if name in NOT_OF_THE_MODEL or value is default:
            continue
        text = repr(value)
        if text != repr(default):
            found.append((name, text if len(text) <= 60 else f"{text[:57]}..."))
    return tuple(found)


def _bases(model: Any, n_targets: int) -> list[tuple[int, bool, float]]:
    """Number of trees, whether there is a smooth part, and noise, for each target."""
    if hasattr(model, "forests_"):
        models = [part.model for part in model.forests_ for _ in range(part.n_targets)]
        return [(len(one.orders), one.smooth is not None, float(one.new_noise)) for one in models]
    found = []
    for part in model.ensembles_:
        for t in range(len(part.members[0].posteriors)):
            noise = np.mean([float(one.posteriors[t].new_noise) for one in part.members])
            found.append((len(part.members), False, float(noise)))
    return found


def _known_steps(model: Any) -> int | None:
    try:
        return int(model.n_iter_)
    except AttributeError:  # of an old model file
        return None
