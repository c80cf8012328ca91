"""Conversion of a fitted estimator to a header and flat arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.checks import boolean, one_of, positive_number, whole_number
from triegp.encoding.codes import check_precision
from triegp.encoding.columns import Columns
from triegp.encoding.layout import Layout
from triegp.encoding.quantiser import OUTSIDE, Quantiser
from triegp.encoding.scaling import SCALINGS
from triegp.files.contents import check_array, check_knots, check_training_rows
from triegp.files.curves import pack_curve, unpack_curve
from triegp.files.tables import check_codes, pack_table, unpack_table
from triegp.files.transforms import pack_transforms, unpack_transforms
from triegp.models.curve import TrainingCurve
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations
from triegp.models.transforms import Transform
from triegp.tree.rows import Rows

Arrays = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
Pack = Callable[[Any, str, Sequence[Quantiser]], tuple[dict[str, Any], Arrays]]

LARGEST = 1e308  # mean or scale of targets
LARGEST_UNIT = 1e31  # of weights, which are at most 1e30
LARGEST_COUNT = 1e100  # weight of one observation, and one over the smallest
LARGEST_SCALE = 1e150  # of transformed targets, whose variances are needed


@dataclass(frozen=True)
class PartFormat:
    """File format of one kind of trained model; a file holds one per target, or one for all.

    Attributes
    ----------
    name : str
        Name of the kind. The header entry is the plural, `name` + "s", a list of facts. The arrays
        of model k are named `name.k` + "." + their own name.
    pack : callable (fitted, prefix, encoders) -> (facts, arrays)
        Converts a model to facts that JSON can hold, and to arrays whose names begin with prefix.
    unpack : callable (facts, arrays, prefix, encoders) -> fitted
        Restores the model to the same bits. It checks everything that it relies on and raises an
        error otherwise, since a file may contain anything.
    pack_quickly : callable or None, default=None
        Like `pack`, for pickles and copies: larger, but it takes less time. `unpack` reads both.
        None if `pack` is quick.
    """

    name: str
    pack: Pack
    unpack: Callable[[dict[str, Any], Arrays, str, Sequence[Quantiser]], Fitted]
    pack_quickly: Pack | None = None


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


PLAN_COUNTS = ("n_rows", "n_fit", "n_model", "n_calibrated", "n_aside")
PLAN_BOXES = ("lowest", "highest")


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
        Source of the random numbers of each model; None in files before format version 3.
    transforms : tuple of (Transform or None)
        Transform of each target, None for the identity; empty if no target is transformed.
    fit_seconds : float or None
        Wall-clock seconds of the last fit; None in older files.
    curve : TrainingCurve or None
        Nll per row during the last fit; None in older files.
    divided : bool
        Whether weights divide the noise variance of an observation, as they did at the last fit;
        in older files, what the parameter `weights` says.
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
    fit_seconds: float | None = None
    curve: TrainingCurve | None = None
    divided: bool = False


def pack_model(
    state: ModelState, kind: PartFormat, training_data: bool, *, quickly: bool = False
) -> tuple[dict[str, Any], Arrays]:
    """Convert a fitted estimator to a header that JSON can hold, and arrays.

    quickly: in less time, with larger arrays.
    """
    pack = kind.pack_quickly if quickly and kind.pack_quickly is not None else kind.pack
    header: dict[str, Any] = {
        "one_dimensional": state.one_dimensional,
        "stopped_early": state.stopped_early,
        "n_evaluations": state.n_evaluations,
        "fit_seconds": state.fit_seconds,
        "divided": state.divided,
        "feature_names": None if state.columns.names is None else list(state.columns.names),
        "scalings": [encoder.scaling for encoder in state.encoders],
        "margin": float(state.encoders[0].margin),
        "outside": state.encoders[0].outside,
        "has_rows": False,
        f"{kind.name}s": [],
    }
    arrays: Arrays = {"target_mean": state.target_mean, "target_scale": state.target_scale}
    table_facts, table_arrays = pack_table(state.columns, state.layout)
    header["table"] = table_facts
    arrays |= table_arrays
    for k, encoder in enumerate(state.encoders):
        arrays[f"encoder.{k}.low"] = encoder.low_
        arrays[f"encoder.{k}.high"] = encoder.high_
        arrays[f"encoder.{k}.precision"] = encoder.precision_
        if encoder.knots_ is not None:
            arrays[f"encoder.{k}.knots"] = encoder.knots_
    header["training_curve"], own = pack_curve(state.curve)
    arrays |= own
    plan = state.plan
    header["plan"] = {name: getattr(plan, name) for name in PLAN_COUNTS}
    header["plan"] |= {
        "varied_at_fit": plan.varied_at_fit.tolist(),
        "varied": plan.varied.tolist(),
        "n_newest": plan.n_newest,
    }
    arrays |= {f"plan.{name}": getattr(plan, name) for name in (*PLAN_BOXES, "level")}
    header["seeds"] = None
    if state.seeds is not None:
        header["seeds"] = [[list(seed.entropy), list(seed.key)] for seed in state.seeds]
    if state.transforms:
        header["transforms"], own = pack_transforms(state.transforms)
        arrays |= own
    for k, fitted in enumerate(state.fitted):
        facts, own = pack(fitted, f"{kind.name}.{k}", state.encoders)
        header[f"{kind.name}s"].append(facts)
        arrays |= own
    if state.observations is not None:
        arrays["rows.index"] = state.observations.index.astype(np.int32)  # at most 2^30 rows
        arrays["rows.standardised"] = state.observations.y
        if state.observations.weight is not None:
            arrays["rows.counted"] = state.observations.weight
        header["copies"] = state.observations.copies
        header["weight_unit"] = state.observations.unit
    if training_data:
        if state.kept is None:
            raise ValueError("training_data=True requires a model fitted with keep_rows=True")
        header["has_rows"] = True
        kept = state.kept
        parts = {
            "X": kept.X,
            "targets": kept.y,
            "weight": kept.weight,
            "known_noise": kept.known_noise,
        }
        arrays |= {f"rows.{name}": part for name, part in parts.items() if part is not None}
    return header, arrays


def unpack_model(header: dict[str, Any], arrays: Arrays, kind: PartFormat) -> ModelState:
    """Restore a fitted estimator from header and arrays; raises ValueError for invalid contents."""
    encoders = tuple(_unpack_encoder(header, arrays, k) for k in range(len(header["scalings"])))
    if len({encoder.n_working for encoder in encoders}) > 1:
        raise ValueError("encoders must have the same number of features")
    columns, layout = unpack_table(header, arrays, encoders)
    if columns.names is not None:
        for encoder in encoders:
            encoder.feature_names_in_ = np.array(layout.names(columns.names), dtype=object)
    target_mean = check_array(arrays, "target_mean", np.float64, (None,))
    n_targets = target_mean.size
    target_scale = check_array(arrays, "target_scale", np.float64, (n_targets,))
    if not (target_scale > 0).all():
        raise ValueError("target_scale must be > 0 for every target")
    if np.abs(target_mean).max() > LARGEST or target_scale.max() > LARGEST:
        raise ValueError(f"target_mean and target_scale must be at most {LARGEST:g} in size")
    transforms = unpack_transforms(header.get("transforms"), arrays, n_targets)
    for scale, transform in zip(target_scale, transforms, strict=False):  # often there are none
        if transform is not None and not 1.0 / LARGEST_SCALE < scale < LARGEST_SCALE:
            raise ValueError(f"a transformed target must not have the scale {scale}")
    one_dimensional = bool(header["one_dimensional"])
    parts = tuple(
        kind.unpack(facts, arrays, f"{kind.name}.{k}", encoders)
        for k, facts in enumerate(header[f"{kind.name}s"])
    )
    n_rows = _count_rows(parts, n_targets, kind.name)
    if one_dimensional and n_targets != 1:
        raise ValueError(f"one_dimensional requires one target, got {n_targets}")
    observations = None
    if "rows.index" in arrays:
        observations = _unpack_observations(header, arrays, parts, n_rows)
        n_rows = observations.n_rows
    n_rows += parts[0].n_summed
    kept = None
    if header["has_rows"]:
        check_training_rows(arrays, n_rows, layout.n_columns, n_targets)
        check_codes(arrays["rows.X"], columns)
        extras = arrays.get("rows.known_noise"), arrays.get("rows.weight")
        kept = Rows(arrays["rows.targets"], *extras, arrays["rows.X"])
    return ModelState(
        encoders=encoders,
        target_mean=target_mean,
        target_scale=target_scale,
        one_dimensional=one_dimensional,
        stopped_early=bool(header["stopped_early"]),
        n_evaluations=int(header["n_evaluations"]),
        columns=columns,
        layout=layout,
        fitted=parts,
        kept=kept,
        observations=observations,
        plan=_unpack_plan(header, arrays, encoders[0], target_mean, parts[0].n_rows, n_rows),
        seeds=_unpack_seeds(header.get("seeds"), len(parts)),
        transforms=transforms,
        fit_seconds=_unpack_seconds(header.get("fit_seconds")),
        curve=unpack_curve(header.get("training_curve"), arrays),
        divided=_unpack_divided(header),
    )


def _unpack_plan(
    header: dict[str, Any],
    arrays: Arrays,
    encoder: Quantiser,
    mean: Floats,
    n_model: int,
    n_rows: int,
) -> Plan:
    """The plan; before format version 3 it is that of a model fitted to all of its rows."""
    low, high, n_targets = encoder.low_, encoder.high_, mean.size
    facts = header.get("plan")
    if facts is None:
        if n_model > n_rows:
            raise ValueError(f"models must have at most {n_rows} rows, as were passed")
        varied = np.ones(n_targets, bool)
        counts = (n_rows, n_rows, n_model, n_rows, 0)
        return Plan(*counts, low, high, low, high, mean, varied, varied)
    n_passed, n_fit, n_first, n_calibrated, n_aside = (int(facts[name]) for name in PLAN_COUNTS)
    if n_passed != n_rows or not 0 <= n_aside < n_rows:
        raise ValueError(f"plan must count {n_rows} rows, got {n_passed}, {n_aside} set aside")
    if not (0 <= n_first <= n_fit <= n_calibrated <= n_rows):  # 0: those of the fit are forgotten
        raise ValueError("plan must have 0 <= n_model <= n_fit <= n_calibrated <= n_rows")
    lowest, highest = (
        check_array(arrays, f"plan.{name}", np.float64, low.shape) for name in PLAN_BOXES
    )
    if (lowest > highest).any():  # they may lie inside the box: rows can be forgotten
        raise ValueError("plan.lowest must not exceed plan.highest")
    level = check_array(arrays, "plan.level", np.float64, (n_targets,))
    flags = np.array([facts["varied_at_fit"], facts["varied"]], bool)
    if flags.shape != (2, n_targets):
        raise ValueError(f"plan must have {n_targets} flags of each kind")
    n_newest = whole_number("n_newest", facts.get("n_newest", 0), least=0)  # older files lack it
    counts = (n_rows, n_fit, n_first, n_calibrated, n_aside)
    boxes = (low, high, lowest, highest)
    return Plan(*counts, *boxes, level, flags[0], flags[1], n_newest=n_newest)


def _unpack_divided(header: dict[str, Any]) -> bool:
    if "divided" in header:
        return boolean("divided", header["divided"])
    return bool(header["parameters"].get("weights", "frequency") == "precision")


def _unpack_seconds(seconds: Any) -> float | None:
    if seconds is None:
        return None
    if type(seconds) is not float or not 0 <= seconds < np.inf:
        raise ValueError(f"fit_seconds must be a number >= 0, got {seconds!r:.40}")
    return seconds


def _unpack_seeds(seeds: Any, n_models: int) -> tuple[Seed, ...] | None:
    if seeds is None:
        return None
    found = tuple(Seed(*(tuple(map(int, part)) for part in seed)) for seed in seeds)
    if len(found) != n_models or any(n < 0 for seed in found for part in seed for n in part):
        raise ValueError(f"seeds must be {n_models} pairs of non-negative integers")
    return found


def _unpack_observations(
    header: dict[str, Any], arrays: Arrays, parts: tuple[Fitted, ...], n_rows: int
) -> Observations:
    """The rows as they were passed; before format version 3 only their index was stored.

    Before format version 7 the index had 64 bits.
    """
    kind = np.int64 if arrays["rows.index"].dtype == np.int64 else np.int32
    index = check_array(arrays, "rows.index", kind, (None,)).astype(np.int64)
    if index.min() < -1 or index.max() >= n_rows:
        raise ValueError(f"rows.index must lie between -1 and {n_rows - 1}")
    if "rows.standardised" not in arrays:
        columns = [part.observed(j)[0] for part in parts for j in range(part.n_targets)]
        row = np.maximum(index, 0)
        return Observations(index, np.stack([y[row] for y in columns], axis=1), None, True)
    n_targets = sum(part.n_targets for part in parts)
    y = check_array(arrays, "rows.standardised", np.float64, (index.size, n_targets))
    weight = None
    if "rows.counted" in arrays:
        weight = check_array(arrays, "rows.counted", np.float64, (index.size,))
        if ((weight != 0.0) & ~((weight >= 1.0 / LARGEST_COUNT) & (weight <= LARGEST_COUNT))).any():
            raise ValueError(
                f"rows.counted must be 0 or in [{1.0 / LARGEST_COUNT:g}, {LARGEST_COUNT:g}], "
                f"got {weight.min()} to {weight.max()}"
            )
    with np.errstate(over="ignore"):
        squares = np.square(y) if weight is None else weight[:, None] * np.square(y)
        if not np.isfinite(squares.sum()):
            raise ValueError("rows.standardised must have squares that float64 can hold")
    unit = positive_number("weight_unit", header["weight_unit"])
    if not 1.0 / LARGEST_UNIT <= unit <= LARGEST_UNIT:
        raise ValueError(f"weight_unit must be at most {LARGEST_UNIT:g}, or its inverse")
    return Observations(index, y, weight, bool(header["copies"]), unit)


def _unpack_encoder(header: dict[str, Any], arrays: Arrays, k: int) -> Quantiser:
    """The k-th encoder, without shift."""
    scaling = one_of("scaling", header["scalings"][k], SCALINGS)
    outside = one_of("outside", header["outside"], OUTSIDE)
    margin = float(header["margin"])
    encoder = Quantiser(scaling=scaling, outside=outside, margin=margin)
    encoder.low_ = check_array(arrays, f"encoder.{k}.low", np.float64, (None,))
    n_features = encoder.n_working
    encoder.high_ = check_array(arrays, f"encoder.{k}.high", np.float64, (n_features,))
    if not (np.isfinite(margin) and margin >= 0 and (encoder.low_ <= encoder.high_).all()):
        raise ValueError("encoder must have margin >= 0 and low <= high, all finite")
    encoder.knots_ = encoder.shift_ = None
    if scaling == "ecdf":
        encoder.knots_ = check_knots(arrays, f"encoder.{k}.knots", encoder.low_, encoder.high_)
    encoder.precision_ = check_precision(arrays[f"encoder.{k}.precision"], n_features)
    encoder.n_bits_ = int(encoder.precision_.sum())
    return encoder


def _count_rows(parts: tuple[Fitted, ...], n_targets: int, name: str) -> int:
    """Number of rows of the parts, which must be one per target, or one for all targets."""
    held = [part.n_targets for part in parts]
    if held not in ([n_targets], [1] * n_targets):
        raise ValueError(f"{name}s must hold {n_targets} targets in all, got {held}")
    counts = {part.n_rows for part in parts}
    if len(counts) != 1:
        raise ValueError(f"{name}s must have the same number of rows, got {sorted(counts)}")
    return counts.pop()


def upgrade_header(header: dict[str, Any]) -> dict[str, Any]:
    """Convert a header of an older format version.

    Before version 6 all columns were numbers, without `table`. Version 1 did not store the
    optimiser's steps, `n_iter`.
    """
    if header["version"] < 6:
        header = header | {"table": None}
    if header["version"] > 1:
        return header
    renamed = {"tolerance": "tol"}
    parameters = {renamed.get(name, name): value for name, value in header["parameters"].items()}
    ensembles = [
        {"members": [{"n_iter": None, **facts} for facts in part["members"]]}
        for part in header.get("ensembles", [])
    ]
    return header | {"parameters": parameters} | ({"ensembles": ensembles} if ensembles else {})


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
