"""The joint distribution of f at many points: a tree over these points alone.

Between two points lies a path through the trie; what the data say of it condenses to one Gaussian
step an edge, f_low | f_up ~ N(gain f_up + shift, var). Made once in O(n + m), after which means,
samples and covariance products cost O(m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator

from triegp.codes import Codes
from triegp.engines import Engine
from triegp.order import BitOrder
from triegp.posterior import Posterior, select_codes
from triegp.trie import Trie, build_trie, insert_rows
from triegp.validation import finite_columns

BLOCK_FLOATS = 1 << 23  # floats that a block of columns may take while a dense matrix is made

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Joint:
    """f at m points, jointly.

    Attributes
    ----------
    trie : Trie or None
        The trie over the points inside the box; None if there are none.
    edges : float64 (2 m_inside, 3)
        (gain, shift, var) along the edge above every id of that trie.
    inner : int64 (m_inside,)
        Which points these are; all others are unrelated to the data and to each other.
    n_points : int
        m.
    prior_variance : float
        Variance of f where nothing is known.
    """

    trie: Trie | None
    edges: Floats
    inner: npt.NDArray[np.int64]
    n_points: int
    prior_variance: float


def joint_prior(codes: Codes, order: BitOrder, *, engine: Engine | None = None) -> Joint:
    """The joint prior of f at the given rows. O(m) and a sort."""
    inner = _inner(codes)
    trie = build_trie(select_codes(codes, inner), order, engine=engine) if inner.size else None
    edges = np.zeros((0, 3))
    if trie is not None:
        n, links = trie.n_rows, trie.links
        silent = np.full(2 * n, np.inf)
        everyone = np.arange(n, dtype=np.int32)
        edges = trie.engine.contract(links, order.levels, np.zeros(2 * n), silent, everyone, n)
    return Joint(trie, edges, inner, codes.n_rows, order.prior_variance)


def joint_posterior(posterior: Posterior, codes: Codes) -> Joint:
    """The joint posterior of f at the given rows. O(n + m) and a sort of the m rows."""
    inner = _inner(codes)
    order = posterior.order
    if codes.n_bits != order.n_bits:
        raise ValueError(f"codes must have {order.n_bits} bits, got {codes.n_bits}")
    if not inner.size:
        return Joint(None, np.zeros((0, 3)), inner, codes.n_rows, order.prior_variance)
    points = select_codes(codes, inner)
    old = posterior.trie
    trie = build_trie(points, order, engine=old.engine)
    union, _ = insert_rows(old, posterior.keys, points)
    # The points join the trie as leaves that say nothing.
    is_new = union.row_idx >= old.n_rows
    m, s = np.zeros(2 * union.n_rows), np.full(2 * union.n_rows, np.inf)
    leaf_m, leaf_s = (part[: old.n_rows] for part in posterior.inside)
    m[: union.n_rows][~is_new], s[: union.n_rows][~is_new] = leaf_m, leaf_s
    engine = union.engine
    engine.inside(union.links, order.levels, m, s)
    chosen = np.where(is_new, np.cumsum(is_new) - 1, -1).astype(np.int32)
    edges = engine.contract(union.links, order.levels, m, s, chosen, inner.size)
    return Joint(trie, edges, inner, codes.n_rows, order.prior_variance)


def joint_mean(joint: Joint) -> Floats:
    """Mean of f, (m,)."""
    zeros = np.zeros((2 * joint.inner.size, 1))
    return _fill(joint, lambda trie: trie.engine.draw(trie.links, joint.edges, zeros), 1)[:, 0]


def draw_samples(joint: Joint, n_samples: int, rng: np.random.Generator) -> Floats:
    """Exact joint samples of f, (m, n_samples). O(m n_samples).

    Parameters
    ----------
    joint : Joint
        Made by `joint_prior` or `joint_posterior`.
    n_samples : int
        How many.
    rng : numpy.random.Generator
        Where the randomness comes from.
    """
    if isinstance(n_samples, bool) or not hasattr(n_samples, "__index__") or n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
    if not hasattr(rng, "standard_normal"):
        raise ValueError(f"rng must be a numpy.random.Generator, got {rng!r}")
    normals = rng.standard_normal((2 * joint.inner.size, n_samples))
    samples = _fill(
        joint, lambda trie: trie.engine.draw(trie.links, joint.edges, normals), n_samples
    )
    beyond = np.setdiff1d(np.arange(joint.n_points), joint.inner)
    sd = np.sqrt(joint.prior_variance)
    samples[beyond] = sd * rng.standard_normal((beyond.size, n_samples))
    return samples


def covariance_product(joint: Joint, x: Any) -> Floats:
    """Covariance of f at the points times x, (m,) or (m, c). O(m c)."""
    x = finite_columns("x", x, joint.n_points)
    columns = x.reshape(joint.n_points, -1)

    def multiply(trie: Trie) -> Floats:
        inner = trie.sort(columns[joint.inner])
        return trie.engine.covariance_product(trie.links, joint.edges, inner)

    out = _fill(joint, multiply, columns.shape[1])
    beyond = np.setdiff1d(np.arange(joint.n_points), joint.inner)
    out[beyond] = joint.prior_variance * columns[beyond]
    return out.reshape(x.shape)


def covariance_operator(joint: Joint) -> LinearOperator:
    """The covariance of f at the points as a symmetric scipy LinearOperator (m, m)."""

    def multiply(x: Floats) -> Floats:
        return covariance_product(joint, x)

    shape = (joint.n_points, joint.n_points)
    return LinearOperator(
        shape, matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply, dtype=float
    )


def dense_covariance(joint: Joint) -> Floats:
    """The covariance of f at the points as a matrix (m, m). O(m^2) time and memory."""
    m = joint.n_points
    out = np.empty((m, m))
    width = max(BLOCK_FLOATS // max(m, 1), 1)
    for start in range(0, m, width):
        block = np.zeros((m, min(width, m - start)))
        block[np.arange(start, start + block.shape[1]), np.arange(block.shape[1])] = 1.0
        out[:, start : start + width] = covariance_product(joint, block)
    return 0.5 * (out + out.T)  # symmetric to the last bit


def _fill(joint: Joint, work: Callable[[Trie], Floats], n_columns: int) -> Floats:
    """Values (m, c) in the order of the points: those inside from work, in key order, others 0."""
    out = np.zeros((joint.n_points, n_columns))
    if joint.trie is not None:
        out[joint.inner] = joint.trie.unsort(work(joint.trie))
    return out


def _inner(codes: Codes) -> npt.NDArray[np.int64]:
    if codes.outside is None:
        return np.arange(codes.n_rows)
    return np.flatnonzero(~codes.outside)
