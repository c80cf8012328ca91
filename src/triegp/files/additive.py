"""Conversion of a forest to a header and flat arrays, its part of a model file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.fitted import FittedForest
from triegp.additive.forest import Forest
from triegp.additive.insertion import solve_again
from triegp.additive.model import ForestModel
from triegp.additive.nearby import FACTORS
from triegp.additive.settings import VARIANCES
from triegp.checks import boolean, one_of, positive_number, whole_number
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.files.contents import (
    check_array,
    check_counts,
    check_index,
    check_sorted_rows,
    check_stored_order,
)
from triegp.files.smooth import (
    COORDINATES,
    follows_older,
    pack_smooth,
    unpack_coordinates,
    unpack_smooth,
)
from triegp.tree.rows import RANGES, Rows
from triegp.tree.trie import link_rows

Arrays = dict[str, npt.NDArray[Any]]

LARGEST = 1e30  # variance of a row, or weight
ORDINARY = 1e3  # predictions of at most so many deviations may exceed float64 if y nearly does


def pack_forest(
    fitted: FittedForest, prefix: str, encoders: Sequence[Quantiser]
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a forest; names of arrays begin with prefix."""
    model = fitted.model
    arrays: Arrays = {
        "y": model.rows.y,
        "noise": model.rows.total_noise,
        "present": model.present,
        "alpha": model.alpha,
        "looks": np.array(fitted.nll_per_row),
        "smooth_inputs": model.inputs,
    }
    for name, part in (
        ("row_weight", model.rows.weight),
        ("copies", model.rows.copies),
        ("scatter", None if model.rows.scatter is None else np.atleast_2d(model.rows.scatter.T)),
    ):
        if part is not None:
            arrays[name] = part
    arrays |= {name: getattr(model.coordinates, name) for name in COORDINATES}
    for t, (encoder, order) in enumerate(zip(model.encoders, model.orders, strict=True)):
        trie = model.forest.tries[t]
        arrays[f"{t}.shift"] = np.asarray(encoder.shift_)
        arrays[f"{t}.bits"] = order.bits
        arrays[f"{t}.remaining"] = order.remaining
        arrays[f"{t}.row_idx"] = trie.row_idx
        arrays[f"{t}.lcp"] = trie.links.lcp
        arrays[f"{t}.keys"] = model.keys[t]
    scalings = [encoder.scaling for encoder in encoders]
    facts = {
        "encoders": [scalings.index(encoder.scaling) for encoder in model.encoders],
        "noise": model.noise,
        "residual": model.residual,
        "seed": model.seed,
        "factor": model.factor,
        "n_pending": model.n_pending,
        "n_clustered": model.n_clustered,
        "goes_on": model.goes_on,
        "smooth": None,
        "n_steps": fitted.n_steps,
        "diverged": fitted.diverged,
        "apart": fitted.apart,
        "variance": fitted.variance,
    }
    if model.smooth is not None:
        facts["smooth"], more = pack_smooth(model.smooth)
        arrays |= more
    return facts, {f"{prefix}.{name}": array for name, array in arrays.items()}


def unpack_forest(
    facts: dict[str, Any], arrays: Arrays, prefix: str, encoders: Sequence[Quantiser]
) -> FittedForest:
    """Restore a forest from header and arrays; all that the engines rely on is checked first."""
    shared = arrays[f"{prefix}.y"].ndim == 2  # several targets
    y = check_array(arrays, f"{prefix}.y", np.float64, (None, None) if shared else (None,))
    n, n_targets = y.shape if shared else (y.size, 1)
    if shared and n_targets < 2:
        raise ValueError(f"{prefix}.y must have one dimension if there is one target")
    noise = check_array(arrays, f"{prefix}.noise", np.float64, (n,))
    each = check_counts(arrays, prefix, (n_targets, n))
    counts = each[0]
    if shared and counts.scatter is not None:
        scatter = np.stack([np.asarray(one.scatter) for one in each], axis=1)
        counts = counts._replace(scatter=scatter)
    for name, values in (("noise", noise), ("row_weight", counts.weight)):
        if values is not None and not ((values > 1.0 / LARGEST) & (values < LARGEST)).all():
            raise ValueError(f"{prefix}.{name} must lie between {1.0 / LARGEST:g} and {LARGEST:g}")
    present = check_array(arrays, f"{prefix}.present", np.bool_, (None,))
    if int(present.sum()) != n:
        raise ValueError(f"{prefix}.present must be True for {n} rows, got {int(present.sum())}")
    own, orders, tries, keys = [], [], [], []
    for t, which in enumerate(facts["encoders"]):
        encoder = check_index("encoder", which, encoders)
        encoder = encoder.with_shift(arrays[f"{prefix}.{t}.shift"])
        order = check_stored_order(arrays, f"{prefix}.{t}", encoder.n_bits_, "row")
        row_idx, lcp, sorted_keys = check_sorted_rows(arrays, f"{prefix}.{t}", n, order.n_levels)
        own.append(encoder)
        orders.append(order)
        keys.append(sorted_keys)
        tries.append(link_rows(order.key_bits, row_idx, lcp, CpuEngine()))
    coordinates = unpack_coordinates(arrays, prefix, own[0])
    inputs = check_array(
        arrays, f"{prefix}.smooth_inputs", np.float64, (n, coordinates.n_coordinates)
    )
    if not np.abs(inputs).max(initial=0.0) < LARGEST:
        raise ValueError(f"{prefix}.smooth_inputs must be below {LARGEST:g} in size")
    n_clustered = whole_number("n_clustered", facts["n_clustered"])
    if n_clustered > n:
        raise ValueError(f"n_clustered must be at most {n}, got {n_clustered}")
    smooth = None
    if facts["smooth"] is not None:
        smooth = unpack_smooth(facts["smooth"], arrays, prefix, inputs)
    model = ForestModel(
        encoders=tuple(own),
        orders=tuple(orders),
        noise=positive_number("noise", facts["noise"]),
        forest=replace(Forest.of(tries, [order.levels for order in orders]), smooth=smooth),
        keys=tuple(keys),
        rows=Rows(y, noise=noise, **counts._asdict()),
        present=present,
        alpha=check_array(arrays, f"{prefix}.alpha", np.float64, y.shape),
        residual=float(facts["residual"]),
        coordinates=coordinates,
        inputs=inputs,
        goes_on=boolean("goes_on", facts["goes_on"]),
        seed=whole_number("seed", facts["seed"], 0),
        n_clustered=n_clustered,
        factor=_check_factor(facts["factor"]),
        n_pending=whole_number("n_pending", facts["n_pending"], 0),
    )
    _check_reach(model, float(arrays["target_scale"].max()))
    if follows_older(facts["smooth"]):
        model = solve_again(model, model.alpha)
    looks = tuple(arrays[f"{prefix}.looks"].astype(np.float64).ravel().tolist())
    n_steps, diverged = whole_number("n_steps", facts["n_steps"], 0), bool(facts["diverged"])
    variance = one_of("variance", facts["variance"], VARIANCES)
    return FittedForest(model, looks, n_steps, diverged, boolean("apart", facts["apart"]), variance)


def _check_factor(value: Any) -> float:
    """Factor of variances from nearby rows; raises ValueError unless it is in the usual range."""
    factor = positive_number("factor", value)
    if not FACTORS[0] / 2 < factor < 2 * FACTORS[1]:
        raise ValueError(f"factor must lie between {FACTORS[0]} and {FACTORS[1]}, got {factor}")
    return factor


def _check_reach(model: ForestModel, scale: float) -> None:
    """Raise ValueError if predictions could exceed float64. O(n T).

    scale: largest scale of the targets, by which predictions are multiplied. The mean of one tree
    at any point lies between two of its partial sums, or between one of them and 0.
    """
    largest = RANGES[np.dtype(np.float64)][2]
    if np.abs(model.rows.y).max() > largest:
        raise ValueError(f"targets must be at most {largest:g} in size")
    if np.abs(model.alpha).max() > largest * LARGEST:  # targets over the smallest noise
        raise ValueError(f"alpha must be at most {largest * LARGEST:g} in size")
    prior = sum(order.levels[0] for order in model.orders) + model.new_noise
    if model.smooth is not None:
        prior += model.smooth.kernel.scale
    if not prior < LARGEST:
        raise ValueError(f"variances must be less than {LARGEST:g}")
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (np.delete(path, len(path) // 2, axis=0) for _, path in model.path_sums)  # no node 0
        reach = np.sqrt(prior) + sum(np.abs(part).max() for part in sums)
        reach += prior * np.abs(model.alpha).sum(axis=0).max()
        overflows = not np.isfinite(reach * scale)
    if not np.isfinite(reach) or (overflows and reach > ORDINARY):
        raise ValueError(f"predictions must not exceed float64, got {reach:.3g} deviations of y")
