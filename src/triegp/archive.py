"""A model as a header and flat arrays, and back: what a model file holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.calibration import Calibration
from triegp.codes import check_precision
from triegp.contents import (
    check_array,
    check_index,
    check_mixing,
    check_observations,
    check_order,
    check_rows,
    check_training_rows,
)
from triegp.encoding import OUTSIDE, BitEncoder
from triegp.engines import CpuEngine
from triegp.ensemble import Ensemble, Member
from triegp.observations import check_dtype
from triegp.posterior import restore
from triegp.scaling import N_STEPS
from triegp.streaming import Stream
from triegp.targets import TrainingRows
from triegp.training import Fit
from triegp.trie import link_rows
from triegp.validation import one_of, positive_number

Arrays = dict[str, npt.NDArray[Any]]


def pack_ensemble(
    ensemble: Ensemble, prefix: str, encoders: Sequence[BitEncoder]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of an ensemble, names beginning with prefix."""
    arrays: Arrays = {
        f"{prefix}.weight": np.stack([part.weight for part in ensemble.calibrations]),
        f"{prefix}.tempering": np.array(
            [[p.shrink, p.scale, p.stray, p.stray_var] for p in ensemble.calibrations]
        ),
    }
    first = ensemble.members[0].posteriors
    arrays[f"{prefix}.targets"] = np.stack([posterior.rows.y for posterior in first])
    if first[0].rows.weight is not None:
        arrays[f"{prefix}.row_weight"] = first[0].rows.weight
    members = []
    for k, member in enumerate(ensemble.members):
        name = f"{prefix}.{k}"
        posterior = member.posteriors[0]
        if member.encoder.shift_ is not None:
            arrays[f"{name}.shift"] = member.encoder.shift_
        arrays[f"{name}.bits"] = member.order.bits
        arrays[f"{name}.remaining"] = member.order.remaining
        arrays[f"{name}.row_idx"] = posterior.trie.row_idx
        arrays[f"{name}.lcp"] = posterior.trie.links.lcp
        arrays[f"{name}.keys"] = posterior.keys
        for t, part in enumerate(member.posteriors):
            arrays[f"{name}.noise.{t}"] = part.rows.noise
        members.append(
            {
                "encoder": [e.scaling for e in encoders].index(member.encoder.scaling),
                "nugget": member.order.nugget,
                "noise": posterior.noise,
                "dtype": posterior.inside[0].dtype.name,
                "nll_per_row": member.fit.nll_per_row,
                "n_evaluations": member.fit.n_evaluations,
                "converged": member.fit.converged,
            }
        )
    return {"members": members}, arrays


def unpack_ensemble(
    header: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[BitEncoder]
) -> Ensemble:
    """The ensemble of a header and arrays, its messages swept anew.

    All that the engines rely on is checked first: a file may say anything.
    """
    targets = check_array(arrays, f"{prefix}.targets", np.float64, (None, None))
    weight = None
    if f"{prefix}.row_weight" in arrays:
        weight = check_array(arrays, f"{prefix}.row_weight", np.float64, targets.shape[1:])
    mixing = check_array(
        arrays, f"{prefix}.weight", np.float64, (targets.shape[0], len(header["members"]))
    )
    tempering = check_array(arrays, f"{prefix}.tempering", np.float64, (targets.shape[0], 4))
    check_mixing(mixing, tempering)
    members = []
    for k, facts in enumerate(header["members"]):
        name = f"{prefix}.{k}"
        own = check_index("encoder", facts["encoder"], encoders)
        if f"{name}.shift" in arrays:
            own = own.with_shift(arrays[f"{name}.shift"])
        order = check_order(arrays, name, own.n_bits_, facts["nugget"])
        row_idx, lcp, keys = check_rows(arrays, name, targets.shape[1], order.n_levels)
        trie = link_rows(order.key_bits, row_idx, lcp, CpuEngine())
        dtype = check_dtype(facts["dtype"])
        posteriors = tuple(
            restore(
                trie,
                keys,
                order,
                positive_number("noise", facts["noise"]),
                check_observations(y, arrays, f"{name}.noise.{t}", weight, dtype),
                dtype,
            )
            for t, y in enumerate(targets)
        )
        fit = Fit(
            order,
            float(facts["nll_per_row"]),
            int(facts["n_evaluations"]),
            bool(facts["converged"]),
        )
        members.append(Member(own, fit, posteriors))
    calibrations = tuple(
        Calibration(weight, *numbers)
        for weight, numbers in zip(mixing, tempering.tolist(), strict=True)
    )
    return Ensemble(tuple(members), calibrations)


def pack_model(model: Any, training_data: bool) -> tuple[dict[str, Any], Arrays]:
    """All that the fitted model is: a header for JSON, and arrays."""
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
        "ensembles": [],
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
    for k, ensemble in enumerate(model.ensembles_):
        facts, own = pack_ensemble(ensemble, f"ensemble.{k}", model.encoders_)
        header["ensembles"].append(facts)
        arrays |= own
    if training_data:
        if model.rows_ is None:
            raise ValueError("training_data=True needs a model fitted with keep_rows=True")
        header["has_rows"] = True
        arrays |= model.rows_.arrays()
    return header, arrays


def unpack_model(model: Any, header: dict[str, Any], arrays: Arrays) -> None:
    """Fill an unfitted model, made with the header's parameters, from a header and arrays."""
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
    ensembles = tuple(
        unpack_ensemble(facts, arrays, f"ensemble.{k}", model.encoders_)
        for k, facts in enumerate(header["ensembles"])
    )
    n_rows = _count_rows(ensembles, n_targets)
    if model.one_dimensional_ and n_targets != 1:
        raise ValueError(f"one_dimensional must come with one target, got {n_targets}")
    if header["has_rows"]:
        check_training_rows(arrays, n_rows, n_features, n_targets)
    kept = TrainingRows.from_arrays(arrays) if header["has_rows"] else None
    model._stream = Stream(ensembles, kept)


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


def _count_rows(ensembles: tuple[Ensemble, ...], n_targets: int) -> int:
    """Number of rows of all ensembles, which must hold all targets: one each, or one for all."""
    held = [len(ensemble.calibrations) for ensemble in ensembles]
    if held not in ([n_targets], [1] * n_targets):
        raise ValueError(f"ensembles must hold {n_targets} targets, got {held}")
    counts = {ensemble.members[0].posteriors[0].n_rows for ensemble in ensembles}
    if len(counts) != 1:
        raise ValueError(f"ensembles must have the same number of rows, got {sorted(counts)}")
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
