"""Conversion of a model's calibration to a header and flat arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.calibration.border import Border
from triegp.calibration.local import SETTINGS, LocalNoise
from triegp.calibration.model import CalibratedModel
from triegp.calibration.stage import Loud, Repeats, Stage
from triegp.calibration.tails import Tails
from triegp.calibration.trend import Trend
from triegp.checks import positive_number
from triegp.encoding.codes import check_precision
from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.files.contents import LARGEST_FACTOR, check_array, check_knots
from triegp.files.mixture import pack_ensemble, pack_ensemble_quickly, unpack_ensemble
from triegp.files.state import Pack, PartFormat
from triegp.models.interface import Fitted
from triegp.models.repeats import Others

Arrays = dict[str, npt.NDArray[Any]]

SEEN = ("mean", "weight", "count", "spread")  # of the observations at each training input
LARGEST_LOG = 25.0  # of a local logarithm times its slope, and of a scale
LARGEST_LINE = 1e100  # value of a trend in the box, in standardised units
LARGEST_TRUST = 1e3  # of repeated observations
STEEPEST = 1e30  # slope beyond the box, in standardised units per box width


def calibrated(base: PartFormat, engine: Engine | None = None) -> PartFormat:
    """File format of a model of kind `base`, with or without a calibration.

    engine: restores the mixtures of local noise; as in `unpack_ensemble`.
    """

    def unpack(
        facts: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[Quantiser]
    ) -> Fitted:
        fitted = base.unpack(facts, arrays, prefix, encoders)
        stages = facts.get("stages")
        if stages is None:
            return fitted
        if len(stages) != fitted.n_targets:
            raise ValueError(f"stages must be one per target, got {len(stages)}")
        n_features = encoders[0].n_working
        inputs = None
        if f"{prefix}.inputs" in arrays:
            inputs = check_array(arrays, f"{prefix}.inputs", np.uint64, (None,))
            if (inputs[1:] < inputs[:-1]).any():
                raise ValueError(f"{prefix}.inputs must be sorted")
        found = tuple(
            _unpack_stage(
                part, arrays, f"{prefix}.stage.{j}", fitted.n_rows, n_features, inputs, engine
            )
            for j, part in enumerate(stages)
        )
        if inputs is not None and any(stage.repeats is None for stage in found):
            raise ValueError(f"{prefix}.inputs need repeats of every target")
        border = _unpack_border(facts, arrays, prefix, encoders[0], fitted.n_targets)
        return CalibratedModel(fitted, found, border, inputs)

    quick = base.pack if base.pack_quickly is None else base.pack_quickly
    return PartFormat(
        base.name,
        partial(_pack_calibrated, base.pack, pack_ensemble),
        unpack,
        partial(_pack_calibrated, quick, pack_ensemble_quickly),
    )


def _pack_calibrated(
    pack_base: Pack, pack_local: Pack, fitted: Any, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a model. pack_base, pack_local: for what it calibrates, local noise."""
    if not isinstance(fitted, CalibratedModel):
        return pack_base(fitted, prefix, encoders)
    facts, arrays = pack_base(fitted.base, prefix, encoders)
    parts = []
    for j, stage in enumerate(fitted.stages):
        own, more = _pack_stage(stage, f"{prefix}.stage.{j}", pack_local)
        parts.append(own)
        arrays |= more
    facts = facts | {"stages": parts}
    if fitted.border is not None:
        facts["unrelated"] = fitted.border.unrelated
        arrays[f"{prefix}.slope"] = fitted.border.slope
    if fitted.inputs is not None:
        arrays[f"{prefix}.inputs"] = fitted.inputs
    return facts, arrays


def _pack_stage(stage: Stage, prefix: str, pack_local: Pack) -> tuple[dict[str, Any], Arrays]:
    facts: dict[str, Any] = {
        "scale": stage.scale,
        "slope": stage.slope,
        "optimism": stage.optimism,
    }
    arrays: Arrays = {
        f"{prefix}.tails": _pack_tails(stage.tails),
        f"{prefix}.logs": stage.logs,
    }
    if np.isfinite(stage.ceiling):
        facts["ceiling"] = stage.ceiling
    if stage.loud is not None:
        facts["loud"] = stage.loud.above
        arrays[f"{prefix}.loud"] = _pack_tails(stage.loud.tails)
    if stage.repeats is not None:
        facts["repeats"] = stage.repeats.scale
        arrays[f"{prefix}.repeats"] = _pack_tails(stage.repeats.tails)
        facts["repeats_slope"], facts["repeats_trust"] = stage.repeats.slope, stage.repeats.trust
        for name in SEEN:
            arrays[f"{prefix}.seen.{name}"] = getattr(stage.repeats.seen, name)
    if stage.trend is not None:
        facts["trend"] = {"share": stage.trend.share, "level": stage.trend.level}
        for name in ("low", "high", "slope", "left"):
            arrays[f"{prefix}.trend.{name}"] = getattr(stage.trend, name)
    local = stage.local
    if local is not None:
        encoder = local.encoder
        facts["local"] = {"by_var": local.by_var, "trees": local.ensemble is not None}
        if local.ensemble is not None:
            own, more = pack_local(local.ensemble, f"{prefix}.local", [encoder])
            facts["local"] |= own
            arrays |= more
        arrays[f"{prefix}.local.line"] = np.append(local.slope, local.level)
        arrays[f"{prefix}.local.low"] = encoder.low_
        arrays[f"{prefix}.local.high"] = encoder.high_
        arrays[f"{prefix}.local.precision"] = encoder.precision_
        arrays[f"{prefix}.local.knots"] = np.asarray(encoder.knots_)
    return facts, arrays


def _unpack_border(
    facts: dict[str, Any], arrays: Arrays, prefix: str, encoder: Quantiser, n_targets: int
) -> Border | None:
    if f"{prefix}.slope" not in arrays:
        return None
    shape = (n_targets, encoder.n_working)
    slope = check_array(arrays, f"{prefix}.slope", np.float64, shape)
    if slope.min() < 0 or slope.max() > STEEPEST:
        raise ValueError(f"{prefix}.slope must lie between 0 and {STEEPEST:g}")
    return Border(encoder.low_, encoder.high_, slope, bool(facts["unrelated"]))


def _unpack_stage(
    facts: dict[str, Any],
    arrays: Arrays,
    prefix: str,
    n_rows: int,
    n_features: int,
    inputs: npt.NDArray[np.uint64] | None,
    engine: Engine | None,
) -> Stage:
    scale = positive_number("scale", facts["scale"])
    slope = float(facts["slope"])
    if not (abs(math.log(scale)) < LARGEST_LOG and 0 <= slope < 10):
        raise ValueError("stage must have a scale near 1 and a slope from 0 to 10")
    logs = check_array(arrays, f"{prefix}.logs", np.float64, (n_rows,))
    if np.abs(logs).max() > LARGEST_LOG:
        raise ValueError(f"{prefix}.logs must lie between -{LARGEST_LOG} and {LARGEST_LOG}")
    local = None
    if facts.get("local") is not None:
        local = _unpack_local(facts["local"], arrays, f"{prefix}.local", n_features, engine)
    repeats = None
    if facts.get("repeats") is not None:
        n_inputs = 0 if inputs is None else inputs.size
        repeats = _unpack_repeats(facts, arrays, prefix, n_inputs)
    tails = _unpack_tails(arrays, f"{prefix}.tails")
    trend = None
    if facts.get("trend") is not None:
        trend = _unpack_trend(facts["trend"], arrays, f"{prefix}.trend", n_rows, n_features)
    ceiling = float(facts.get("ceiling", np.inf))
    if not ceiling > 0:
        raise ValueError(f"ceiling must be > 0, got {ceiling}")
    loud = None
    if facts.get("loud") is not None:
        loud = Loud(float(facts["loud"]), _unpack_tails(arrays, f"{prefix}.loud"))
        if not math.isfinite(loud.above):
            raise ValueError(f"loud must be finite, got {loud.above}")
    optimism = float(facts.get("optimism", 0.0))  # not in early files
    if not 0 <= optimism < LARGEST_LOG:
        raise ValueError(f"optimism must lie between 0 and {LARGEST_LOG}, got {optimism}")
    return Stage(scale, tails, local, slope, logs, repeats, trend, loud, optimism, ceiling)


def _unpack_repeats(facts: dict[str, Any], arrays: Arrays, prefix: str, n_inputs: int) -> Repeats:
    """Calibration of repeats; in early files their noise is the same at all inputs.

    Before format version 7 the observations were one array.
    """
    scale, tails = _check_scale(facts["repeats"]), _unpack_tails(arrays, f"{prefix}.repeats")
    if f"{prefix}.seen" not in arrays and "repeats_slope" not in facts:
        return Repeats(scale, tails, seen=Others(*np.zeros((4, n_inputs))))
    slope, trust = float(facts["repeats_slope"]), float(facts["repeats_trust"])
    if not (0 <= slope < 10 and 0 <= trust < LARGEST_TRUST):
        raise ValueError(
            f"repeats must have a slope from 0 to 10 and a trust from 0 to {LARGEST_TRUST:g}"
        )
    if f"{prefix}.seen" in arrays:
        seen = check_array(arrays, f"{prefix}.seen", np.float64, (4, n_inputs))
    else:
        parts = (f"{prefix}.seen.{name}" for name in SEEN)
        seen = np.stack([check_array(arrays, part, np.float64, (n_inputs,)) for part in parts])
    if np.abs(seen).max() > LARGEST_LINE or seen[1:].min() < 0:
        raise ValueError(f"{prefix}.seen must have weights, numbers and squares from 0 on")
    return Repeats(scale, tails, slope, trust, Others(*seen))


def _unpack_trend(
    facts: dict[str, Any], arrays: Arrays, prefix: str, n_rows: int, n_features: int
) -> Trend:
    share, level = float(facts["share"]), float(facts["level"])
    low, high, slope = (
        check_array(arrays, f"{prefix}.{name}", np.float64, (n_features,))
        for name in ("low", "high", "slope")
    )
    left = check_array(arrays, f"{prefix}.left", np.float64, (n_rows,))
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.abs(slope) @ np.maximum(np.abs(low), np.abs(high)) + abs(level)
    if not (0 <= share <= 1 and reach < LARGEST_LINE and np.abs(left).max() < LARGEST_LINE):
        raise ValueError(
            f"{prefix} must have a share from 0 to 1, and values below {LARGEST_LINE:g}"
        )
    return Trend(share, low, high, slope, level, left)


def _check_scale(value: Any) -> float:
    scale = positive_number("scale", value)
    if not abs(math.log(scale)) < LARGEST_LOG:
        raise ValueError(f"scale of a stage must be near 1, got {scale}")
    return scale


def _pack_tails(tails: Tails) -> npt.NDArray[np.float64]:
    return np.stack([tails.weight, tails.factor, tails.offset])


def _unpack_tails(arrays: Arrays, name: str) -> Tails:
    """Tails; before format version 5 they are symmetric."""
    tails = check_array(arrays, name, np.float64, (None, None))
    if len(tails) == 2:
        tails = np.vstack([tails, np.zeros(tails.shape[1])])
    if len(tails) != 3:
        raise ValueError(f"{name} must have 2 or 3 rows, got {len(tails)}")
    weight, factor, offset = tails
    if (
        weight.min() < 0
        or weight.max() > 2.0
        or abs(weight.sum() - 1.0) > 1e-6
        or not 0 < factor.min() <= factor.max() <= LARGEST_FACTOR
        or np.abs(offset).max() > LARGEST_FACTOR
        or abs(weight @ offset) > 1e-6
    ):
        raise ValueError(
            f"{name} must be weights that sum to 1, factors in (0, {LARGEST_FACTOR:g}] and offsets "
            "of mean 0"
        )
    return Tails(weight, factor, offset)


def _unpack_local(
    facts: dict[str, Any], arrays: Arrays, prefix: str, n_features: int, engine: Engine | None
) -> LocalNoise:
    by_var = bool(facts["by_var"])
    width = n_features + (2 if by_var else 1)
    encoder = Quantiser(scaling=SETTINGS.scaling)
    encoder.low_ = check_array(arrays, f"{prefix}.low", np.float64, (width,))
    encoder.high_ = check_array(arrays, f"{prefix}.high", np.float64, (width,))
    if (encoder.low_ > encoder.high_).any():
        raise ValueError(f"{prefix} must have low <= high")
    encoder.knots_ = check_knots(arrays, f"{prefix}.knots", encoder.low_, encoder.high_)
    encoder.shift_ = None
    encoder.precision_ = check_precision(arrays[f"{prefix}.precision"], width)
    encoder.n_bits_ = int(encoder.precision_.sum())
    ensemble = None
    if facts.get("trees", True):  # always, in early files
        ensemble = unpack_ensemble(facts, arrays, prefix, [encoder], engine)
        if ensemble.n_targets != 1:
            raise ValueError(f"{prefix} must be a mixture for one target, got {ensemble.n_targets}")
    line = np.zeros(width + 1)  # in early files there is none
    if f"{prefix}.line" in arrays:
        line = check_array(arrays, f"{prefix}.line", np.float64, (width + 1,))
    return LocalNoise(ensemble, encoder, by_var, line[:-1], float(line[-1]))
