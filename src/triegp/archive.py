"""A model as a header and flat arrays, and back: what a model file holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.calibration import Calibration
from triegp.encoding import BitEncoder
from triegp.engines import CpuEngine
from triegp.ensemble import Ensemble, Member
from triegp.observations import Observations
from triegp.order import BitOrder
from triegp.posterior import restore
from triegp.targets import TrainingRows
from triegp.training import Fit
from triegp.trie import link_rows

Arrays = dict[str, npt.NDArray[Any]]


def pack_ensemble(
    ensemble: Ensemble, prefix: str, encoders: Sequence[BitEncoder]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of an ensemble, names beginning with prefix."""
    arrays: Arrays = {
        f"{prefix}.weight": np.stack([part.weight for part in ensemble.calibrations]),
        f"{prefix}.tempering": np.array([[p.shrink, p.scale] for p in ensemble.calibrations]),
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
    """The ensemble of a header and arrays, its messages swept anew."""
    targets = arrays[f"{prefix}.targets"]
    weight = arrays.get(f"{prefix}.row_weight")
    members = []
    for k, facts in enumerate(header["members"]):
        name = f"{prefix}.{k}"
        shift = arrays.get(f"{name}.shift")
        encoder = encoders[facts["encoder"]]
        own = encoder if shift is None else encoder.with_shift(shift)
        order = BitOrder(arrays[f"{name}.bits"], arrays[f"{name}.remaining"], facts["nugget"])
        trie = link_rows(
            order.key_bits, arrays[f"{name}.row_idx"], arrays[f"{name}.lcp"], CpuEngine()
        )
        posteriors = tuple(
            restore(
                trie,
                arrays[f"{name}.keys"],
                order,
                facts["noise"],
                Observations(y, arrays[f"{name}.noise.{t}"], weight),
                np.dtype(facts["dtype"]),
            )
            for t, y in enumerate(targets)
        )
        fit = Fit(order, facts["nll_per_row"], facts["n_evaluations"], facts["converged"])
        members.append(Member(own, fit, posteriors))
    calibrations = tuple(
        Calibration(weight, float(shrink), float(scale))
        for weight, (shrink, scale) in zip(
            arrays[f"{prefix}.weight"], arrays[f"{prefix}.tempering"], strict=True
        )
    )
    return Ensemble(tuple(members), calibrations)


def pack_model(model: Any, training_data: bool) -> tuple[dict[str, Any], Arrays]:
    """All that the fitted model is: a header for JSON, and arrays."""
    header: dict[str, Any] = {
        "estimator": type(model).__name__,
        "parameters": _plain(model.get_params(deep=False)),
        "one_dimensional": model.one_dimensional_,
        "stopped_early": model.stopped_early_,
        "feature_names": None,
        "scalings": [encoder.scaling for encoder in model.encoders_],
        "margin": model.encoders_[0].margin,
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
    names = header["feature_names"]
    encoders = []
    for k, scaling in enumerate(header["scalings"]):
        encoder = BitEncoder(scaling=scaling, outside=model.outside, margin=header["margin"])
        encoder.low_, encoder.high_ = arrays[f"encoder.{k}.low"], arrays[f"encoder.{k}.high"]
        encoder.knots_ = arrays.get(f"encoder.{k}.knots")
        encoder.shift_ = None
        encoder.precision_ = arrays[f"encoder.{k}.precision"]
        encoder.n_bits_ = int(encoder.precision_.sum())
        encoder.n_features_in_ = int(encoder.low_.size)
        if names is not None:
            encoder.feature_names_in_ = np.array(names, dtype=object)
        encoders.append(encoder)
    model.encoders_ = tuple(encoders)
    model.n_features_in_ = encoders[0].n_features_in_
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    model.target_mean_, model.target_scale_ = arrays["target_mean"], arrays["target_scale"]
    model.one_dimensional_ = header["one_dimensional"]
    model.stopped_early_ = header["stopped_early"]
    model.ensembles_ = tuple(
        unpack_ensemble(facts, arrays, f"ensemble.{k}", model.encoders_)
        for k, facts in enumerate(header["ensembles"])
    )
    model.rows_ = TrainingRows.from_arrays(arrays) if header["has_rows"] else None


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON holds them."""
    out = {}
    for name, value in parameters.items():
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, np.generic):
            value = value.item()
        if name == "random_state" and not isinstance(value, int):
            value = None
        out[name] = list(value) if isinstance(value, tuple) else value
    return out
