"""Bit order and weights as one value: made from phi, theta or (bits, weights).

With theta sorted in descending order, theta_(1) = 1, the bit order is the order of theta, and what
is left of the prior variance below depth l is R(l) = scale * theta_(l+1), R(q) = 0. The weights are
the differences w_l = (R(l-1) - R(l)) / scale, and k(x, x') = scale * W(lcp) with W = 1 - R / scale.
Holding R instead of W keeps the relative accuracy of deep, small edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import finite_vector, non_negative_vector, one_of, positive_number

NUGGETS = ("row", "bit")
SUM_TOLERANCE = 1e-9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BitOrder:
    """Which bit comes when, and how much variance each level carries.

    Make one with `from_phi`, `from_theta` or `from_weights`; the constructor checks nothing.

    Attributes
    ----------
    bits : int64 array (n_bits,)
        Canonical bit numbers, most important first.
    remaining : float64 array (n_bits + 1,)
        R(l), the prior variance below depth l: R(0) is the scale, R(n_bits) = 0, never rising.
    nugget : {"row", "bit"}
        What the last weight means. "row" (the paper's code): a noise of its own for every row, on
        top of the noise floor, so the last bit of the order is not read. "bit" (the paper's text):
        a level of the tree like all others.
    """

    bits: Ints
    remaining: Floats
    nugget: str = "row"

    @classmethod
    def from_phi(cls, phi: Any, *, scale: float = 1.0, nugget: str = "row") -> BitOrder:
        """Make one from phi: theta = exp(phi - max phi). O(q log q).

        Examples
        --------
        >>> BitOrder.from_phi([-1.0, 0.0, -2.0]).bits
        array([1, 0, 2])
        """
        phi = finite_vector("phi", phi)
        _refuse_empty("phi", phi)
        with np.errstate(over="ignore"):  # a spread beyond float64 is theta = 0
            theta = np.exp(phi - phi.max())
        bits = np.argsort(-phi, kind="stable")
        return cls._from_sorted(bits, theta[bits], scale, nugget)

    @classmethod
    def from_theta(cls, theta: Any, *, scale: float = 1.0, nugget: str = "row") -> BitOrder:
        """Make one from theta >= 0 with maximum 1 (paper, section 5). O(q log q)."""
        theta = non_negative_vector("theta", theta)
        _refuse_empty("theta", theta)
        if abs(theta.max() - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"theta must have maximum 1, got {theta.max()}")
        bits = np.argsort(-theta, kind="stable")
        return cls._from_sorted(bits, theta[bits] / theta.max(), scale, nugget)

    @classmethod
    def from_weights(
        cls, bits: Any, weights: Any, *, scale: float = 1.0, nugget: str = "row"
    ) -> BitOrder:
        """Make one from an order of the bits and a weight for each level, in that order. O(q).

        Parameters
        ----------
        bits : integer array (n_bits,)
            A permutation of 0..n_bits-1, most important bit first.
        weights : array (n_bits,)
            Non-negative, sum 1: weights[i] belongs to depth i + 1.
        scale : float
            Prior variance of the whole function, nugget included.
        nugget : {"row", "bit"}
            What the last weight means.

        Examples
        --------
        >>> BitOrder.from_weights([2, 0, 1], [0.5, 0.25, 0.25]).remaining
        array([1.  , 0.5 , 0.25, 0.  ])
        """
        bits = _permutation(bits)
        weights = non_negative_vector("weights", weights, bits.size)
        total = float(weights.sum())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"weights must sum to 1, got {total}")
        tail = np.cumsum(weights[::-1])[::-1]
        return cls._from_sorted(bits, tail / tail[0], scale, nugget)

    @classmethod
    def _from_sorted(cls, bits: Ints, theta: Floats, scale: float, nugget: str) -> BitOrder:
        scale = positive_number("scale", scale)
        one_of("nugget", nugget, NUGGETS)
        remaining = np.zeros(theta.size + 1)
        np.multiply(theta, scale, out=remaining[:-1])
        return cls(bits.astype(np.int64, copy=False), remaining, nugget)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BitOrder):
            return NotImplemented
        return (
            self.nugget == other.nugget
            and np.array_equal(self.bits, other.bits)
            and np.array_equal(self.remaining, other.remaining)
        )

    def __hash__(self) -> int:
        return hash((self.nugget, self.bits.tobytes(), self.remaining.tobytes()))

    @property
    def n_bits(self) -> int:
        """Number of bits, q."""
        return int(self.bits.size)

    @property
    def n_levels(self) -> int:
        """Length D of a key: q - 1 with the row nugget, q with the bit nugget."""
        return self.n_bits - 1 if self.nugget == "row" else self.n_bits

    @property
    def key_bits(self) -> Ints:
        """Canonical bits of a key, (D,): the order as far as it is read."""
        return self.bits[: self.n_levels]

    @property
    def levels(self) -> Floats:
        """R(0..D), (D + 1,): what the engines take. The prior variance of f is R(0) - R(D)."""
        return self.remaining[: self.n_levels + 1]

    @property
    def nugget_variance(self) -> float:
        """Noise that the last weight adds to every row; 0 with the bit nugget."""
        return float(self.remaining[self.n_levels])

    @property
    def prior_variance(self) -> float:
        """Variance of f before any data, W(D) times the scale."""
        return float(self.remaining[0] - self.remaining[self.n_levels])

    @property
    def scale(self) -> float:
        """R(0)."""
        return float(self.remaining[0])

    @property
    def weights(self) -> Floats:
        """Weights in key order, (q,): non-negative, sum 1."""
        return -np.diff(self.remaining) / self.scale

    @property
    def theta(self) -> Floats:
        """The theta in canonical bit order, (q,); maximum 1."""
        theta = np.empty(self.n_bits)
        theta[self.bits] = self.remaining[:-1] / self.scale
        return theta

    @property
    def phi(self) -> Floats:
        """The phi = log theta, (q,), maximum 0; an error where weights end in zeros (theta = 0)."""
        theta = self.theta
        if theta.min() <= 0:
            raise ValueError("phi is not finite: the last weights of the order are zero")
        phi: Floats = np.log(theta)
        return phi

    def theta_gradient(self, by_level: Any, by_noise: float) -> Floats:
        """Chain rule to theta. O(q).

        Parameters
        ----------
        by_level : array (D + 1,)
            d nll / d W(l), scale included in W; what `Gradient.by_level` holds.
        by_noise : float
            d nll / d noise.

        Returns
        -------
        float64 array (q,)
            d nll / d theta in canonical bit order. The entry of the largest theta is 0, since
            theta_(1) is 1 by definition.
        """
        ranked = np.zeros(self.n_bits)
        by_level = finite_vector("by_level", by_level, self.n_levels + 1)
        ranked[1:] = -self.scale * by_level[1 : self.n_bits]
        if self.nugget == "row" and self.n_bits > 1:
            ranked[-1] += self.scale * by_noise
        gradient = np.empty(self.n_bits)
        gradient[self.bits] = ranked
        return gradient

    def phi_gradient(self, by_level: Any, by_noise: float) -> Floats:
        """Chain rule to phi, through the exponential and the maximum. O(q)."""
        gradient: Floats = self.theta_gradient(by_level, by_noise) * self.theta
        gradient[self.bits[0]] -= gradient.sum()
        return gradient

    def log_scale_gradient(self, by_level: Any, by_noise: float) -> float:
        """d nll / d log scale, orders and weights held. O(q)."""
        by_level = finite_vector("by_level", by_level, self.n_levels + 1)
        nugget = by_noise * self.nugget_variance
        return float(-(by_level * self.levels).sum() + nugget)


def random_bits(precision: Any, rng: np.random.Generator) -> Ints:
    """Draw a bit order in which a feature's more significant bits come first.

    All such orders are equally likely. O(q).

    Parameters
    ----------
    precision : integer array (n_features,)
        Bits of each feature.
    rng : numpy.random.Generator
        Where the randomness comes from.

    Returns
    -------
    int64 array (q,)
        Canonical bit numbers, most important first.
    """
    precision = np.asarray(precision)
    if precision.ndim != 1 or precision.dtype.kind not in "iu" or (precision < 1).any():
        raise ValueError(f"precision must be positive integers, one a feature, got {precision!r}")
    features = rng.permutation(np.repeat(np.arange(precision.size), precision))
    bits = np.empty(features.size, dtype=np.int64)
    # The k-th time a feature turns up, its k-th bit is next.
    bits[np.argsort(features, kind="stable")] = np.arange(features.size)
    return bits


def uniform_weights(n_bits: int, last: float | None = None) -> Floats:
    """Equal weights that sum to 1; or the given last weight and the rest equal.

    Examples
    --------
    >>> uniform_weights(3, last=0.5)
    array([0.25, 0.25, 0.5 ])
    """
    if isinstance(n_bits, bool) or not hasattr(n_bits, "__index__") or n_bits < 1:
        raise ValueError(f"n_bits must be a positive integer, got {n_bits!r}")
    if last is None:
        return np.full(n_bits, 1.0 / n_bits)
    if not 0 <= last <= 1:
        raise ValueError(f"last must lie in [0, 1], got {last}")
    if n_bits == 1:
        if last != 1:
            raise ValueError(f"last must be 1 for a single bit, got {last}")
        return np.ones(1)
    weights = np.full(n_bits, (1.0 - last) / (n_bits - 1))
    weights[-1] = last
    return weights


def _permutation(bits: Any) -> Ints:
    bits = np.asarray(bits)
    if bits.ndim != 1 or bits.dtype.kind not in "iu":
        raise ValueError(f"bits must be a vector of integers, got {bits.dtype} {bits.shape}")
    _refuse_empty("bits", bits)
    if not np.array_equal(np.sort(bits), np.arange(bits.size)):
        raise ValueError(f"bits must be a permutation of 0..{bits.size - 1}, got {bits!r:.80}")
    out: Ints = bits.astype(np.int64)
    return out


def _refuse_empty(name: str, array: npt.NDArray[Any]) -> None:
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
