"""The state of a fitted estimator in a model file: its rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import CpuEngine, Engine
from triegp.files import codec
from triegp.files.codec import LEAST, RULES, VARIANTS, Arrays, Facts, Reading, Rule
from triegp.files.table import check_features, check_layout
from triegp.imports import import_once
from triegp.models.curve import MOST_POINTS, TrainingCurve
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations
from triegp.models.state import ModelState, Plan, Stream

Floats = npt.NDArray[np.float64]

LARGEST = 1e308  # mean or scale of targets
LARGEST_UNIT = 1e31  # of weights, which are at most 1e30
LARGEST_COUNT = 1e100  # weight of one observation, and one over the smallest
LARGEST_SCALE = 1e150  # of transformed targets, whose variances are needed
MOST_ROWS = 1 << 30
MOST_LETTERS = 80  # of the name of a line in a training curve
LAST_STEP = 1 << 53


def pack_model(
    state: ModelState, training_data: bool, *, quickly: bool = False
) -> tuple[Facts, Arrays]:
    """Convert a fitted estimator to facts that JSON can hold, and arrays.

    training_data: whether the kept rows are among them. quickly: in less time, with larger arrays.
    """
    if not training_data:
        state = replace(state, stream=replace(state.stream, kept=None))
    elif state.stream.kept is None:
        raise ValueError("training_data=True requires a model fitted with keep_rows=True")
    return codec.pack(state, quickly=quickly)


def unpack_model(facts: Any, arrays: Arrays, kind: str, engine: Engine | None = None) -> ModelState:
    """Restore a fitted estimator; raises ValueError for invalid contents.

    kind: class of its models, without calibration. engine: restores mixtures; the default is the
    CPU engine, on all cores.
    """
    state = codec.unpack(ModelState, facts, Reading(arrays, engine or CpuEngine()))
    calibration: Any = import_once("triegp.files.calibration")
    stream = state.stream
    names = stream.layout.names(stream.columns.names)
    for part in stream.fitted:
        base: Any = calibration.base_of(part)
        first = calibration.layers_of(base)[0]
        if type(first).__name__ != kind:
            raise ValueError(f"fitted must hold a {kind}, got a {type(first).__name__}")
        calibration.check_encoders(base, stream.encoders)
        if kind == "FittedForest":
            largest = float(stream.scale.max())
            import_once("triegp.files.forest").check_reach(first.model, largest)
        for encoder in (*stream.encoders, *calibration.encoders_of(base)) if names else ():
            encoder.feature_names_in_ = np.array(names, dtype=object)
    return state


def _check_state(state: ModelState) -> None:
    if state.one_dimensional and state.stream.mean.size != 1:
        raise ValueError(f"one_dimensional requires one target, got {state.stream.mean.size}")


def _check_stream(stream: Stream) -> None:
    """Raise ValueError unless the parts of a model fit together."""
    mean, scale, layout, plan = stream.mean, stream.scale, stream.layout, stream.plan
    n_targets, n_working = mean.size, len(layout.roles)
    check_layout(layout, stream.columns)
    if not stream.encoders or any(e.n_working != n_working for e in stream.encoders):
        raise ValueError(f"encoders must have {n_working} features")
    if len(stream.transforms) not in (0, n_targets):
        raise ValueError(f"transforms must be {n_targets}, got {len(stream.transforms)}")
    for own, centre, transform in zip(scale, mean, stream.transforms, strict=False):  # often none
        if transform is not None and not 1.0 / LARGEST_SCALE < own < LARGEST_SCALE:
            raise ValueError(f"a transformed target must not have the scale {own}")
        if transform is not None and not abs(centre) < LARGEST_SCALE:
            raise ValueError(f"a transformed target must not have the mean {centre}")
    n_held = [part.n_targets for part in stream.fitted]
    if n_held not in ([n_targets], [1] * n_targets):
        raise ValueError(f"fitted must hold {n_targets} targets in all, got {n_held}")
    counts = sorted({part.n_rows for part in stream.fitted})
    if len(counts) != 1 or len({part.n_summed for part in stream.fitted}) != 1:
        raise ValueError(f"fitted must have the same number of rows, got {counts}")
    n_rows = counts[0]
    observations, kept = stream.observations, stream.kept
    if observations is not None:
        if observations.index.max() >= n_rows:
            raise ValueError(f"observations must be of {n_rows} rows")
        n_rows = observations.n_rows
    n_rows += stream.fitted[0].n_summed
    if plan.n_rows != n_rows or not plan.n_aside < n_rows:
        raise ValueError(f"plan must count {n_rows} rows, got {plan.n_rows}")
    if stream.seeds is not None and len(stream.seeds) != len(stream.fitted):
        raise ValueError(f"seeds must be {len(stream.fitted)}, got {len(stream.seeds)}")
    if kept is not None:
        if kept.y.shape != (n_rows, n_targets) or kept.X is None:
            raise ValueError(f"kept must be {n_rows} rows of {n_targets} targets")
        noise = kept.known_noise
        if kept.X.shape[1] != layout.n_columns or (noise is not None and noise.ndim > 1):
            raise ValueError(f"kept.X must have {layout.n_columns} columns")
        check_features(kept.X, stream.columns)


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


RULES[ModelState] = Rule("", {"fit_seconds": (0, codec.LARGEST)}, check=_check_state)
RULES[Stream] = Rule(
    "mean:targets scale:targets",
    {"mean": (-LARGEST, LARGEST), "scale": (LEAST, LARGEST)},
    without=("waiting", "ahead", "n_ahead", "n_asked"),
    check=_check_stream,
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
    "Layered": "triegp.files.layers",
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
