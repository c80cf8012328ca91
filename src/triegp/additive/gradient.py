"""Gradient of the nll of a forest, from quadratic forms by depth.

With A = K + noise and a = A^-1 y, the derivative by weight w_l of one tree is
(tr(A^-1 K_l) - a' K_l a) / 2. The trace is estimated as the average of z' K_l A^-1 z over probes z
with independent random signs. The chain rule from weights to phi is the same as for a single tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import check_noise
from triegp.checks import finite_columns, finite_vector
from triegp.tree.order import BitOrder

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ForestGradient:
    """Derivatives of the nll.

    Attributes
    ----------
    phi : tuple of float64 (q,)
        By the phi of each tree.
    log_scale : float64 (T,)
        By the logarithm of the scale of each tree.
    noise : float
        By the noise variance that all rows share.
    """

    phi: tuple[Floats, ...]
    log_scale: Floats
    noise: float


def forest_gradient(
    forest: Forest,
    orders: Sequence[BitOrder],
    alpha: Any,
    probes: Any,
    solved: Any,
    weight: Any = None,
    noise: Any = None,
) -> ForestGradient:
    """Gradient of the nll, summed over k targets.

    Parameters
    ----------
    forest : Forest
        The forest of these orders.
    orders : sequence of BitOrder
        One per tree.
    alpha : float64 (n, k)
        (K + noise)^-1 y, one column per target.
    probes, solved : float64 (n, p)
        Probes z with E z z' = I, and (K + noise)^-1 z.
    weight, noise : float64 (n,), optional
        Sample weights, and noise variances before weighting: the variance of a row is
        noise / weight.

    Returns
    -------
    ForestGradient
        In the host's memory. The arguments may lie on the host or on a device.

    Notes
    -----
    O(n T (k + p)). An unbiased estimate, and exact if the mean of z z' over the probes is I.
    """
    n, hold = forest.n_rows, forest.engine.hold
    parts = {"alpha": alpha, "probes": probes, "solved": solved}
    held = [finite_columns(name, part, n, hold).reshape(n, -1) for name, part in parts.items()]
    if held[1].shape != held[2].shape:
        raise ValueError(
            f"solved must have the shape of probes, {held[1].shape}, got {held[2].shape}"
        )
    offset = None
    if weight is not None:
        weight = finite_vector("weight", weight, n, hold)
        offset = (weight - 1.0) / (2.0 * hold(check_noise(noise, n)))
    return gradient_held(forest, orders, held[0], held[1], held[2], weight, offset)


def gradient_held(
    forest: Forest,
    orders: Sequence[BitOrder],
    alpha: Floats,
    probes: Floats,
    solved: Floats,
    weight: Floats | None = None,
    offset: Floats | None = None,
) -> ForestGradient:
    """As `forest_gradient`, for arrays in the engine's memory and without checks.

    weight and offset may lie on the host. offset: float64 (n,), d nll / d noise of each row apart
    from that of its message, as `Rows.noise_offset`; needed with weights.
    """
    engine = forest.engine
    n_targets, n_probes = alpha.shape[1], probes.shape[1]
    share = n_targets / n_probes
    by_level = engine.sum_level_products(
        forest.trees,
        np.hstack([-0.5 * alpha, 0.5 * share * solved]),
        np.hstack([alpha, probes]),
    )
    by_variance = 0.5 * share * np.einsum("np,np->n", probes, solved)
    by_variance -= 0.5 * np.einsum("nk,nk->n", alpha, alpha)
    if weight is not None:
        assert offset is not None
        by_variance = by_variance / engine.hold(weight) + n_targets * engine.hold(offset)
    by_noise = float(by_variance.sum())
    phi, log_scale = [], np.empty(len(orders))
    for t, (order, by_weight) in enumerate(zip(orders, by_level, strict=True)):
        by_weight[0] = 0.0  # depth 0 has no weight
        by_total = by_weight - np.append(by_weight[1:], 0.0)
        phi.append(order.phi_gradient(by_total, by_noise))
        log_scale[t] = order.log_scale_gradient(by_total, by_noise)
    return ForestGradient(tuple(phi), log_scale, by_noise)
