"""What was fitted: the estimator, its rows and columns, and how training went."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from triegp.plots.features import label_column
from triegp.plots.text import shorten

KIND_NAMES = {
    "number": "number",
    "category": "category",
    "ordered": "ordered category",
    "time": "time",
    "duration": "duration",
}
EXACT_ROWS = 2_000  # up to which leave-one-out of trees and a smooth part is exact
MOST_LETTERS = 60  # of the value of a parameter
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
    counted = Counter(model.columns_.kinds)
    parts, transforms = (
        value if isinstance(value, list) else [value]
        for value in (model.importances_, model.target_transform_)
    )
    targets = []
    for t, (n_trees, has_smooth, noise) in enumerate(_models_of_targets(model)):
        transform, smooth = transforms[t], float(np.sum(parts[t].explained_smooth))
        transform = transform if isinstance(transform, str) else type(transform).__name__
        targets.append(TargetFit(names[t], transform, n_trees, smooth, has_smooth, noise))
    return Fit(
        estimator=type(model).__name__,
        version=version("triegp"),
        n_rows=int(model.n_rows_),
        n_features=len(model.columns_.kinds),
        kinds=tuple((KIND_NAMES[kind], counted[kind]) for kind in KIND_NAMES if counted[kind]),
        constant=tuple(label_column(model.columns_, j) for j in constant_features(model)),
        n_copies=int(model.n_copies_),
        seconds=model.fit_seconds_,
        n_iter=getattr(model, "n_iter_", None),  # not known of an old model file
        stopped_early=bool(model.stopped_early_),
        diverged=bool(getattr(model, "diverged_", False)),
        parameters=changed_parameters(model),
        exact=not hasattr(model, "forests_") or int(model.n_rows_) <= EXACT_ROWS,
        targets=tuple(targets),
    )


def constant_features(model: Any) -> list[int]:
    """Columns of the table whose working columns all have a box without width."""
    encoder = model.encoders_[0]
    varies = np.zeros(len(model.columns_.kinds), np.bool_)
    np.logical_or.at(varies, model.layout_.source, encoder.high_ > encoder.low_)
    constant: list[int] = np.flatnonzero(~varies).tolist()
    return constant


def changed_parameters(model: Any) -> tuple[tuple[str, str], ...]:
    """Parameters that differ from their defaults, as text."""
    defaults = inspect.signature(type(model).__init__).parameters
    changed = []
    for name, value in model.get_params(deep=False).items():
        default = repr(defaults[name].default) if name in defaults else None
        if name not in NOT_OF_THE_MODEL and repr(value) != default:
            changed.append((name, shorten(repr(value), MOST_LETTERS)))
    return tuple(changed)


def _models_of_targets(model: Any) -> list[tuple[int, bool, float]]:
    """Number of trees, whether there is a smooth part, and noise, for each target."""
    if hasattr(model, "forests_"):
        sums = [part.model for part in model.forests_ for _ in range(part.n_targets)]
        return [(len(s.orders), s.smooth is not None, float(s.new_noise)) for s in sums]
    facts = []
    for part in model.ensembles_:
        for t in range(len(part.members[0].posteriors)):
            noise = np.mean([float(member.posteriors[t].new_noise) for member in part.members])
            facts.append((len(part.members), False, float(noise)))
    return facts
