"""Rules for trees and a smooth part in a model file.

A file holds the sorted keys of every tree, and inputs, kernel, inducing rows and the order of the
rows of the smooth part. Tries are linked again; projections and neighbours are computed again when
they are needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from triegp.additive.fitted import FittedForest
from triegp.additive.forest import Forest
from triegp.additive.model import ForestModel
from triegp.additive.nearby import FACTORS
from triegp.additive.settings import VARIANCES
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, available_cores
from triegp.files.codec import (
    LARGEST,
    LEAST,
    RULES,
    VARIANTS,
    Packing,
    Rule,
    a_permutation,
    never_falling,
    rising,
)
from triegp.files.memory import check_memory
from triegp.files.trees import check_leaves
from triegp.smooth.coordinates import N_KNOTS, Coordinates
from triegp.smooth.dense import Dense
from triegp.smooth.division import MOST_ROWS
from triegp.smooth.induced import Induced
from triegp.smooth.interface import HostSmooth
from triegp.smooth.kernel import KERNELS, Kernel
from triegp.smooth.linear import Linear
from triegp.tree.order import BitOrder
from triegp.tree.rows import RANGES
from triegp.tree.trie import SortedKeys, link_rows

__all__ = ["Dense", "FittedForest", "Linear"]

HUGE = 1e30  # variance of a row, weight, or size of an input over its lengthscale
ORDINARY = (1.0 / HUGE, HUGE)
LENGTH = 1e3  # predictions of at most so many deviations may exceed float64 if y nearly does
MOST_NEIGHBOURS, MOST_INDUCING = 512, 2048  # work grows with their cubes; a fit takes 512, 1,024


def _store_trees(model: ForestModel, _: Packing) -> tuple[SortedKeys, ...]:
    pairs = zip(model.forest.tries, model.keys, strict=True)
    return tuple(SortedKeys(trie.row_idx, trie.links.lcp, keys) for trie, keys in pairs)


def _make_model(
    _: Any,
    encoders: tuple[Quantiser, ...],
    orders: tuple[BitOrder, ...],
    trees: tuple[SortedKeys, ...],
    smooth: HostSmooth | None,
    **fields: Any,
) -> ForestModel:
    """The model, with its trees linked again; all that engines rely on is checked first."""
    n = fields["rows"].n_rows
    if not (trees and len(encoders) == len(orders) == len(trees)):
        raise ValueError("encoders, orders and trees must be one per tree")
    for encoder, order, leaves in zip(encoders, orders, trees, strict=True):
        if order.n_bits != encoder.n_bits_:
            raise ValueError(f"order must have {encoder.n_bits_} bits, got {order.n_bits}")
        check_leaves(leaves, n, order.n_levels)
    tries = [
        link_rows(order.key_bits, leaves.row_idx, leaves.lcp, CpuEngine())
        for order, leaves in zip(orders, trees, strict=True)
    ]
    forest = replace(Forest.of(tries, [order.levels for order in orders]), smooth=smooth)
    keys = tuple(leaves.keys for leaves in trees)
    return ForestModel(encoders=encoders, orders=orders, forest=forest, keys=keys, **fields)


def _check_model(model: ForestModel) -> None:
    rows, (n, p) = model.rows, model.inputs.shape
    if rows.y.shape != model.alpha.shape or rows.y.shape[1:] == (1,) or rows.n_rows != n:
        raise ValueError("y, alpha and inputs must have one entry per row, and y no single column")
    if rows.noise is None or rows.noise.shape != (n,) or rows.known_noise is not None:
        raise ValueError(f"rows.noise must have {n} entries")
    for name, values in (("noise", rows.noise), ("weight", rows.weight)):
        if values is not None and not (values.min() > 1.0 / HUGE and values.max() < HUGE):
            raise ValueError(f"rows.{name} must lie between {1.0 / HUGE:g} and {HUGE:g}")
    if rows.scatter is not None and rows.scatter.shape != rows.y.shape:
        raise ValueError("rows.scatter must have the shape of y")
    if int(model.present.sum()) != n:
        raise ValueError(f"present must be True for {n} rows, got {int(model.present.sum())}")
    if not 1 <= model.n_clustered <= n:
        raise ValueError(f"n_clustered must lie between 1 and {n}, got {model.n_clustered}")
    _check_box(model.coordinates, model.encoders[0])
    if model.coordinates.n_coordinates != p:
        raise ValueError(f"inputs must have {model.coordinates.n_coordinates} columns, got {p}")
    smooth: Any = model.smooth
    if smooth is not None:
        inputs = smooth.scaled if isinstance(smooth, Dense) else smooth.induced.X
        if inputs.shape != (n, p):
            raise ValueError(f"smooth must have inputs of shape {(n, p)}, got {inputs.shape}")
    check_reach(model, 1.0)


def _check_box(coordinates: Coordinates, encoder: Quantiser) -> None:
    """Raise ValueError unless coordinates are of features, and moderate in the box."""
    for name in ("features", "ranked"):
        which = getattr(coordinates, name)
        if which.size and not (which[0] >= 0 and which[-1] < encoder.n_working):
            raise ValueError(f"{name} must be features below {encoder.n_working}")
    box = np.stack([encoder.low_, encoder.high_])[:, coordinates.features]
    with np.errstate(over="ignore"):
        reach = np.abs(box - coordinates.center) / coordinates.spread
    if not (reach < HUGE).all() or np.abs(coordinates.ranks).max(initial=0.0) > HUGE:
        raise ValueError(f"coordinates of the box must be below {HUGE:g} in size")


def _check_reach_of(scaled: Any) -> None:
    with np.errstate(over="ignore"):
        reach = np.square(scaled).sum(axis=1).max()
    if not reach < HUGE:
        raise ValueError(f"inputs over lengthscales must be below {np.sqrt(HUGE):g} in size")


def _check_dense(smooth: Dense) -> None:
    if smooth.kernel.lengthscale.size != smooth.scaled.shape[1]:
        raise ValueError("kernel must have one lengthscale per input")
    _check_reach_of(smooth.scaled)


def _check_induced(induced: Induced) -> None:
    (n, p), starts, inducing = induced.X.shape, induced.starts, induced.inducing
    if induced.kernel.lengthscale.size != p:
        raise ValueError("kernel must have one lengthscale per input")
    _check_reach_of(induced.X / induced.kernel.lengthscale)
    if inducing.size and not (inducing.min() >= 0 and inducing.max() < n):
        raise ValueError(f"inducing must be rows below {n}")
    if np.unique(inducing).size != inducing.size:
        raise ValueError("inducing must not repeat a row")
    if induced.n_neighbours > MOST_NEIGHBOURS or inducing.size > MOST_INDUCING:
        raise ValueError(
            f"a smooth part must have at most {MOST_NEIGHBOURS} neighbours and {MOST_INDUCING} "
            f"inducing rows, got {induced.n_neighbours} and {inducing.size}"
        )
    ends = starts.size > 1 and starts[0] == 0 and starts[-1] == n
    if not ends or np.diff(starts).max() > MOST_ROWS:
        raise ValueError(f"starts must cut {n} rows into blocks of at most {MOST_ROWS}")
    check_memory(8 * n * (inducing.size + induced.n_neighbours))


def check_reach(model: ForestModel, scale: float) -> None:
    """Raise ValueError if predictions could exceed float64. O(n T).

    scale: largest scale of the targets, by which predictions are multiplied. The mean of one tree
    at any point lies between two of its partial sums, or between one of them and 0.
    """
    largest = RANGES[np.dtype(np.float64)][2]
    if np.abs(model.rows.y).max() > largest:
        raise ValueError(f"targets must be at most {largest:g} in size")
    if np.abs(model.alpha).max() > largest * HUGE:  # targets over the smallest noise
        raise ValueError(f"alpha must be at most {largest * HUGE:g} in size")
    prior = sum(order.levels[0] for order in model.orders) + model.new_noise
    if model.smooth is not None:
        prior += model.smooth.kernel.scale
    if not prior < HUGE:
        raise ValueError(f"variances must be less than {HUGE:g}")
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (np.delete(path, len(path) // 2, axis=0) for _, path in model.path_sums)  # no node 0
        reach = np.sqrt(prior) + sum(np.abs(part).max() for part in sums)
        reach += prior * np.abs(model.alpha).sum(axis=0).max()
        overflows = not np.isfinite(reach * scale)
    if not np.isfinite(reach) or (overflows and reach > LENGTH):
        raise ValueError(f"predictions must not exceed float64, got {reach:.3g} deviations of y")


RULES[FittedForest] = Rule("", {"variance": VARIANCES}, odd=("nll_per_row",))
RULES[ForestModel] = Rule(
    "present:a alpha:n|n,k inputs:n,P",
    {
        "noise": (LEAST, LARGEST),
        "factor": (FACTORS[0] / 2, 2 * FACTORS[1]),
        "inputs": (-HUGE, HUGE),
    },
    odd=("residual",),
    without=("forest", "keys", "held_mean", "known_nearby", "known_preconditioner"),
    extra={
        "trees": (tuple[SortedKeys, ...], _store_trees),
        "smooth": (HostSmooth | None, lambda model, _: model.smooth),
    },
    make=_make_model,
    check=_check_model,
)
RULES[Coordinates] = Rule(
    f"features:A center:A spread:A ranked:B knots:B,{N_KNOTS} ranks:B,{N_KNOTS}",
    {
        "features": rising,
        "spread": ORDINARY,
        "ranked": rising,
        "knots": never_falling,
        "ranks": never_falling,
    },
)
VARIANTS[HostSmooth] = dict.fromkeys(("Dense", "Linear"), __name__)
RULES[Dense] = Rule("scaled:n,P", without=("matrix",), check=_check_dense)
RULES[Linear] = Rule("", {"gain": ORDINARY})
RULES[Induced] = Rule(
    "X:n,P order:n starts:b inducing:M",
    {"X": (-HUGE, HUGE), "order": a_permutation, "starts": rising},
    without=("n_threads",),
    make=lambda _, **fields: Induced(**fields, n_threads=available_cores()),
    check=_check_induced,
)
RULES[Kernel] = Rule("lengthscale:P", {"lengthscale": ORDINARY, "scale": ORDINARY, "name": KERNELS})
