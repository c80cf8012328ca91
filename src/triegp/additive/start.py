"""Initial parameters of a forest: shifted grids and bit orders.

A bit (feature j, depth b) halves cells of width 2^-b along feature j. With init="even" its phi is
-slope (b + u_j) log 2, with u_j uniform on [0, 1) for each tree and feature. The remaining variance
then falls as a power of the cell width, and each tree takes the features in a different order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.additive.ranking import rank_bits
from triegp.additive.settings import Settings
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.quantiser import Quantiser
from triegp.imports import scipy
from triegp.smooth.coordinates import Coordinates
from triegp.smooth.kernel import Kernel
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_SOBOL = 1000  # largest number of features for Sobol shifts; beyond, shifts are uniform random


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of a forest that are learned.

    Attributes
    ----------
    phi : tuple of float64 (q,)
        Order and weights of each tree, as `BitOrder.from_phi` takes them.
    log_scale : float64 (T,)
        Logarithm of the prior variance of each tree, nugget included.
    log_noise : float
        Logarithm of the noise variance, nuggets not included.
    smooth : Kernel or None
        Kernel of the smooth part; None if there is none.
    """

    phi: tuple[Floats, ...]
    log_scale: Floats
    log_noise: float
    smooth: Kernel | None = None

    def orders(self) -> tuple[BitOrder, ...]:
        """Bit order of each tree."""
        return rank_bits(self.phi, self.log_scale).split()

    @property
    def noise(self) -> float:
        """Noise variance, nuggets not included."""
        return float(np.exp(self.log_noise))


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows as the trees of a forest read them.

    Attributes
    ----------
    encoders : tuple of Quantiser
        One per tree, each with its own grid.
    codes : list of Codes
        Codes of the rows, one entry per tree.
    rows : Rows
        Targets, y (n,), or (n, k) if several share all parameters; weights and known noise (n,).
        No weight is 0.
    inputs : float64 (n, p)
        Inputs of the smooth part.
    coordinates : Coordinates
        How features become these inputs.
    """

    encoders: tuple[Quantiser, ...]
    codes: list[Codes]
    rows: Rows
    inputs: Floats
    coordinates: Coordinates

    def select(self, some: Ints) -> EncodedRows:
        """Some of the rows, without their features."""
        codes = [select_codes(part, some) for part in self.codes]
        rows = replace(self.rows, X=None).select(some)
        return EncodedRows(self.encoders, codes, rows, self.inputs[some], self.coordinates)


def joint_rows(rows: Rows) -> Rows:
    """Rows of a forest: one target is y (n,); several, which share all parameters, are y (n, k).

    Raises ValueError unless the known noise is the same for all targets.
    """
    if rows.n_targets == 1:
        return rows.target(0)
    known = rows.known_noise
    if known is not None and known.ndim == 2:
        bad = np.flatnonzero((known != known[:, :1]).any(axis=1))
        if bad.size:
            i = int(bad[0])
            raise ValueError(
                "known_noise of targets that share a model must be the same relative to their "
                f"scales, got {known[i].tolist()} at row {i}: the model must be fitted with "
                'known_noise, or with multi_target="own"'
            )
        known = known[:, 0]
    y, scatter = (
        None if part is None else np.ascontiguousarray(part) for part in (rows.y, rows.scatter)
    )
    assert y is not None
    return replace(rows, y=y, known_noise=known, scatter=scatter)


def rescale(parameters: Parameters, factor: float) -> Parameters:
    """Multiply all variances, kernel and noise, by a factor."""
    log = float(np.log(factor))
    smooth = None if parameters.smooth is None else parameters.smooth.rescaled(factor)
    scale, noise = parameters.log_scale + log, float(parameters.log_noise) + log
    return Parameters(parameters.phi, scale, noise, smooth)


def raise_noise(parameters: Parameters, share: float) -> Parameters:
    """The parameters with noise of at least this share of the prior variance of f."""
    prior = float(np.exp(parameters.log_scale).sum())
    prior += 0.0 if parameters.smooth is None else parameters.smooth.scale
    least = float(np.log(share * max(prior, 1e-300)))
    return replace(parameters, log_noise=max(parameters.log_noise, least))


def row_noise(rows: Rows, orders: Sequence[BitOrder], noise: float) -> Rows:
    """Rows whose noise (n,) is the sum of the forest's noise, its nuggets and the known noise."""
    return add_variance(rows, noise + sum(order.nugget_variance for order in orders))


def add_variance(rows: Rows, shared: float) -> Rows:
    """Rows whose noise (n,) is what all rows share and the known noise."""
    known = 0.0 if rows.known_noise is None else rows.known_noise
    each = np.broadcast_to(shared + known, (rows.n_rows,)).astype(np.float64)
    return replace(rows, known_noise=None, noise=each)


def draw_grids(
    encoders: Sequence[Quantiser], n_trees: int, rng: np.random.Generator
) -> tuple[Quantiser, ...]:
    """One shifted encoder per tree: the encoders in turn, with shifts of low discrepancy."""
    n_features = encoders[0].n_working
    shifts = rng.random((n_trees, n_features))
    if n_features <= MAX_SOBOL and n_trees > 1:
        sobol = scipy.stats.qmc.Sobol(
            n_features, scramble=True, seed=rng
        )  # `rng` only since scipy 1.15
        shifts = sobol.random_base2(int(np.ceil(np.log2(n_trees))))[:n_trees]
    turn = np.arange(n_trees) % len(encoders)
    shifts[np.argsort(turn, kind="stable")] = shifts.copy()  # successive points per encoder
    pairs = zip(turn.tolist(), shifts, strict=True)
    return tuple(encoders[k].with_shift(shift) for k, shift in pairs)


def features_of(encoder: Quantiser) -> Ints:
    """Feature of each bit, int64 (q,)."""
    return np.repeat(np.arange(encoder.n_working), encoder.precision_)


def depths_of(encoder: Quantiser) -> Ints:
    """Position of each bit within its feature, 0 for the most significant, int64 (q,)."""
    return np.concatenate([np.arange(p) for p in encoder.precision_.tolist()])


def start_even(encoder: Quantiser, slope: float, rng: np.random.Generator) -> Floats:
    """Phi of one tree for init="even": by cell width, each feature delayed by a random u_j bits."""
    late = rng.random(encoder.n_working)[features_of(encoder)]
    return -slope * float(np.log(2.0)) * (depths_of(encoder) + late)


def start_random(encoder: Quantiser, rng: np.random.Generator) -> Floats:
    """Phi of one tree for init="random": features shuffled per depth, W(l) = 1 - exp(-l / d)."""
    late = rng.random(encoder.n_bits_)
    rank = np.argsort(np.argsort(depths_of(encoder) + late))
    return -(rank / encoder.n_working)


def start_smooth(settings: Settings, n_coordinates: int) -> Kernel | None:
    """Kernel of the smooth part at the beginning; None if there is to be none.

    It has the prior variance of all trees together. Its lengthscales are sqrt(p), so that rows are
    about one lengthscale apart.
    """
    if settings.smooth is False or not n_coordinates:
        return None
    return Kernel(settings.kernel, np.full(n_coordinates, np.sqrt(n_coordinates)), 1.0)
