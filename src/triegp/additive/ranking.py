"""Bit orders of all trees at once: `tree.order` for flat arrays, one tree after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.tree.order import BitOrder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The bits of all trees by falling phi, with the variances that remain.

    Attributes
    ----------
    bits : int64 (Q,)
        Canonical bit numbers of each tree, most important first. Keys have all but the last.
    levels : float64 (Q,)
        R(0..D) of each tree, D = q - 1. R(D) is its nugget.
    first : int64 (T + 1,)
        Where each tree begins, and Q.
    """

    bits: Ints
    levels: Floats
    first: Ints

    @property
    def nugget(self) -> float:
        """Noise variance that the last bits of all trees add to every row."""
        return float(self.levels[self.first[1:] - 1].sum())

    def key_bits(self) -> list[Ints]:
        """Bits of the keys of each tree, (D,)."""
        return [bits[:-1] for bits in np.split(self.bits, self.first[1:-1])]

    def split(self) -> tuple[BitOrder, ...]:
        """The order of each tree by itself."""
        parts = (np.split(part, self.first[1:-1]) for part in (self.bits, self.levels))
        return tuple(BitOrder(bits, np.append(R, 0.0)) for bits, R in zip(*parts, strict=True))


def rank_bits(phi: Sequence[Floats], log_scale: Floats) -> Ranking:
    """Order and variances from phi (q,) of each tree and the logarithms of their scales (T,)."""
    sizes = [part.size for part in phi]
    bits = [np.argsort(-part, kind="stable") for part in phi]
    ranked = np.concatenate([part[order] for part, order in zip(phi, bits, strict=True)])
    first = np.cumsum([0, *sizes])
    with np.errstate(over="ignore"):  # if the range of phi overflows, theta is 0
        theta = np.exp(ranked - np.repeat(ranked[first[:-1]], sizes))
    return Ranking(np.concatenate(bits), theta * np.repeat(np.exp(log_scale), sizes), first)


def chain_rule(
    ranking: Ranking, by_depth: Floats, by_noise: float
) -> tuple[tuple[Floats, ...], Floats]:
    """Derivatives of the nll by the phi of each tree, and by the log scales (T,).

    With P_ij = d nll / d K_ij, by_depth is the sum of P over the pairs of rows whose lcp is each
    depth, (Q,) as the levels, and by_noise the derivative by the noise. As K_ij = R(0) - R(lcp),
    d nll / d log R(l) is -R(l) times that sum, and R(D) is noise, too. R(0) is the scale whatever
    phi: the derivatives by phi sum to 0.
    """
    root, leaf = ranking.first[:-1], ranking.first[1:] - 1
    by_depth[root] = 0.0  # these pairs share nothing
    by_level = -by_depth * ranking.levels
    by_level[leaf] += by_noise * ranking.levels[leaf]
    sums = np.add.reduceat(by_level, root)
    by_scale = sums + ranking.levels[root] * np.add.reduceat(by_depth, root)
    by_level[root] -= sums
    by_phi = np.empty_like(by_level)
    by_phi[ranking.bits + np.repeat(root, np.diff(ranking.first))] = by_level
    return tuple(np.split(by_phi, root[1:])), by_scale
