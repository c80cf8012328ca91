"""A model as a header and flat arrays, and back: what a model file holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import one_of
from triegp.encoding.codes import check_precision
from triegp.encoding.encoder import OUTSIDE, BitEncoder
from triegp.encoding.scaling import N_STEPS
from triegp.files.contents import check_array, check_training_rows
from triegp.models.contract import Fitted
from triegp.models.rows import TrainingRows
from triegp.models.streaming import Stream

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class PartFormat:
    """How one kind of trained model lies in a file; a model holds one, or one a target.

    Attributes
    ----------
    name : str
        Of the kind: the k-th is entry k of `name`s in the header, its arrays begin with `name.k`.
    pack : callable (fitted, prefix, encoders) -> (facts, arrays)
        What of it goes into the header, as JSON holds it, and its arrays, named prefix.something.
    unpack : callable (facts, arrays, prefix, encoders) -> fitted
        The same bits again, or an error: it checks all that it relies on, a file may say anything.
    """

    name: str
    pack: Callable[[Any, str, Sequence[BitEncoder]], tuple[dict[str, Any], Arrays]]
    unpack: Callable[[dict[str, Any], Arrays, str, Sequence[BitEncoder]], Fitted]


def pack_model(model: Any, training_data: bool) -> tuple[dict[str, Any], Arrays]:
    """All that a fitted `TreeGPRegressor` is: a header for JSON, and arrays."""
    kind: PartFormat = model._format
    stream: Stream = model._settled()
    header: dict[str, Any] = {
        "estimator": type(model).__name__,
        "parameters": _plain(model.get_params(deep=False)),
        "one_dimensional": model.one_dimensional_,
        "stopped_early": bool(model.stopped_early_),
        "n_evaluations": int(model.n_evaluations_),
        "feature_names": None,
        "scalings": [encoder.scaling for encoder in model.encoders_],
        "margin": float(model.encoders_[0].margin),
        "outside": model.encoders_[0].outside,
        "has_rows": False,
        f"{kind.name}s": [],
    }
    if hasattr(model, "feature_names_in_"):
        header["feature_names"] = [str(name) for name in model.feature_names_in_]
    arrays = {"target_mean": model.target_mean_, "target_scale": model.target_scale_}
    for k, encoder in enumerate(model.encoders_):
        arrays[f"encoder.{k}.low"] = encoder.low_
        arrays[f"encoder.{k}.high"] = encoder.high_
        arrays[f"encoder.{k}.precision"] = encoder.precision_
        if encoder.knots_ is not None:
            arrays[f"encoder.{k}.knots"] = encoder.knots_
    for k, fitted in enumerate(stream.fitted):
        facts, own = kind.pack(fitted, f"{kind.name}.{k}", model.encoders_)
        header[f"{kind.name}s"].append(facts)
        arrays |= own
    if training_data:
        if stream.kept is None:
            raise ValueError("training_data=True needs a model fitted with keep_rows=True")
        header["has_rows"] = True
        arrays |= stream.kept.arrays()
    return header, arrays


def unpack_model(model: Any, header: dict[str, Any], arrays: Arrays) -> None:
    """Fill an unfitted `TreeGPRegressor`, made with the header's parameters."""
    encoders = [_unpack_encoder(header, arrays, k) for k in range(len(header["scalings"]))]
    n_features = encoders[0].n_features_in_
    if any(encoder.n_features_in_ != n_features for encoder in encoders):
        raise ValueError("encoders must have the same number of features")
    model.encoders_ = tuple(encoders)
    model.n_features_in_ = n_features
    if header["feature_names"] is not None:
        model.feature_names_in_ = encoders[0].feature_names_in_
    model.target_mean_ = check_array(arrays, "target_mean", np.float64, (None,))
    n_targets = model.target_mean_.size
    model.target_scale_ = check_array(arrays, "target_scale", np.float64, (n_targets,))
    if not (model.target_scale_ > 0).all():
        raise ValueError("target_scale must be positive")
    model.one_dimensional_ = bool(header["one_dimensional"])
    model.stopped_early_ = bool(header["stopped_early"])
    model.n_evaluations_ = int(header["n_evaluations"])
    kind: PartFormat = model._format
    parts = tuple(
        kind.unpack(facts, arrays, f"{kind.name}.{k}", model.encoders_)
        for k, facts in enumerate(header[f"{kind.name}s"])
    )
    n_rows = _count_rows(parts, n_targets, kind.name)
    if model.one_dimensional_ and n_targets != 1:
        raise ValueError(f"one_dimensional must come with one target, got {n_targets}")
    if header["has_rows"]:
        check_training_rows(arrays, n_rows, n_features, n_targets)
    kept = TrainingRows.from_arrays(arrays) if header["has_rows"] else None
    model._stream = Stream(parts, kept)


def _unpack_encoder(header: dict[str, Any], arrays: Arrays, k: int) -> BitEncoder:
    """The k-th encoder, without shift."""
    scaling = one_of("scaling", header["scalings"][k], ("minmax", "ecdf"))
    outside = one_of("outside", header["outside"], OUTSIDE)
    margin = float(header["margin"])
    encoder = BitEncoder(scaling=scaling, outside=outside, margin=margin)
    encoder.low_ = check_array(arrays, f"encoder.{k}.low", np.float64, (None,))
    n_features = encoder.n_features_in_ = encoder.low_.size
    encoder.high_ = check_array(arrays, f"encoder.{k}.high", np.float64, (n_features,))
    if not (np.isfinite(margin) and margin >= 0 and (encoder.low_ <= encoder.high_).all()):
        raise ValueError("the box must have a margin that is not negative, and low <= high")
    encoder.knots_ = encoder.shift_ = None
    if scaling == "ecdf":
        knots = check_array(arrays, f"encoder.{k}.knots", np.float64, (n_features, N_STEPS + 1))
        if (np.diff(knots) < 0).any():
            raise ValueError("knots must not fall")
        encoder.knots_ = knots
    encoder.precision_ = check_precision(arrays[f"encoder.{k}.precision"], n_features)
    encoder.n_bits_ = int(encoder.precision_.sum())
    names = header["feature_names"]
    if names is not None:
        if len(names) != n_features or not all(isinstance(name, str) for name in names):
            raise ValueError(f"feature_names must be {n_features} names, got {names!r:.80}")
        encoder.feature_names_in_ = np.array(names, dtype=object)
    return encoder


def _count_rows(parts: tuple[Fitted, ...], n_targets: int, name: str) -> int:
    """Number of rows of all parts, which must hold all targets: one each, or one for all."""
    held = [part.n_targets for part in parts]
    if held not in ([n_targets], [1] * n_targets):
        raise ValueError(f"{name}s must hold {n_targets} targets, got {held}")
    counts = {part.n_rows for part in parts}
    if len(counts) != 1:
        raise ValueError(f"{name}s must have the same number of rows, got {sorted(counts)}")
    return counts.pop()


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON holds them."""
    return {
        name: None if name == "random_state" and not _is_seed(value) else _plain_value(value)
        for name, value in parameters.items()
    }


def _is_seed(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _plain_value(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays, their scalars, columns of tables
        value = value.tolist()
    return [_plain_value(part) for part in value] if isinstance(value, (list, tuple)) else value
