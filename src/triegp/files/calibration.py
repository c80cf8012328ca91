"""Rules for a model's calibration in a model file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from triegp.calibration.border import Border
from triegp.calibration.local import LocalNoise
from triegp.calibration.model import CalibratedModel, base_of
from triegp.calibration.stage import Repeats, Stage
from triegp.calibration.tails import Tails
from triegp.calibration.trend import Trend
from triegp.encoding.quantiser import Quantiser
from triegp.files.codec import LEAST, RULES, Rule, never_falling
from triegp.models.interface import Fitted
from triegp.models.repeats import Others

__all__ = ["CalibratedModel", "base_of"]

LARGEST_FACTOR = 1e6  # by which calibration may widen a standard deviation
LARGEST_LOG = 25.0  # of a local logarithm times its slope, and of a scale
LARGEST_LINE = 1e100  # value of a trend in the box, in standardised units
STEEPEST = 1e30  # slope beyond the box, in standardised units per box width
SCALES = (math.exp(-LARGEST_LOG), math.exp(LARGEST_LOG))
SLOPES, TRUSTS = (0.0, 10.0), (0.0, 1e3)
VALUES, POSITIVE = (-LARGEST_LINE, LARGEST_LINE), (0.0, LARGEST_LINE)


def encoders_of(fitted: Any) -> tuple[Quantiser, ...]:
    """The encoders of the trees of a model without calibration."""
    found: tuple[Quantiser, ...] = ()
    for layer in layers_of(fitted):
        trees = getattr(layer, "members", ())
        found += tuple(tree.encoder for tree in trees)
        found += getattr(getattr(layer, "model", None), "encoders", ())
    return found


def layers_of(fitted: Any) -> tuple[Any, ...]:
    """The models of trees that a model without calibration consists of."""
    return (fitted.base, fitted.rest) if hasattr(fitted, "rest") else (fitted,)


def check_encoders(fitted: Fitted, known: tuple[Quantiser, ...]) -> None:
    """Raise ValueError unless the trees of a model have the boxes of known encoders."""
    boxes = {encoder.box for encoder in known}
    if any(encoder.box not in boxes for encoder in encoders_of(fitted)):
        raise ValueError("encoders of trees must have the box of an encoder of the model")


def _check_calibrated(model: CalibratedModel) -> None:
    base, stages, border, inputs = model.base, model.stages, model.border, model.inputs
    if isinstance(base, CalibratedModel) or len(stages) != base.n_targets:
        raise ValueError(f"stages must be one per target, got {len(stages)}")
    box = encoders_of(base)[0]
    d = box.n_working
    for stage in stages:
        local, repeats = stage.local, stage.repeats
        if stage.logs.size != base.n_rows:
            raise ValueError(f"logs must have {base.n_rows} entries, got {stage.logs.size}")
        if local is not None and local.slope.size != d + (2 if local.by_var else 1):
            raise ValueError(f"local must have {d} features and those of predictions")
        if (inputs is not None and repeats is None) or (
            repeats is not None and repeats.seen.mean.size != (0 if inputs is None else inputs.size)
        ):
            raise ValueError("inputs need repeats of every target, of as many inputs")
    if border is not None and len(border.slope) != len(stages):
        raise ValueError(f"border must have slopes of {len(stages)} targets")
    if border is not None and not (
        np.array_equal(border.low, box.low_) and np.array_equal(border.high, box.high_)
    ):
        raise ValueError("border must be that of the box of the trees")


def _check_tails(tails: Tails) -> None:
    if abs(tails.weight.sum() - 1.0) > 1e-6 or abs(tails.weight @ tails.offset) > 1e-6:
        raise ValueError("weight must sum to 1, and offset have mean 0")


def _check_local(local: LocalNoise) -> None:
    if local.slope.size != local.encoder.n_working or local.encoder.knots_ is None:
        raise ValueError("slope must have one entry per feature of the encoder, which has knots")
    if local.ensemble is not None:
        check_encoders(local.ensemble, (local.encoder,))
        if local.ensemble.n_targets != 1:
            raise ValueError("ensemble must be a mixture for one target")


def _check_trend(trend: Trend) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.maximum(np.abs(trend.low), np.abs(trend.high))
        reach = np.abs(trend.slope) @ size + abs(trend.level)
    if not reach < LARGEST_LINE:
        raise ValueError(f"values of a trend must be below {LARGEST_LINE:g}")


RULES[CalibratedModel] = Rule(
    "inputs:n", {"inputs": never_falling}, without=("late",), check=_check_calibrated
)
RULES[Border] = Rule("low:features high:features slope:k,features", {"slope": (0, STEEPEST)})
RULES[Stage] = Rule(
    "logs:rows",
    {
        "scale": SCALES,
        "slope": SLOPES,
        "logs": (-LARGEST_LOG, LARGEST_LOG),
        "optimism": (0, LARGEST_LOG),
        "ceiling": (LEAST, math.inf),
    },
    odd=("ceiling",),
)
RULES[Tails] = Rule(
    "weight:j factor:j offset:j",
    {
        "weight": (0, 2),
        "factor": (LEAST, LARGEST_FACTOR),
        "offset": (-LARGEST_FACTOR, LARGEST_FACTOR),
    },
    check=_check_tails,
)
RULES[Repeats] = Rule("", {"scale": SCALES, "slope": SLOPES, "trust": TRUSTS})
RULES[Others] = Rule(
    "mean:N weight:N count:N spread:N",
    {"mean": VALUES, "weight": POSITIVE, "count": POSITIVE, "spread": POSITIVE},
)
RULES[Trend] = Rule(
    "low:features high:features slope:features left:rows",
    {"share": (0, 1), "left": VALUES},
    check=_check_trend,
)
RULES[LocalNoise] = Rule("slope:p", check=_check_local)
