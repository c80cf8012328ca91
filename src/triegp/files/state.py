"""The state of a fitted estimator: what a model file holds, and its rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine
from triegp.files import codec
from triegp.files.codec import LEAST, RULES, VARIANTS, Arrays, Facts, Reading, Rule
from triegp.files.table import check_features, check_layout
from triegp.imports import import_once
from triegp.models.curve import MOST_POINTS, TrainingCurve
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations
from triegp.models.transforms import Transform
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

LARGEST = 1e308  # mean or scale of targets
LARGEST_UNIT = 1e31  # of weights, which are at most 1e30
LARGEST_COUNT = 1e100  # weight of one observation, and one over the smallest
LARGEST_SCALE = 1e150  # of transformed targets, whose variances are needed
MOST_ROWS = 1 << 30
MOST_LETTERS = 80  # of the name of a line in a training curve
LAST_STEP = 1 << 53


class Seed(NamedTuple):
    """Source of the random numbers of one model: numpy's SeedSequence as plain integers."""

    entropy: tuple[int, ...]
    key: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What decides when a model is fitted anew. Rows that wait are counted.

    Attributes
    ----------
    n_rows : int
        Rows passed.
    n_fit : int
        Rows passed at the last fit, also if that fit is still to be done.
    n_model : int
        Rows of the models at the last fit that was done.
    n_calibrated : int
        Rows passed at the last calibration.
    n_aside : int
        Rows set aside since the last fit because they lie outside the box.
    low, high : float64 (d,)
        Box of the last fit.
    lowest, highest : float64 (d,)
        Box of all rows.
    level : float64 (k,)
        Targets of the first row.
    varied_at_fit, varied : bool (k,)
        Whether each target took other values than its level, at the last fit and since.
    fit_at, calibrate_at : int
        Rows passed when the next fit or calibration became due; 0 if none is.
    n_newest : int
        Last rows whose weights have not faded yet, if weights fade.
    """

    n_rows: int
    n_fit: int
    n_model: int
    n_calibrated: int
    n_aside: int
    low: Floats
    high: Floats
    lowest: Floats
    highest: Floats
    level: Floats
    varied_at_fit: npt.NDArray[np.bool_]
    varied: npt.NDArray[np.bool_]
    fit_at: int = 0
    calibrate_at: int = 0
    n_newest: int = 0


@dataclass(frozen=True, eq=False)
class ModelState:
    """State of a fitted estimator, except for its parameters.

    Attributes
    ----------
    encoders : tuple of Quantiser
        The box, its percentiles and precision, without shift: one per scaling.
    target_mean, target_scale : float64 (n_targets,)
        How targets are standardised, after their transform.
    one_dimensional : bool
        Whether y came as one vector.
    stopped_early : bool
        Whether the time budget or Ctrl-C ended training.
    n_evaluations : int
        Evaluations of the likelihood with gradient.
    columns : Columns
        How the columns of X are read.
    layout : Layout
        How they become working columns, which the encoders read.
    fitted : tuple of Fitted
        One for all targets, or one for each.
    kept : Rows or None
        All rows passed to `fit` and `partial_fit`, unchanged; None if they are not kept.
    observations : Observations or None
        The rows as they were passed, if several may share a row of the models; None if they are
        the rows of the models.
    plan : Plan
        When the model is to be fitted anew.
    seeds : tuple of Seed or None
        Source of the random numbers of each model; None if not known.
    transforms : tuple of (Transform or None)
        Transform of each target, None for the identity; empty if no target is transformed.
    fit_seconds : float
        Wall-clock seconds of the last fit.
    curve : TrainingCurve or None
        Nll per row during the last fit; None if it was not recorded.
    divided : bool
        Whether weights divide the noise variance of an observation, as they did at the last fit.
    """

    encoders: tuple[Quantiser, ...]
    target_mean: Floats
    target_scale: Floats
    one_dimensional: bool
    stopped_early: bool
    n_evaluations: int
    columns: Columns
    layout: Layout
    fitted: tuple[Fitted, ...]
    kept: Rows | None
    observations: Observations | None
    plan: Plan
    seeds: tuple[Seed, ...] | None
    transforms: tuple[Transform | None, ...] = ()
    fit_seconds: float = 0.0
    curve: TrainingCurve | None = None
    divided: bool = False


def pack_model(
    state: ModelState, training_data: bool, *, quickly: bool = False
) -> tuple[Facts, Arrays]:
    """Convert a fitted estimator to facts that JSON can hold, and arrays.

    training_data: whether the kept rows are among them. quickly: in less time, with larger arrays.
    """
    if not training_data:
        state = replace(state, kept=None)
    elif state.kept is None:
        raise ValueError("training_data=True requires a model fitted with keep_rows=True")
    return codec.pack(state, quickly=quickly)


def unpack_model(facts: Any, arrays: Arrays, kind: str, engine: Engine | None = None) -> ModelState:
    """Restore a fitted estimator; raises ValueError for invalid contents.

    kind: class of its models, without calibration. engine: restores mixtures; the default is the
    CPU engine, on all cores.
    """
    state = codec.unpack(ModelState, facts, Reading(arrays, engine or CpuEngine()))
    calibration: Any = import_once("triegp.files.calibration")
    names = state.layout.names(state.columns.names)
    for part in state.fitted:
        base: Any = getattr(part, "base", part)
        if type(base).__name__ != kind:
            raise ValueError(f"fitted must hold a {kind}, got a {type(base).__name__}")
        calibration.check_encoders(base, state.encoders)
        if kind == "FittedForest":
            largest = float(state.target_scale.max())
            import_once("triegp.files.forest").check_reach(base.model, largest)
        for encoder in (*state.encoders, *calibration.encoders_of(base)) if names else ():
            encoder.feature_names_in_ = np.array(names, dtype=object)
    return state


def _check_state(state: ModelState) -> None:
    """Raise ValueError unless the parts of a model fit together."""
    mean, scale, layout, plan = state.target_mean, state.target_scale, state.layout, state.plan
    n_targets, n_working = mean.size, len(layout.roles)
    check_layout(layout, state.columns)
    if not state.encoders or any(e.n_working != n_working for e in state.encoders):
        raise ValueError(f"encoders must have {n_working} features")
    if state.one_dimensional and n_targets != 1:
        raise ValueError(f"one_dimensional requires one target, got {n_targets}")
    if len(state.transforms) not in (0, n_targets):
        raise ValueError(f"transforms must be {n_targets}, got {len(state.transforms)}")
    for own, transform in zip(scale, state.transforms, strict=False):  # often there are none
        if transform is not None and not 1.0 / LARGEST_SCALE < own < LARGEST_SCALE:
            raise ValueError(f"a transformed target must not have the scale {own}")
    n_held = [part.n_targets for part in state.fitted]
    if n_held not in ([n_targets], [1] * n_targets):
        raise ValueError(f"fitted must hold {n_targets} targets in all, got {n_held}")
    counts = sorted({part.n_rows for part in state.fitted})
    if len(counts) != 1 or len({part.n_summed for part in state.fitted}) != 1:
        raise ValueError(f"fitted must have the same number of rows, got {counts}")
    n_rows = counts[0]
    observations, kept = state.observations, state.kept
    if observations is not None:
        if observations.index.max() >= n_rows:
            raise ValueError(f"observations must be of {n_rows} rows")
        n_rows = observations.n_rows
    n_rows += state.fitted[0].n_summed
    if plan.n_rows != n_rows or not plan.n_aside < n_rows:
        raise ValueError(f"plan must count {n_rows} rows, got {plan.n_rows}")
    if state.seeds is not None and len(state.seeds) != len(state.fitted):
        raise ValueError(f"seeds must be {len(state.fitted)}, got {len(state.seeds)}")
    if kept is not None:
        if kept.y.shape != (n_rows, n_targets) or kept.X is None:
            raise ValueError(f"kept must be {n_rows} rows of {n_targets} targets")
        noise = kept.known_noise
        if kept.X.shape[1] != layout.n_columns or (noise is not None and noise.ndim > 1):
            raise ValueError(f"kept.X must have {layout.n_columns} columns")
        check_features(kept.X, state.columns)


def _check_plan(plan: Plan) -> None:
    if not plan.n_model <= plan.n_fit <= plan.n_calibrated <= plan.n_rows:  # 0: forgotten since
        raise ValueError("a plan must have n_model <= n_fit <= n_calibrated <= n_rows")
    if (plan.lowest > plan.highest).any():  # they may lie inside the box: rows can be forgotten
        raise ValueError("lowest must not exceed highest")


def _check_observations(observations: Observations) -> None:
    weight = observations.weight
    with np.errstate(over="ignore"):
        squares = np.square(observations.y)
    if weight is not None:
        if ((weight > 0) & (weight < 1.0 / LARGEST_COUNT)).any():
            raise ValueError(f"weight must be 0 or at least {1.0 / LARGEST_COUNT:g}")
        squares = weight[:, None] * squares
    if not np.isfinite(squares.sum()):
        raise ValueError("y must have squares that float64 can hold")


def _check_curve(curve: TrainingCurve) -> None:
    lines, names = list(zip(curve.step, curve.nll, strict=True)), curve.names
    if not names or any(not 0 < len(name) <= MOST_LETTERS for name in names):
        raise ValueError(f"names must be short texts, got {names!r:.80}")
    held = lines if curve.held_out is None else curve.held_out
    if not len(lines) == len(held) == len(names):
        raise ValueError(f"a training curve must have {len(names)} lines, got {len(lines)}")
    for step, nll in (*lines, *held):
        if step.size != nll.size or step.size > MOST_POINTS:
            raise ValueError(f"a line must have at most {MOST_POINTS} points")
        if step.size and (step[0] < 0 or step[-1] > LAST_STEP or (step[1:] < step[:-1]).any()):
            raise ValueError("step must not be negative, nor fall within a line")


RULES[ModelState] = Rule(
    "target_mean:targets target_scale:targets",
    {
        "target_mean": (-LARGEST, LARGEST),
        "target_scale": (LEAST, LARGEST),
        "fit_seconds": (0, codec.LARGEST),
    },
    check=_check_state,
)
RULES[Plan] = Rule(
    "low:features high:features lowest:features highest:features level:targets "
    "varied_at_fit:targets varied:targets",
    without=("fit_at", "calibrate_at"),
    check=_check_plan,
)
RULES[Observations] = Rule(
    "index:n y:n,targets weight:n",
    {
        "index": (-1, MOST_ROWS),
        "weight": (0, LARGEST_COUNT),
        "unit": (1.0 / LARGEST_UNIT, LARGEST_UNIT),
    },
    check=_check_observations,
)
RULES[TrainingCurve] = Rule("step:_ nll:_ held_out:_", check=_check_curve)
VARIANTS[Fitted] = {
    "CalibratedModel": "triegp.files.calibration",
    "Ensemble": "triegp.files.mixture",
    "FittedForest": "triegp.files.forest",
}


def plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as values that JSON can hold; a random_state that is not an int becomes None."""
    return {
        name: None if name == "random_state" and not _is_seed(value) else _plain_value(value)
        for name, value in parameters.items()
    }


def _is_seed(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _plain_value(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays, numpy scalars, pandas columns
        value = value.tolist()
    return [_plain_value(part) for part in value] if isinstance(value, (list, tuple)) else value
