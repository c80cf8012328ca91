"""Bit order and weights as one object, built from phi, theta or (bits, weights).

The vector theta has one entry per canonical bit, all >= 0 and the largest 1. Sorting theta in
descending order gives the bit order. The remaining variance, the prior variance of the levels below
depth l, is R(l) = scale * theta_(l+1), with theta_(l+1) the (l+1)-th largest entry and R(q) = 0.
The weights are w_l = (R(l-1) - R(l)) / scale. The kernel is k(x, x') = scale * W(lcp) with
W = 1 - R / scale. R is stored instead of W, because deep levels are small numbers and differences
of R keep their relative accuracy.
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
    """The order of the bits in a key, and the variance of each level of the tree.

    Use `from_phi`, `from_theta` or `from_weights`. The constructor does not check its arguments.

    Attributes
    ----------
    bits : int64 array (n_bits,)
        Canonical bit numbers, most important first.
    remaining : float64 array (n_bits + 1,)
        Remaining variance R(l), the prior variance of the levels below depth l. Non-increasing,
        from R(0) = scale to R(n_bits) = 0.
    nugget : {"row", "bit"}, default="row"
        Meaning of the last weight. "row" (the paper's code): an independent noise for every row,
        added to the noise variance; the last bit of the order is not read. "bit" (the paper's
        text): a level of the tree like all others.
    """

    bits: Ints
    remaining: Floats
    nugget: str = "row"

    @classmethod
    def from_phi(cls, phi: Any, *, scale: float = 1.0, nugget: str = "row") -> BitOrder:
        """Build a BitOrder from phi (n_bits,), with theta = exp(phi - max phi). O(q log q).

        Parameters
        ----------
        phi : array-like (n_bits,)
            One number per bit, in canonical order.
        scale : float, default=1.0
            Prior variance of the function.
        nugget : {"row", "bit"}, default="row"
            Meaning of the last weight (`docs/notation.md`).

        Examples
        --------
        >>> BitOrder.from_phi([-1.0, 0.0, -2.0]).bits
        array([1, 0, 2])
        """
        phi = finite_vector("phi", phi)
        _refuse_empty("phi", phi)
        with np.errstate(over="ignore"):  # if the range of phi overflows, theta is 0
            theta = np.exp(phi - phi.max())
        bits = np.argsort(-phi, kind="stable")
        return cls._from_sorted(bits, theta[bits], scale, nugget)

    @classmethod
    def from_theta(cls, theta: Any, *, scale: float = 1.0, nugget: str = "row") -> BitOrder:
        """Build a BitOrder from theta (n_bits,), >= 0 and maximum 1 (paper, section 5).

        O(q log q).

        Parameters
        ----------
        theta : array-like (n_bits,)
            One number per bit, in canonical order.
        scale : float, default=1.0
            Prior variance of the function.
        nugget : {"row", "bit"}, default="row"
            Meaning of the last weight (`docs/notation.md`).
        """
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
        """Build a BitOrder from the order of the bits and one weight per level. O(q).

        Parameters
        ----------
        bits : integer array (n_bits,)
            A permutation of 0..n_bits-1, most important bit first.
        weights : array (n_bits,)
            Non-negative, with sum 1. weights[i] is the weight of level i + 1.
        scale : float, default=1.0
            Prior variance of the function, nugget included.
        nugget : {"row", "bit"}, default="row"
            Meaning of the last weight.

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
        """Number of bits in a key, D: q - 1 with nugget="row", q with nugget="bit"."""
        return self.n_bits - 1 if self.nugget == "row" else self.n_bits

    @property
    def key_bits(self) -> Ints:
        """Canonical bit numbers of a key, (D,): the first D entries of `bits`."""
        return self.bits[: self.n_levels]

    @property
    def n_used(self) -> int:
        """Number of leading key bits after which all weights but the last are 0."""
        steps = np.flatnonzero(np.diff(self.levels))
        return int(steps[-1]) + 1 if steps.size else 0

    @property
    def levels(self) -> Floats:
        """R(0..D), (D + 1,), as the engines use it. The prior variance of f is R(0) - R(D)."""
        return self.remaining[: self.n_levels + 1]

    @property
    def nugget_variance(self) -> float:
        """Noise variance that the last weight adds to every row; 0 with nugget="bit"."""
        return float(self.remaining[self.n_levels])

    @property
    def prior_variance(self) -> float:
        """Prior variance of f, scale * W(D)."""
        return float(self.remaining[0] - self.remaining[self.n_levels])

    @property
    def scale(self) -> float:
        """Prior variance including the nugget, R(0)."""
        return float(self.remaining[0])

    @property
    def weights(self) -> Floats:
        """Weights per level, (q,): non-negative, with sum 1."""
        return -np.diff(self.remaining) / self.scale

    @property
    def theta(self) -> Floats:
        """Vector theta in canonical bit order, (q,), with maximum 1."""
        theta = np.empty(self.n_bits)
        theta[self.bits] = self.remaining[:-1] / self.scale
        return theta

    @property
    def phi(self) -> Floats:
        """Vector phi = log theta in canonical bit order, (q,), with maximum 0.

        Raises ValueError if the last weights are zero, since then theta has zeros.
        """
        theta = self.theta
        if theta.min() <= 0:
            raise ValueError("phi is not finite: the last weights of the order are zero")
        phi: Floats = np.log(theta)
        return phi

    def theta_gradient(self, by_level: Any, by_noise: float) -> Floats:
        """Convert derivatives by level and noise to the gradient with respect to theta. O(q).

        Parameters
        ----------
        by_level : array (D + 1,)
            d nll / d W(l), scale included in W (`Gradient.by_level`).
        by_noise : float
            d nll / d noise (`Gradient.by_noise`).

        Returns
        -------
        float64 array (q,)
            d nll / d theta in canonical bit order. The entry of the largest theta is 0, since the
            largest theta is 1 by definition.
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
        """Convert derivatives by level and noise to the gradient with respect to phi. O(q).

        Arguments are those of `theta_gradient`. The maximum in theta = exp(phi - max phi) is
        differentiated too, so the gradient sums to 0.

        Parameters
        ----------
        by_level : array-like (D + 1,)
            Derivatives of the nll by level.
        by_noise : float
            Derivative of the nll by the noise.
        """
        gradient: Floats = self.theta_gradient(by_level, by_noise) * self.theta
        gradient[self.bits[0]] -= gradient.sum()
        return gradient

    def log_scale_gradient(self, by_level: Any, by_noise: float) -> float:
        """Compute d nll / d log scale, with the bit order and the weights fixed. O(q).

        Arguments are those of `theta_gradient`.

        Parameters
        ----------
        by_level : array-like (D + 1,)
            Derivatives of the nll by level.
        by_noise : float
            Derivative of the nll by the noise.
        """
        by_level = finite_vector("by_level", by_level, self.n_levels + 1)
        nugget = by_noise * self.nugget_variance
        return float(-(by_level * self.levels).sum() + nugget)


def cut_order(order: BitOrder, n_levels: int) -> BitOrder:
    """Return the order whose first `n_levels` weights are kept; the nugget takes all others.

    The bits after these have weight 0 and need not be in a key: rows that share the first bits are
    observations of one cell, and what the other bits explained is noise between them. O(q).

    Examples
    --------
    >>> order = BitOrder.from_weights([2, 0, 1, 3], [0.5, 0.2, 0.2, 0.1])
    >>> cut_order(order, 1).remaining
    array([1. , 0.5, 0.5, 0.5, 0. ])
    >>> cut_order(order, 1).n_used
    1
    """
    if order.nugget != "row":
        raise ValueError(f"only an order with nugget='row' can be cut, got {order.nugget!r}")
    if not 0 <= n_levels <= order.n_levels:
        raise ValueError(f"n_levels must lie in [0, {order.n_levels}], got {n_levels}")
    remaining = order.remaining.copy()
    remaining[n_levels:-1] = remaining[n_levels]
    return BitOrder(order.bits, remaining, order.nugget)


def random_bits(precision: Any, rng: np.random.Generator) -> Ints:
    """Draw a random bit order in which each feature's more significant bits come first.

    All such orders are equally likely. O(q).

    Parameters
    ----------
    precision : integer array (n_features,)
        Bits per feature.
    rng : numpy.random.Generator
        Random number generator.

    Returns
    -------
    int64 array (q,)
        Canonical bit numbers, most important first.
    """
    precision = np.asarray(precision)
    if precision.ndim != 1 or precision.dtype.kind not in "iu" or (precision < 1).any():
        raise ValueError(f"precision must be positive integers, one per feature, got {precision!r}")
    features = rng.permutation(np.repeat(np.arange(precision.size), precision))
    bits = np.empty(features.size, dtype=np.int64)
    # The k-th occurrence of a feature stands for its k-th bit.
    bits[np.argsort(features, kind="stable")] = np.arange(features.size)
    return bits


def uniform_weights(n_bits: int, last: float | None = None) -> Floats:
    """Return n_bits equal weights that sum to 1.

    If `last` is given, it is the last weight, and the other weights share the rest equally.

    Parameters
    ----------
    n_bits : int
        Number of weights.
    last : float, optional
        The last weight, in [0, 1].

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
